"""`massmem memory forget --everywhere`: lists what would go, asks, lets it go, and writes a receipt."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import typer

from massmem.cli.memory_view import count_memories
from massmem.cli.setup import Setup
from massmem.cli.streams import notify, show_activity, write_json, write_out
from massmem.core.text import make_printable, one_line
from massmem.memory.short_ids import shorten_id
from massmem.render.text import pluralize
from massmem.session.erasure import Checks, Eraser, Findings, Near, Order, Receipt

_EXCERPT = 160
_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What the user wants to be forgotten."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    yes: bool
    """Nothing is to be confirmed: near paraphrases stay."""
    as_json: bool


def forget_statements(setup: Setup, request: ForgetRequest) -> int:
    """Forget everywhere. Returns exit code 1 when something is left. Raises what Eraser raises."""
    if not request.yes:
        with show_activity("looking for it"):
            findings = asyncio.run(_find(setup, request))
        _list_findings(findings)
        chosen = _choose_near(findings.near) if findings.near else []
        if not typer.confirm("Forget this for good?", err=True):
            notify("nothing was forgotten")
            return 0
        request = replace(request, texts=(*request.texts, *(near.text for near in chosen)))
    with show_activity("forgetting it, and checking that nothing is left"):
        receipt = asyncio.run(_erase(setup, request))
    if request.as_json:
        write_json(receipt.to_dict())
    _report(receipt)
    return 0 if receipt.checks.is_clean else 1


async def _find(setup: Setup, request: ForgetRequest) -> Findings:
    async with _open_orders(setup, request) as (eraser, orders):
        return await eraser.find(orders)


async def _erase(setup: Setup, request: ForgetRequest) -> Receipt:
    async with _open_orders(setup, request) as (eraser, orders):
        return await eraser.erase(orders)


@asynccontextmanager
async def _open_orders(setup: Setup, request: ForgetRequest) -> AsyncGenerator[tuple[Eraser, Sequence[Order]]]:
    async with setup.open_memories() as memories, memories.open_eraser() as eraser:
        yield eraser, await eraser.read_orders(request.ids, request.texts)


def _list_findings(findings: Findings) -> None:
    sessions = pluralize(len(findings.sessions), "session")
    notify(f"this goes from {sessions}, and {count_memories(len(findings.memories))}:")
    for sentence in findings.sentences[:_MAX_LISTED]:
        write_out(f"  {one_line(make_printable(sentence), _EXCERPT)}\n")
    if len(findings.sentences) > _MAX_LISTED:
        write_out(f"  and {len(findings.sentences) - _MAX_LISTED} more\n")


def _choose_near(near: Sequence[Near]) -> list[Near]:
    """Ask which of the near paraphrases go, too."""
    notify("this may say the same in other words:")
    for number, one in enumerate(near, 1):
        place = make_printable(f"{_name_memory(one)}, {one.session_id} turn {one.turn}, {one.agent_id}")
        write_out(f"  {number}. {place}\n     {one_line(make_printable(one.text), _EXCERPT)}\n")
    while True:
        reply = typer.prompt("Which of them, too? (numbers, all, or none)", default="none", err=True).strip().lower()
        if reply in ("all", "none"):
            return [*near] if reply == "all" else []
        numbers = [int(number) for number in re.findall(r"\d{1,6}", reply)]
        if numbers and all(1 <= number <= len(near) for number in numbers):
            return [near[number - 1] for number in numbers]
        notify(f"write numbers from 1 to {len(near)}, all, or none")


def _name_memory(near: Near) -> str:
    return f"memory {shorten_id(near.memory_id)}" if near.memory_id else "in the log alone"


def _report(receipt: Receipt) -> None:
    deleted, checks = receipt.deleted, receipt.checks
    events = f"{pluralize(deleted.events, 'event')} of {pluralize(len(deleted.sessions), 'session')}"
    notify(f"forgotten: {count_memories(deleted.memories)}, {events}, {pluralize(deleted.files, 'file')}")
    counts = (checks.messages, "message"), (checks.files, "file"), (checks.questions, "question")
    checked = ", ".join(pluralize(number, noun) for number, noun in counts)
    if checks.is_clean:
        notify(f"checked: nothing of it is left in {checked}")
    else:
        _report_rest(checks, checked)
    for near in receipt.near:
        notify(f"left, it may say the same in other words: {near.session_id} turn {near.turn}, {_name_memory(near)}")
    if ids := [shorten_id(near.memory_id) for near in receipt.near if near.memory_id]:
        notify(f"to forget that, too: massmem memory forget --everywhere {' '.join(ids)}")


def _report_rest(checks: Checks, checked: str) -> None:
    sessions, memories = pluralize(checks.sessions_found, "session"), count_memories(checks.memories_found)
    replies = pluralize(checks.questions_found, "reply", "replies")
    notify(f"it is still in {sessions}, {memories}, {replies} of {checked}")
    for path in checks.files_found:
        notify(f"it is still in {path}")
    if not checks.bytes_erased:
        notify("parts of it may remain in the free space of the database, which is very large or read by a process")
