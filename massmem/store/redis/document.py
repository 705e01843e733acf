"""A session as Redis holds it: its keys, the form of its values, and what events change in them.

Keys of one session, massmem:v2:KIND:SESSION, which expire together:

session  hash        record (`StoredSession`), turn:NUMBER (`StoredTurn`), state, and summary:AGENT (the newest
                     summary), all as JSON; request:NAME (a seq)
log      sorted set  the events without deltas, by seq; messages, answers and ballots are read from them
deltas   sorted set  the deltas, by seq

Keys of all sessions: massmem:v2:used, session ids by last use; massmem:v2:due:KIND, turns with pending jobs by the
time these are due; massmem:v2:ids, how the ids of a session's messages begin -> session id; massmem:layout, the version
of all this. Their members may name sessions that have expired meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from massmem.core.events import EVENT, Event
from massmem.core.messages import clean_text
from massmem.core.records import (
    LogEntry,
    MessageRecord,
    RecordingCounts,
    RecordingJob,
    SessionRecord,
    TurnRecord,
    TurnStatus,
    is_remembered,
)
from massmem.store import projection
from massmem.store.log_format import EncodedEvent
from massmem.store.ports import turn_started_error


class Keys:
    """The keys of one session."""

    def __init__(self, session_id: str) -> None:
        self.session_id = clean_text(session_id)
        self.session = f"massmem:v2:session:{self.session_id}"
        self.log = f"massmem:v2:log:{self.session_id}"
        self.deltas = f"massmem:v2:deltas:{self.session_id}"

    def __iter__(self) -> Iterator[str]:
        return iter((self.session, self.log, self.deltas))


class Lease(BaseModel):
    owner: str
    until: int
    """Milliseconds since 1970 by the server's clock."""


