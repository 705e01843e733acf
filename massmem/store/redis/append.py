"""Adding events to a session in Redis: what they change, by the common projection, as commands for one step."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from massmem.errors import SessionBusyError
from massmem.events import EVENT, Event
from massmem.records import LogEntry, MessageRecord, RecordingRecord
from massmem.store import changes, projection
from massmem.store.redis.keys import PREFIX, Command, all_key, chunked, hash_of, id_key, key, microseconds
from massmem.store.redis.log import Entry, Head, TurnRow, is_loose, packed
from massmem.store.redis.queue import new_rows
from massmem.store.redis.session import Made, Snapshot
from massmem.store.redis.words import adding
from massmem.store.rows import Payload

_KEPT = ("system",)
"""Kinds of messages that are never trimmed."""


class Adding:
    """Takes events in, one by one, and gives the commands that store them and all that they mean."""

    def __init__(self, head: Head, turns: dict[int, TurnRow], prefix: str = PREFIX) -> None:
        """head, turns: the session before; both are changed. turns: at least those that the events belong to."""
        self.head = head
        self.turns = turns
        self._prefix = prefix
        self._entries: list[Entry] = []
        self._deltas: list[Entry] = []
        self._messages: list[MessageRecord] = []
        self._rows: list[RecordingRecord] = []
        self._changed: set[int] = set()
        self.last: Entry | None = None
        """The last event that was taken in."""

    def add(self, turn: int, batch: Sequence[Payload]) -> list[int]:
        """Returns the sequence numbers. Raises SessionBusyError for a turn that was begun already."""
        numbers: list[int] = []
        last: datetime | None = None
        for event, text in batch:
            self.head.seq += projection.numbers_taken(event)
            numbers.append(self.head.seq)
            meant = self._take(Entry(self.head.seq, turn, None, text), event, queueing=True)
            last = batch[-1][0].at if meant else last
        if last is not None:
            self._set_session(updated_at=last)
        return numbers

    def restore(self, entries: Iterable[LogEntry]) -> None:
        """Take entries of another store's log under their own numbers, and its queue as it is there."""
        for entry in entries:
            self.head.seq = entry.seq
            event = EVENT.validate_json(entry.payload)
            self._take(Entry(entry.seq, entry.turn, None, entry.payload), event, queueing=False)
            for row in entry.recordings:
                self._rows.append(row)
                if row.position is not None:
                    self.head.position = max(self.head.position, row.position)
                if row.kind == "extract" and (turn := self.turns.get(row.turn)) is not None:
                    turn.extracted = max(turn.extracted or 0, row.seq)

    def commands(self) -> list[Command]:
        """What stores everything that was taken in since the last call, but for the head and the global indexes."""
        name = self.head.session.session_id
        found: list[Command] = []
        for set_, entries in (
            (key("log", name, self._prefix), self._entries),
            (key("deltas", name, self._prefix), self._deltas),
        ):
            scored = [part for entry in entries for part in (entry.seq, packed(entry))]
            found += chunked(("ZADD", set_), scored)
        rows = [part for turn in sorted(self._changed) for part in (turn, self.turns[turn].model_dump_json())]
        found += chunked(("HSET", key("turns", name, self._prefix)), rows)
        found += chunked(("ADDWORDS", key("words", name, self._prefix)), adding(self._messages))
        summaries = {m.agent_id or "": m.model_dump_json() for m in self._messages if m.kind == "injection"}
        parts = [part for pair in summaries.items() for part in pair]
        found += chunked(("HSET", key("summaries", name, self._prefix)), parts)
        self._entries, self._deltas, self._messages, self._changed = [], [], [], set[int]()
        return found

    def queued(self) -> list[RecordingRecord]:
        """The rows of the queue since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def _take(self, entry: Entry, event: Event, *, queueing: bool) -> bool:
        """Whether the event means anything beyond itself."""
        operations = projection.project(self.head.session.session_id, entry.turn, entry.seq, event)
        row = self.turns.get(entry.turn)
        seconds: float | None = None
        for operation in operations:
            match operation:
                case changes.Insert("chat_messages", values):
                    seconds = self._said(values, is_loose(entry, event)) or seconds
                case changes.Insert("turns", values):
                    self._begin(entry.turn, values)
                case changes.Insert("recordings", values) if queueing:
                    self._queue(values)
                case changes.Insert("requests", values):
                    self.turns[entry.turn].requests[values["name"]] = values["seq"]
                    self._changed.add(entry.turn)
                case changes.SetTurn(values) if row is not None:
                    self.turns[entry.turn] = row = row.model_copy(update=values)
                    self._changed.add(entry.turn)
                    if row.status == "undone":
                        self.head.undone |= {entry.turn}
                case changes.QueueExtraction(seq, at) if queueing and row is not None:
                    self._extract(entry.turn, row, seq, at)
                case changes.SetSession():
                    self._tell(operation)
                case _:
                    pass
        self._begun(entry.turn, event)
        self.last = Entry(entry.seq, entry.turn, seconds, entry.payload)
        (self._deltas if event.type == "agent_delta" else self._entries).append(self.last)
        return bool(operations)

    def _said(self, values: dict[str, Any], loose: bool) -> float | None:
        """Count a message. Returns how many seconds the user waited for it, when it is an answer."""
        message = MessageRecord(**values)
        self._messages.append(message)
        self._set_session(message_count=self.head.session.message_count + 1)
        self.head.said += message.kind == "user" or message.final
        if message.kind in _KEPT:
            self.head.pinned += 1
        elif not loose and message.turn >= self.head.turns:
            self.head.newest += 1
        row = self.turns.get(message.turn)
        if row is not None and message.agent_id is not None:
            row.spoke[message.agent_id] = message.seq
            self._changed.add(message.turn)
        if not message.final:
            return None
        self.head.confidence, self.head.escalated = message.confidence, message.escalated
        begun = None if row is None else row.begun
        return None if begun is None else round((message.created_at - begun).total_seconds(), 3)

    def _begin(self, turn: int, values: dict[str, Any]) -> None:
        if turn in self.turns:
            raise SessionBusyError(
                "this turn of the session was begun already, by another process",
                "wait until it has ended, then ask again",
            )
        fields = {name: value for name, value in values.items() if name in TurnRow.model_fields}
        self.turns[turn] = TurnRow(**fields, begun=None, spoke={})
        self._changed.add(turn)
        if turn > self.head.turns:
            # The question came first, as a message of the turn before as it were.
            self.head.turns, self.head.newest = turn, 1

    def _begun(self, turn: int, event: Event) -> None:
        row = self.turns.get(turn)
        if row is not None and event.type in ("turn_started", "turn_resumed"):
            row.begun = event.at if row.begun is None else max(row.begun, event.at)
            self._changed.add(turn)

    def _queue(self, values: dict[str, Any]) -> None:
        if values["kind"] == "episode":
            self.head.position += 1
            values["position"] = self.head.position
        self._row(values)

    def _extract(self, turn: int, row: TurnRow, seq: int, at: datetime) -> None:
        """For each agent that said something in the turn since the last extraction of it was queued."""
        since = row.question_seq - 1 if row.extracted is None else row.extracted
        session_id = self.head.session.session_id
        for agent, last in sorted(row.spoke.items()):
            if last > since:
                self._row(
                    {"session_id": session_id, "seq": seq, "kind": "extract", "agent_id": agent, "turn": turn,
                     "since": since, "created_at": at}
                )  # fmt: skip
                row.extracted = seq
                self._changed.add(turn)

    def _row(self, values: dict[str, Any]) -> None:
        more: dict[str, Any] = {
            "agent_id": values["agent_id"] or None,
            "message_id": changes.message_id(values["session_id"], values["seq"]),
            "status": "pending",
            "attempts": 0,
        }
        self._rows.append(RecordingRecord(**{**values, **more}))

    def _tell(self, change: changes.SetSession) -> None:
        session = self.head.session
        self._set_session(
            title=session.title or change.title or "",
            last_message=change.last_message or session.last_message,
            status=change.status or session.status,
        )

    def _set_session(self, **fields: Any) -> None:
        self.head.session = self.head.session.model_copy(update=fields)


def appending(
    snapshot: Snapshot,
    turn: int,
    batch: Sequence[Payload],
    more: Sequence[Command],
    lease: tuple[str, int],
) -> Made[tuple[list[int], Head]]:
    """What an append is for one program: the sequence numbers, and the head as it is then.

    snapshot: with the turn's row as the first reply. more: further commands. lease: see `Made`.
    """
    row = snapshot.more[0]
    taking = Adding(snapshot.head, {} if row is None else {turn: TurnRow.model_validate_json(row)})
    numbers = taking.add(turn, batch)
    return Made([*storing(taking), *more], (numbers, taking.head), taking.last, lease)


def storing(adding_: Adding) -> list[Command]:
    """All commands that an append needs."""
    head = adding_.head
    return [*adding_.commands(), *new_rows(head, adding_.queued()), *keeping(head)]


def keeping(head: Head) -> list[Command]:
    """The head as it is now, and where the session stands among all by the time of its use."""
    session = head.session
    return [
        ("HSET", key("session", session.session_id), "head", head.model_dump_json()),
        ("ZADD", all_key("used"), microseconds(session.updated_at), session.session_id),
    ]


def creating(head: Head) -> list[Command]:
    session = head.session
    hash_ = hash_of(session.session_id)
    return [
        ("HSET", key("session", session.session_id), "hash", hash_),
        ("SET", id_key(hash_), session.session_id),
        ("ZADD", all_key("created"), microseconds(session.created_at), session.session_id),
        *keeping(head),
    ]
