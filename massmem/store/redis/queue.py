"""The queue of recordings in Redis: rows of each session, in order among all of their kind. Pure.

A row stands with its session; its name stands also in `ready` of its kind while it is pending, in order of the queue,
or in `later` when it is not due before a certain time. `trouble` names the rows that did not succeed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from massmem.memory.memories import USER, Selection
from massmem.records import RecordingCounts, RecordingRecord
from massmem.store.redis.keys import (
    Command,
    all_key,
    chunked,
    field_of,
    key,
    later_key,
    member_of,
    microseconds,
    ready_key,
)
from massmem.store.redis.log import Head

HELD = datetime(9999, 1, 1, tzinfo=UTC)
"""Done, but for a memory that does not last: due when somebody lets go of it."""

Change = Callable[[RecordingRecord], RecordingRecord | None]
"""A row as it becomes; None: it stays as it is."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of a session as it was and as it is to be, either of which may be None."""

    old: RecordingRecord | None
    new: RecordingRecord | None


def in_order(rows: Iterable[RecordingRecord]) -> list[RecordingRecord]:
    return sorted(rows, key=member_of)


def is_due(row: RecordingRecord, moment: datetime) -> bool:
    return row.status == "pending" and (row.next_attempt_at is None or row.next_attempt_at <= moment)


def new_rows(head: Head, rows: Sequence[RecordingRecord]) -> list[Command]:
    """Store rows that were not there; counts them in the head. Many at a time, also those of another store."""
    name = head.session.session_id
    stored: list[str] = []
    ordered: dict[str, list[str | int]] = {}
    for row in rows:
        stored += (field_of(row), row.model_dump_json())
        _count(head, row, 1)
        for index, score, member in _places(row):
            ordered.setdefault(index, []).extend((score, member))
    found = chunked(("HSET", key("recordings", name)), stored)
    for index, parts in ordered.items():
        found += chunked(("ZADD", index), parts)
    return found


def changed(head: Head, changes: Iterable[RowChange]) -> list[Command]:
    """Store the changes of rows; counts them in the head."""
    name = head.session.session_id
    found: list[Command] = []
    for change in changes:
        before = {} if change.old is None else {index: member for index, _, member in _places(change.old)}
        after = {} if change.new is None else {index: (score, member) for index, score, member in _places(change.new)}
        found += [("ZREM", index, member) for index, member in before.items() if index not in after]
        found += [("ZADD", index, score, member) for index, (score, member) in after.items()]
        if change.old is not None:
            _count(head, change.old, -1)
        if change.new is not None:
            _count(head, change.new, 1)
            found.append(("HSET", key("recordings", name), field_of(change.new), change.new.model_dump_json()))
        elif change.old is not None:
            found.append(("HDEL", key("recordings", name), field_of(change.old)))
    return found


def counts(heads: Iterable[Head], reason: str | None) -> RecordingCounts:
    pending = done = failed = 0
    for head in heads:
        pending, done, failed = pending + head.pending, done + head.done, failed + head.failed
    return RecordingCounts(pending=pending, done=done, failed=failed, reason=reason)


def newest_reason(rows: Iterable[RecordingRecord]) -> str | None:
    """Why the newest row that did not succeed did not."""
    troubled = [row for row in rows if _is_troubled(row)]
    return max(troubled, key=lambda row: row.created_at).reason if troubled else None


def finishing(reason: str | None, *, lasting: bool) -> Change:
    def change(row: RecordingRecord) -> RecordingRecord | None:
        if row.status != "pending":
            return None
        if not lasting:
            return row.model_copy(update={"reason": reason, "next_attempt_at": HELD})
        return row.model_copy(update={"status": "done", "reason": reason, "next_attempt_at": None})

    return change


def claiming(moment: datetime, until: datetime) -> Change:
    return lambda row: row.model_copy(update={"next_attempt_at": until}) if is_due(row, moment) else None


def releasing(row: RecordingRecord) -> RecordingRecord | None:
    return row.model_copy(update={"next_attempt_at": None}) if row.status == "pending" else None


def releasing_held(row: RecordingRecord) -> RecordingRecord | None:
    held = row.status == "pending" and row.next_attempt_at is not None and row.next_attempt_at >= HELD
    return row.model_copy(update={"reason": None, "next_attempt_at": None}) if held else None


def failing(reason: str, retry_at: datetime | None) -> Change:
    def change(row: RecordingRecord) -> RecordingRecord | None:
        if row.status != "pending":
            return None
        status = "failed" if retry_at is None else "pending"
        return row.model_copy(
            update={"status": status, "attempts": row.attempts + 1, "reason": reason, "next_attempt_at": retry_at}
        )

    return change


def requeueing(*, done: bool) -> Change:
    statuses = {"pending", "failed", "done"} if done else {"pending", "failed"}
    new = {"status": "pending", "attempts": 0, "reason": None, "next_attempt_at": None}
    return lambda row: row.model_copy(update=new) if row.status in statuses else None


def forgetting(selection: Selection, seqs: Mapping[str, set[int]] | None) -> Change:
    """seqs: episodes of these messages only, by session; None: all that the selection names."""
    if seqs is not None or selection.kind == "episode":
        kinds = {"episode"}
    else:
        kinds = {"extract"} if selection.kind == "fact" else {"episode", "extract"}

    def change(row: RecordingRecord) -> RecordingRecord | None:
        agent = None if selection.agent_id == USER else selection.agent_id
        meant = (
            row.kind in kinds
            and selection.session_id in (None, row.session_id)
            and (selection.agent_id is None or row.agent_id == agent)
            and selection.turn in (None, row.turn)
            and (seqs is None or row.seq in seqs.get(row.session_id, set()))
        )
        new = {"status": "forgotten", "reason": None, "next_attempt_at": None}
        return row.model_copy(update=new) if meant else None

    return change


def forgetting_fact(agent_id: str, turns: set[int], words: Sequence[int]) -> Change:
    def change(row: RecordingRecord) -> RecordingRecord | None:
        meant = row.kind == "extract" and (row.agent_id or "") == agent_id and row.turn in turns
        if not meant or tuple(words) in row.forgotten:
            return None
        return row.model_copy(update={"forgotten": (*row.forgotten, tuple(words))})

    return change


def _is_troubled(row: RecordingRecord) -> bool:
    return row.status in ("pending", "failed") and row.reason is not None


def _places(row: RecordingRecord) -> list[tuple[str, int, str]]:
    """Where the row is named among all: key, score and name."""
    found: list[tuple[str, int, str]] = []
    if row.status == "pending" and row.next_attempt_at is None:
        found.append((ready_key(row.kind), 0, member_of(row)))
    elif row.status == "pending" and row.next_attempt_at is not None:
        found.append((later_key(row.kind), microseconds(row.next_attempt_at), member_of(row)))
    if _is_troubled(row):
        found.append((all_key("trouble"), microseconds(row.created_at), field_of(row)))
    return found


def _count(head: Head, row: RecordingRecord, by: int) -> None:
    match row.status:
        case "pending":
            head.pending += by
        case "done":
            head.done += by
        case "failed":
            head.failed += by
        case "forgotten":
            pass