class StoredSession(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    session: SessionRecord
    seq: int = 0
    """The last sequence number given."""
    position: int = -1
    """Of the newest episode."""
    turns: int = 0
    """Number of the last turn."""
    conversation_length: int = Field(default=0, alias="said")
    """Messages of the conversation: the user's, and final answers."""
    confidence: float | None = None
    """Of the last answer."""
    escalated: bool = False
    """Of the last answer."""
    winners: dict[int, str] = {}
    """Of complete turns, also of trimmed ones: what was recorded of them is still recalled."""
    undone: frozenset[int] = frozenset()
    """Numbers of undone turns."""
    jobs: RecordingCounts = RecordingCounts()
    lease: Lease | None = None
    writers: dict[str, str] = {}
    """The id of the last change by each process; the process that wrote longest ago comes first."""

    def update(self, **fields: Any) -> None:
        """Change fields of the session's row."""
        self.session = self.session.model_copy(update=fields)


class AsideMessage(BaseModel):
    """A message that was trimmed while a pending job needs it."""

    message: MessageRecord
    trimmed_at: float
    """Seconds since 1970."""


class StoredTurn(BaseModel):
    """What is kept of a turn besides its events; turn 0 stands for what belongs to none."""

    status: TurnStatus | None = None
    """None before the question."""
    question_seq: int = 0
    answer_seq: int = 0
    winner: str | None = None
    seed: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    running_since: datetime | None = None
    """When the turn was started or last resumed."""
    last_seqs: dict[str, int] = {}
    """Seq of each agent's last message."""
    extracted_until: int | None = None
    """Seq of the last queued extraction."""
    jobs: list[RecordingJob] = []
    aside: list[AsideMessage] = []
    is_trimmed: bool = False

    @property
    def is_listed(self) -> bool:
        return self.status is not None and not self.is_trimmed

    def to_record(self, session_id: str, number: int, question: str, answer: str | None) -> TurnRecord:
        fields = self.model_dump(include={"status", "winner", "seed", "started_at", "ended_at"})
        return TurnRecord(session_id=session_id, turn=number, question=question, answer=answer, **fields)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the log, with its place in it."""

    seq: int
    turn: int
    json: str
    response_time: float | None = None
    """Seconds that the user waited for this answer."""

    def pack(self) -> str:
        """Return the member of the sorted set that `unpack` reads."""
        seconds = "" if self.response_time is None else repr(self.response_time)
        return f"{self.seq}\0{self.turn}\0{seconds}\0{self.json}"

    @staticmethod
    def unpack(member: str) -> "StoredEvent":
        seq, turn, seconds, json = member.split("\0", 3)
        return StoredEvent(int(seq), int(turn), json, float(seconds) if seconds else None)

    def parse(self) -> Event:
        return EVENT.validate_json(self.json)

    def messages(self, session_id: str) -> list[MessageRecord]:
        """Return the messages that the projection makes of the event."""
        messages: list[MessageRecord] = []
        for change in projection.project(session_id, self.turn, self.seq, self.parse()):
            if isinstance(change, projection.InsertRow) and change.table == "chat_messages":
                if self.response_time is not None and change.row["final"]:
                    change.row["metadata"]["response_time"] = self.response_time
                messages.append(MessageRecord(**change.row))
        return messages


def read_messages(session_id: str, members: Iterable[str]) -> list[MessageRecord]:
    """Return the messages of members of a log."""
    return [message for member in members for message in StoredEvent.unpack(member).messages(session_id)]


def is_conversation(message: MessageRecord) -> bool:
    """Does the user see the message: is it the user's, or a final answer?"""
    return message.kind == "user" or message.final


def message_id_prefix(session_id: str) -> str:
    """Return how the ids of the session's messages begin, see `projection.make_message_id`."""
    return sha256(session_id.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Document:
    """A session, or as much of it as an edit needs. Edits change it in place."""

    keys: Keys
    stored: StoredSession
    turns: dict[int, StoredTurn] = field(default_factory=dict[int, StoredTurn])
    fields: dict[str, str] = field(default_factory=dict[str, str])
    """The other fields of the session's hash."""
    is_present: bool = True
    """There is a session with this id, which a new one is to replace."""
    is_deleted: bool = False
    """The whole session goes, with its log."""
    log: dict[str, int] = field(default_factory=dict[str, int])
    """Members to add to the log, with their seq."""
    deltas: dict[str, int] = field(default_factory=dict[str, int])
    """Members to add to the deltas, with their seq."""
    removed: Sequence[str] = ()
    """Members to remove from the log, and the deltas before the last of them."""
    is_whole: bool = False
    """All turns were loaded."""
    counted: Counter[str] = field(default_factory=Counter[str])
    """How many jobs of each status the turns had when they were loaded."""

    @staticmethod
    def decode(keys: Keys, fields: dict[str, str], *, is_whole: bool) -> "Document | None":
        """Read fields of a session's hash. None: the session does not exist."""
        if "record" not in fields:
            return None
        turns = {int(name[5:]): text for name, text in fields.items() if name.startswith("turn:")}
        document = Document(keys, StoredSession.model_validate_json(fields["record"]), is_whole=is_whole)
        document.turns = {number: StoredTurn.model_validate_json(turns[number]) for number in sorted(turns)}
        document.fields = {n: text for n, text in fields.items() if n != "record" and not n.startswith("turn:")}
        document.counted = Counter(job.status for job in document.jobs())
        return document

    def encode(self) -> dict[str, str]:
        """Return the fields of the session's hash, with the record's counts as they are now."""
        jobs, counts = Counter(job.status for job in self.jobs()), self.stored.jobs
        update: dict[str, Any] = {
            status: getattr(counts, status) + jobs[status] - self.counted[status]
            for status in ("pending", "done", "failed")
        }
        if self.is_whole:
            troubled = [job for job in self.jobs() if job.status in ("pending", "failed") and job.reason is not None]
            newest = max(troubled, key=lambda job: job.created_at, default=None)
            update["reason"] = newest and newest.reason
        self.stored.jobs, self.counted = counts.model_copy(update=update), jobs
        turns = {f"turn:{number}": turn.model_dump_json() for number, turn in self.turns.items()}
        return self.fields | turns | {"record": self.stored.model_dump_json()}

    def jobs(self) -> list[RecordingJob]:
        return [job for turn in self.turns.values() for job in turn.jobs]

    def add_events(self, number: int, batch: Sequence[EncodedEvent]) -> list[int]:
        """Add events of a turn; return their seqs. Raises SessionBusyError: the turn was started before."""
        seqs: list[int] = []
        for event, json in batch:
            self.stored.seq += projection.count_seqs(event)
            seqs.append(self.stored.seq)
            if self._add(StoredEvent(self.stored.seq, number, json), event, is_new=True):
                self.stored.update(updated_at=batch[-1].event.at)
        return seqs

    def restore_events(self, entries: Iterable[LogEntry]) -> None:
        """Add the log of another store under its own numbers, with the jobs as they are there."""
        for entry in entries:
            self.stored.seq = entry.seq
            stored_event = StoredEvent(entry.seq, entry.turn, entry.payload)
            self._add(stored_event, stored_event.parse(), is_new=False)
            for job in entry.recordings:
                turn = self.turns.setdefault(job.turn, StoredTurn())
                turn.jobs.append(job)
                self.stored.position = max(self.stored.position, -1 if job.position is None else job.position)
                if job.kind == "extract":
                    turn.extracted_until = max(turn.extracted_until or 0, job.seq)

    def _add(self, stored_event: StoredEvent, event: Event, *, is_new: bool) -> bool:
        """Add one event. is_new: queue the jobs that it leads to. Return whether it changes anything."""
        number, response_time = stored_event.turn, None
        changes = projection.project(self.keys.session_id, number, stored_event.seq, event)
        turn = self.turns.setdefault(number, StoredTurn()) if changes else StoredTurn()
        for change in changes:
            match change:
                case projection.InsertRow("chat_messages", row):
                    response_time = self._add_message(MessageRecord(**row), turn)
                case projection.InsertRow("turns", row):
                    self._start_turn(number, turn, row)
                case projection.InsertRow("requests", row):
                    self.fields[f"request:{row['name']}"] = str(row["seq"])
                case projection.InsertRow("recordings", row) if is_new:
                    self._queue(turn, row)
                case projection.QueueExtraction(seq, time) if is_new:
                    self._queue_extraction(number, turn, seq, time)
                case projection.UpdateTurn(values):
                    self._update_turn(number, turn, values)
                case projection.UpdateSession():
                    self._update_session(change)
                case _:
                    pass
        if event.type in ("turn_started", "turn_resumed"):
            turn.running_since = max(turn.running_since or event.at, event.at)
        member = StoredEvent(stored_event.seq, number, stored_event.json, response_time).pack()
        (self.deltas if event.type == "agent_delta" else self.log)[member] = stored_event.seq
        return bool(changes)

    def _add_message(self, message: MessageRecord, turn: StoredTurn) -> float | None:
        """Count a message. Return the seconds that the user waited for it if it is a final answer."""
        self.stored.update(message_count=self.stored.session.message_count + 1)
        self.stored.conversation_length += is_conversation(message)
        if message.kind == "injection":
            self.fields[f"summary:{message.agent_id or ''}"] = message.model_dump_json()
        if message.agent_id is not None and is_remembered(message):
            turn.last_seqs[message.agent_id] = message.seq
        if not message.final:
            return None
        self.stored.confidence, self.stored.escalated = message.confidence, message.escalated
        since = turn.running_since
        return None if since is None else round((message.created_at - since).total_seconds(), 3)

    def _start_turn(self, number: int, turn: StoredTurn, row: dict[str, Any]) -> None:
        if number <= self.stored.turns:
            raise turn_started_error()
        for name in ("status", "question_seq", "seed", "started_at"):
            setattr(turn, name, row[name])
        self.stored.turns = number

    def _update_turn(self, number: int, turn: StoredTurn, values: dict[str, Any]) -> None:
        if turn.status is None:
            return
        for name, value in values.items():
            setattr(turn, name, value)
        self.stored.winners.pop(number, None)
        if turn.status == "completed" and turn.winner is not None:
            self.stored.winners[number] = turn.winner
        if turn.status == "undone":
            self.stored.undone |= {number}

    def _update_session(self, change: projection.UpdateSession) -> None:
        session = self.stored.session
        self.stored.update(
            title=session.title or change.title or "",
            last_message=change.last_message or session.last_message,
            status=change.status or session.status,
        )

    def _queue(self, turn: StoredTurn, row: dict[str, Any]) -> None:
        if row["kind"] == "episode":
            self.stored.position += 1
            row["position"] = self.stored.position
        message_id = projection.make_message_id(row["session_id"], row["seq"])
        fields = row | {"message_id": message_id, "agent_id": row["agent_id"] or None}
        turn.jobs.append(RecordingJob.model_validate(fields | {"status": "pending", "attempts": 0}))

    def _queue_extraction(self, number: int, turn: StoredTurn, seq: int, time: datetime) -> None:
        """Queue a job for each agent that said something in the turn since the last time."""
        since = turn.question_seq - 1 if turn.extracted_until is None else turn.extracted_until
        row = {"session_id": self.keys.session_id, "seq": seq, "kind": "extract", "turn": number, "since": since}
        for agent in sorted(agent for agent, last_seq in turn.last_seqs.items() if last_seq > since):
            self._queue(turn, {**row, "agent_id": agent, "created_at": time})
            turn.extracted_until = seq
