"""Memories as text on a terminal and as JSON: lists, one in full, the ledger, figures."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

import typer

from massmem.cli.streams import MB, notify, write_out
from massmem.config.projects import name_project
from massmem.core.records import Everybody, MessageRecord, Owner, RecordingCounts
from massmem.core.text import make_printable, one_line
from massmem.memory.claims import Chain
from massmem.memory.origins import AGENT, WEB
from massmem.memory.persistent import USER, Memory, MemoryChange, MemoryStats, RecallResult, shorten_id
from massmem.render.text import format_columns, pluralize
from massmem.session.erasure import Findings, Near, Receipt
from massmem.session.memories import Backlog, Hits

_WHO_WIDTH = 12
_MAX_WIDTH = 120
_EXCERPT = 160
_MAX_LISTED = 20
_VERBS = {
    "edit": "edited", "pin": "pinned", "unpin": "no longer pinned", "promote": "made global", "demote": "given back",
}  # fmt: skip
_COLUMNS = ("ID", "DATE", "WHO", "TEXT")
_BEYOND = "-- agents are shown what is above; this bears less on it:"


@dataclass(frozen=True, slots=True)
class MemoryDetails:
    """A memory with what it came from, and what the user changed of it."""

    memory: Memory
    messages: Sequence[MessageRecord]
    changes: Sequence[MemoryChange] = ()


@dataclass(frozen=True, slots=True)
class Stats:
    memory: MemoryStats | None
    """None when the memory is unavailable."""
    queue: RecordingCounts
    location: str
    size: int | None
    """Bytes on disk; None for a server."""
    unavailable: str = ""
    """Why the memory is unavailable."""
    note: str = ""
    """For the user, on the memory."""
    backlog: Backlog = field(default_factory=Backlog)

    def to_dict(self) -> dict[str, Any]:
        known = {} if self.memory is None else asdict(self.memory)
        more = {"location": self.location, "bytes": self.size}
        more |= {"unavailable": self.unavailable or None, "note": self.note or None}
        more |= self.backlog.to_dict()
        return known | more | {"facts_forgotten": self.queue.forgotten_facts, "recordings": self.queue.to_dict()}


def print_memories(memories: Sequence[Memory], here: str = "") -> None:
    """Write a line per memory, cut to the width of the terminal. here: the project that is not named."""
    memories = _hide_project(memories, here)
    if memories:
        write_out("".join(_format_table([_COLUMNS, *map(_list_cells, memories)])))
    else:
        notify("no memory matches")


def print_hits(hits: Hits, memories: Sequence[Memory], *, here: str = "") -> None:
    """Write what a search found, a line per memory with its relevance; pinned ones have none.

    memories: what an agent would be shown beside them. here: the project that is not named.
    """
    recalled = hits.recalled
    if hits.unavailable:
        notify(f"{hits.unavailable}: the log was searched by words instead")
    best_first = sorted(_hide_project(memories, here), key=lambda memory: memory.relevance, reverse=True)
    shown = [
        *(_list_cells(memory, "pinned") for memory in _hide_project(recalled.pinned, here)),
        *map(_list_hit, best_first),
    ]
    rows = [*shown, *map(_list_hit, _hide_project(hits.beyond, here))]
    if rows:
        lines = _format_table([(*_COLUMNS[:-1], "FITS", _COLUMNS[-1]), *rows])
        if hits.beyond:
            lines.insert(len(shown) + 1, f"{_BEYOND}\n")
        write_out("".join(lines))
    if reason := recalled.decision.reason if not memories else "":
        notify(reason)
    if not rows:
        notify("no memory matches")
    print_backlog(hits.backlog)


def print_backlog(backlog: Backlog) -> None:
    """Say on stderr what a view could not show."""
    for notice in backlog.describe():
        notify(notice)


def print_explanation(recalled: RecallResult) -> None:
    """Say on stderr why something is shown or nothing, and what is left out, with its relevance."""
    decision = recalled.decision
    reason = f"; {decision.reason}" if recalled.memories else ""  # else it stands there already
    notify(f"score {decision.score:.2f}, threshold {decision.threshold:.2f}{reason}")
    for memory in recalled.silenced:
        notify(f"left out, {memory.relevance:.2f}: {one_line(memory.text, 60)}")


def _hide_project(memories: Sequence[Memory], here: str) -> list[Memory]:
    return [replace(memory, project="") if memory.project == here else memory for memory in memories]


def _list_hit(memory: Memory) -> tuple[str, ...]:
    return _list_cells(memory, f"{memory.relevance:.2f}" if memory.relevance > 0 else "near")


def _format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line per row, the last column cut to the width of the terminal."""
    return [f"{line}\n" for line in format_columns(rows, min(shutil.get_terminal_size().columns, _MAX_WIDTH))]


