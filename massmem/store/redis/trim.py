"""Which of the oldest messages go when a session in Redis has more than it may keep, and what goes with them. Pure.

A turn goes whole, so that no answer is left without its question; the last one stays whole, so that it can be taken
up, and so does every system message. What is still to be recorded of a message is set aside until that is done, for
the time to live of a session at most.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel

from massmem.records import MessageRecord, RecordingRecord
from massmem.store.redis.keys import Command, chunked, field_of, key
from massmem.store.redis.log import Entry, Head, Said, TurnRow, is_loose, packed, said
from massmem.store.redis.queue import RowChange
from massmem.store.redis.words import cutting


class AsideMessage(BaseModel):
    """answer: whether it is one that an agent submitted."""

    message: MessageRecord
    answer: bool


class Aside(BaseModel):
    """Trimmed messages of a turn that are kept for rows of the queue alone, which `fields` names, and since when."""

    turn: int
    messages: list[AsideMessage]
    fields: list[str]
    since: datetime


@dataclass(frozen=True, slots=True)
class Removal:
    """Events that go, with the messages that they are."""

    entries: tuple[Entry, ...]
    said: tuple[Said, ...]

    @property
    def messages(self) -> list[MessageRecord]:
        return [each.message for each in self.said]


@dataclass(slots=True)
class _Unit:
    """What goes at once: a turn, or something that stands for itself."""

    turn: int
    loose: bool
    entries: list[Entry]
    said: list[Said]

    @property
    def pinned(self) -> bool:
        return any(each.message.kind == "system" for each in self.said)


def to_trim(head: Head, log: Sequence[Entry], most: int, *, whole: bool) -> Removal | None:
    """What must go of the oldest part of the log. None: read more of it to tell.

    most: messages to keep. whole: `log` is all of it.
    """
    over = head.session.message_count - most
    chosen: list[_Unit] = []
    units = _units(head, log)
    # A turn that the page ends with may have more events behind it.
    cut = max((unit.turn for unit in units if not unit.loose), default=0) if not whole else head.turns
    for unit in units:
        if over <= 0:
            break
        if unit.pinned or (not unit.loose and unit.turn in (head.turns, cut)):
            continue
        chosen.append(unit)
        over -= len(unit.said)
    if over > 0 and not whole:
        return None
    return Removal(
        tuple(entry for unit in chosen for entry in unit.entries), tuple(each for unit in chosen for each in unit.said)
    )


def removing(head: Head, removal: Removal, turns: Mapping[int, TurnRow]) -> list[Command]:
    """Take the events out of the log and their words out of the index; counts them in the head."""
    name = head.session.session_id
    gone = len(removal.said)
    head.session = head.session.model_copy(update={"message_count": head.session.message_count - gone})
    commands = chunked(("ZREM", key("log", name)), [packed(entry) for entry in removal.entries])
    for turn in sorted({entry.turn for entry in removal.entries if not is_loose(entry, entry.event())}):
        if turn in turns:
            start, after = turns[turn].question_seq, turns.get(turn + 1)
            last = max(entry.seq for entry in removal.entries if entry.turn == turn)
            end = last if after is None else min(last, after.question_seq - 1)
            commands.append(("ZREMRANGEBYSCORE", key("deltas", name), start, end))
    return [*commands, *chunked(("CUTWORDS", key("words", name)), cutting(removal.messages))]


def set_aside(
    head: Head, removal: Removal, rows: Iterable[RecordingRecord], moment: datetime
) -> tuple[list[Command], list[RowChange]]:
    """Keep the messages that the queue still needs; rows that are about nothing that is kept go."""
    seqs: dict[int, set[int]] = {}
    for entry in removal.entries:
        seqs.setdefault(entry.turn, set()).add(entry.seq)
    parts: list[str] = []
    gone: list[RowChange] = []
    for turn, of_turn in seqs.items():
        mine = [row for row in rows if row.turn == turn and row.seq in of_turn]
        if not any(row.status == "pending" for row in mine):
            gone += [RowChange(row, None) for row in mine]
            continue
        messages = [
            AsideMessage(message=s.message, answer=s.answer) for s in removal.said if s.message.turn == turn
        ]  # fmt: skip
        aside = Aside(turn=turn, messages=messages, fields=[field_of(row) for row in mine], since=moment)
        parts += (f"{turn}:{min(of_turn)}", aside.model_dump_json())
    return chunked(("HSET", key("aside", head.session.session_id)), parts), gone


def outdated(
    head: Head, aside: Mapping[str, Aside], rows: Iterable[RecordingRecord], oldest: datetime | None
) -> tuple[list[Command], list[RowChange]]:
    """What was set aside and is recorded by now, or was trimmed before `oldest`, goes with its rows."""
    by_field = {field_of(row): row for row in rows}
    names: list[str] = []
    gone: list[RowChange] = []
    for name, kept in aside.items():
        mine = [by_field[field] for field in kept.fields if field in by_field]
        if any(row.status == "pending" for row in mine) and (oldest is None or kept.since >= oldest):
            continue
        names.append(name)
        gone += [RowChange(row, None) for row in mine]
    return chunked(("HDEL", key("aside", head.session.session_id)), names), gone


def _units(head: Head, log: Iterable[Entry]) -> list[_Unit]:
    """In order of their first event."""
    found: list[_Unit] = []
    turns: dict[int, _Unit] = {}
    for entry in log:
        event = entry.event()
        loose = is_loose(entry, event)
        unit = None if loose else turns.get(entry.turn)
        if unit is None:
            unit = _Unit(entry.turn, loose, [], [])
            found.append(unit)
            if not loose:
                turns[entry.turn] = unit
        unit.entries.append(entry)
        unit.said += said(head.session.session_id, entry)
    return found
