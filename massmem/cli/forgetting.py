"""`massmem memory forget --everywhere`: lists what would go, asks, lets it go, and writes a receipt."""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import typer

from massmem.cli.setup import Setup
from massmem.cli.streams import notify, show_activity, write_json, write_out
from massmem.core.errors import InputError
from massmem.core.text import make_printable, one_line
from massmem.render.text import pluralize
from massmem.session.erasure import Findings, Near, Receipt

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


def forget_statements(load: Callable[[], Setup], request: ForgetRequest) -> int:
    """Forget everywhere. Returns exit code 1 when something is left. Raises InputError and what Eraser raises."""
    if not request.ids and not any(text.strip() for text in request.texts):
        raise InputError("nothing was named", "name ids of memories, or a statement: --text TEXT")
    if not request.yes and not sys.stdin.isatty():
        raise InputError("forgetting cannot be undone, and there is no terminal to confirm it", "add --yes")
    setup = load()
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
    async with setup.open_memories() as memories, memories.open_eraser() as eraser:
        return await eraser.find(await eraser.read_orders(request.ids, request.texts))


async def _erase(setup: Setup, request: ForgetRequest) -> Receipt:
    async with setup.open_memories() as memories, memories.open_eraser() as eraser:
        return await eraser.erase(await eraser.read_orders(request.ids, request.texts))


def _list_findings(findings: Findings) -> None:
    sessions = pluralize(len(findings.sessions), "session")
    notify(f"this goes from {sessions}, and {_count_memories(len(findings.memories))}:")
    for sentence in findings.sentences[:_MAX_LISTED]:
        write_out(f"  {one_line(make_printable(sentence), _EXCERPT)}\n")
    if len(findings.sentences) > _MAX_LISTED:
        write_out(f"  and {len(findings.sentences) - _MAX_LISTED} more\n")


def _choose_near(near: Sequence[Near]) -> list[Near]:
    """Ask which of the near paraphrases go, too."""
    notify("this may say the same in other words:")
    for number, one in enumerate(near, 1):
        write_out(f"  {number}. {_format_place(one)}\n     {one_line(make_printable(one.text), _EXCERPT)}\n")
    while True:
        reply = typer.prompt("Which of them, too? (numbers, all, or none)", default="none", err=True).strip().lower()
        if reply in ("all", "none"):
            return [*near] if reply == "all" else []
        numbers = [int(number) for number in re.findall(r"\d{1,6}", reply)]
        if numbers and all(1 <= number <= len(near) for number in numbers):
            return [near[number - 1] for number in numbers]
        notify(f"write numbers from 1 to {len(near)}, all, or none")


def _format_place(near: Near) -> str:
    memory = near.place.memory_id or "in the log alone"
    return make_printable(f"{memory}  {near.place.session_id} turn {near.place.turn}  {near.agent_id}")


def _report(receipt: Receipt) -> None:
    deleted, checks = receipt.deleted, receipt.checks
    events = f"{pluralize(deleted.events, 'event')} of {pluralize(len(deleted.sessions), 'session')}"
    notify(f"forgotten: {_count_memories(deleted.memories)}, {events}, {pluralize(deleted.files, 'file')}")
    counts = (checks.messages, "message"), (checks.files, "file"), (checks.questions, "question")
    checked = ", ".join(pluralize(number, noun) for number, noun in counts)
    if checks.is_clean:
        notify(f"checked: nothing of it is left in {checked}")
    else:
        _report_rest(receipt, checked)
    for place in receipt.near:
        where = f"memory {place.memory_id}" if place.memory_id else "in the log alone"
        notify(f"left, it may say the same in other words: {place.session_id} turn {place.turn}, {where}")
    if ids := [place.memory_id for place in receipt.near if place.memory_id]:
        notify(f"to forget that, too: massmem memory forget --everywhere {' '.join(ids)}")


def _count_memories(number: int) -> str:
    return pluralize(number, "memory", "memories")


def _report_rest(receipt: Receipt, checked: str) -> None:
    checks = receipt.checks
    sessions, memories = pluralize(checks.sessions_found, "session"), _count_memories(checks.memories_found)
    replies = pluralize(checks.questions_found, "reply", "replies")
    notify(f"it is still in {sessions}, {memories}, {replies} of {checked}")
    for path in checks.files_found:
        notify(f"it is still in {path}")
    if not checks.bytes_erased:
        notify("parts of it may remain in the free space of the database, which is very large or read by a process")