def _list_cells(memory: Memory, *score: str) -> tuple[str, ...]:
    who = one_line(memory.agent_id, _WHO_WIDTH)
    notes = "; ".join(_list_notes(memory))
    text = one_line(f"({notes}) {memory.text}" if notes else memory.text, _MAX_WIDTH)
    return memory.short_id, _format_day(memory.created_at), who, *score, text


def _list_notes(memory: Memory) -> list[str]:
    """Return what tells a memory from a passage of what its author said."""
    names = {"pinned": memory.is_pinned, "edited": memory.edited_at is not None, "fact": memory.kind == "fact"}
    names[f"in {name_project(memory.project)}"] = bool(memory.project)
    notes = [name for name, holds in names.items() if holds]
    if memory.call:
        notes.append(memory.call)
    elif memory.rests_on:
        notes.append(f"quoting {'the web' if memory.rests_on == WEB else memory.rests_on}")
    elif memory.origin not in (memory.agent_id, AGENT, USER):
        notes.append(f"from {memory.origin or 'unknown'}")
    return [*notes, memory.note] if memory.note else notes


def print_memory(details: MemoryDetails) -> None:
    """Write a memory in full, what the user changed of it, and the messages that it came from."""
    memory = details.memory
    where = f"{memory.session_id} turn {memory.turn}" if memory.turn else f"{memory.session_id}, a note"
    about = [memory.kind, memory.agent_id, _format_moment(memory.created_at), where, *_list_notes(memory)]
    write_out(f"{memory.short_id}  {', '.join(dict.fromkeys(about))}\n{_indent(memory.text)}\n")
    if details.changes:
        write_out("\nChanges:\n")
    for change in details.changes:
        verb = _VERBS[change.action]
        write_out(f"  {verb} by {change.by}, {_format_moment(change.created_at)}")
        write_out(f"; before:\n{_indent(change.old, 4)}\n" if change.action == "edit" else "\n")
    write_out("\nFrom:\n")
    for message in details.messages:
        moment = _format_moment(message.created_at)
        head = f"{message.agent_id or USER}, {message.session_id} turn {message.turn}, {moment}"
        write_out(f"  {head}\n{_indent(message.content, 4)}\n")
    if not details.messages:
        write_out("  messages that are no longer in the store\n")


def details_to_dict(details: MemoryDetails) -> dict[str, Any]:
    keys = {"id", "session_id", "seq", "turn", "round", "kind", "agent_id", "content", "created_at"}
    messages = [message.model_dump(mode="json", include=keys) for message in details.messages]
    changes = [
        {"action": c.action, "by": c.by, "changed_at": c.created_at.isoformat(), "old": c.old, "text": c.text}
        for c in details.changes
    ]
    return details.memory.to_dict() | {"changes": changes, "messages": messages}


def print_history(chains: Sequence[Chain]) -> None:
    """Write each topic with its values, the earliest first."""
    for chain in chains:
        claim = chain.entries[-1].claim
        write_out(f"{claim.subject}: {claim.attribute}\n")
        for entry in chain.entries:
            until = f"until {_format_day(entry.until)}" if entry.until else "holds"
            others = f"; {', '.join(entry.disputed_by)} otherwise" if entry.disputed_by else ""
            others += f"; {entry.note}" if entry.note else ""
            line = f"{one_line(entry.claim.value, 60)}  since {_format_day(entry.since)}, {until}"
            last = entry.memories[-1]
            origin = f"{', '.join(entry.authors)}{others}; {last.session_id} turn {last.turn}, memory {last.short_id}"
            write_out(f"  {line}  ({origin})\n")
    if not chains:
        notify("no value is known of that")


def print_stats(stats: Stats) -> None:
    if stats.memory is not None:
        m = stats.memory
        write_out(f"messages   {m.episodes:,} in {m.passages:,} passages, of {m.sessions:,} sessions\n")
        shares = (
            f"{m.facts_used / m.facts:.0%} used, {m.facts_contradicted / m.facts:.0%} contradicted, " if m.facts else ""
        )
        write_out(
            f"facts      {m.facts:,} ({shares}{stats.queue.forgotten_facts:,} forgotten)\nembedder   {m.embedder}\n"
        )
    queue = stats.queue
    write_out(f"recording  {queue.pending:,} pending, {queue.done:,} done, {queue.failed:,} failed\n")
    if queue.reason:
        write_out(f"           last failure: {one_line(queue.reason)}\n")
    size = "" if stats.size is None else f", {stats.size / MB:,.1f} MB"
    write_out(f"location   {stats.location}{size}\n")
    print_backlog(stats.backlog)
    if stats.note:
        notify(stats.note)
    if stats.unavailable:
        notify(f"{stats.unavailable}: memories cannot be counted now")


def describe_reach(findings: Findings, owner: Owner | Everybody) -> str:
    """Return whose data a forgetting changes, and how much of it."""
    whose = "everybody" if isinstance(owner, Everybody) else owner.user_id or "this machine's user"
    sessions, files = pluralize(len(findings.sessions), "session"), pluralize(findings.files, "file")
    memories = count_memories(len(findings.memories))
    return f"this goes from {sessions} of {make_printable(whose)}, {memories}, and {files} beside the store"


def print_findings(findings: Findings, owner: Owner | Everybody) -> None:
    """Write what would be forgotten everywhere."""
    notify(f"{describe_reach(findings, owner)}:")
    for sentence in findings.sentences[:_MAX_LISTED]:
        write_out(f"  {one_line(sentence, _EXCERPT)}\n")
    if len(findings.sentences) > _MAX_LISTED:
        write_out(f"  and {len(findings.sentences) - _MAX_LISTED} more\n")


def choose_near(near: Sequence[Near]) -> list[Near]:
    """Ask which of the near paraphrases go, too."""
    notify("this may say the same in other words:")
    for number, one in enumerate(near, 1):
        place = f"{_name_memory(one)}, {one.session_id} turn {one.turn}, {one.agent_id}"
        write_out(f"  {number}. {place}\n     {one_line(one.text, _EXCERPT)}\n")
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


def print_receipt(receipt: Receipt) -> None:
    """Write what was forgotten everywhere, and whether something is left."""
    deleted, checks = receipt.deleted, receipt.checks
    events = f"{pluralize(deleted.events, 'event')} of {pluralize(len(deleted.sessions), 'session')}"
    notify(f"forgotten: {count_memories(deleted.memories)}, {events}, {pluralize(deleted.files, 'file')}")
    counts = (checks.messages, "message"), (checks.files, "file"), (checks.questions, "question")
    checked = ", ".join(pluralize(number, noun) for number, noun in counts)
    if checks.is_clean:
        notify(f"checked: nothing of it is left in {checked}")
    else:
        sessions, memories = pluralize(checks.sessions_found, "session"), count_memories(checks.memories_found)
        replies = pluralize(checks.questions_found, "reply", "replies")
        notify(f"it is still in {sessions}, {memories}, {replies} of {checked}")
        for path in checks.files_found:
            notify(f"it is still in {path}")
        if not checks.bytes_erased:
            notify("parts of it may remain in the free space of the database, which is very large or read by a process")
            notify("the next forgetting or deletion removes them")
    for near in receipt.near:
        notify(f"left, it may say the same in other words: {near.session_id} turn {near.turn}, {_name_memory(near)}")
    if ids := [shorten_id(near.memory_id) for near in receipt.near if near.memory_id]:
        notify(f"to forget that, too: massmem memory forget --everywhere {' '.join(ids)}")


def count_memories(number: int) -> str:
    """Return `1 memory`, `2 memories`."""
    return pluralize(number, "memory", "memories")


def _format_day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d}"


def _format_moment(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _indent(text: str, columns: int = 2) -> str:
    return "\n".join(" " * columns + line for line in make_printable(text).splitlines())
