"""A session as Redis holds it, and what events change in it. Pure.

A session is one hash: `record` is a `StoredSession`, `entry:SEQ` a `StoredEntry` of its log, and `jobs:SEQ` what is to
be recorded of it; `changes` is explained at `RedisStore`. Messages and turns are read from the log by the projection.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter

from massmem.core import events as ev
from massmem.core import records
from massmem.core.events import Event, TurnStarted, decode_event
from massmem.core.records import MessageRecord, RecordingJob, TurnRecord
from massmem.core.voting import FIRST_RESTART
from massmem.memory.persistent import Scope
from massmem.store import projection
from massmem.store.encoding import EncodedEvent
from massmem.store.ports import Retention, turn_started_error
from massmem.store.projection import InsertRow, UpdateSession, UpdateTurn, WithdrawTurns

JobEdit = Callable[[RecordingJob], dict[str, Any] | None]
"""Returns the fields of a job that get a new value; None: the job stays as it is."""

_JOBS = TypeAdapter(list[RecordingJob])


class Lease(BaseModel):
    owner: str
    until: int
    """Milliseconds since 1970 by the server's clock."""


class StoredSession(BaseModel):
    """A session as lists show it, with all that outlives the events that are removed."""

    session: records.SessionRecord
    state: records.SessionState = records.SessionState()
    seq: int = 0
    """The last sequence number given."""
    position: int = -1
    """Of the newest episode."""
    turns: int = 0
    """Number of the last turn."""
    size: int = 0
    """Bytes of the log, with the files that came with questions."""
    conversation_length: int = 0
    """Messages of the conversation: the user's, and final answers."""
    confidence: float | None = None
    """Of the last answer."""
    escalated: bool = False
    """Of the last answer."""
    winners: dict[int, str] = {}
    """Of complete turns, also of trimmed ones: what was recorded of them is still recalled."""
    names: dict[str, str] = {}
    """Of winners for people, by id; some have none."""
    undone: frozenset[int] = frozenset()
    """Numbers of undone turns."""
    withdrawn: frozenset[int] = frozenset()
    """Numbers of turns in whose place another version is shown."""
    abandoned: frozenset[int] = frozenset()
    """Numbers of turns that were given up without an event that says so."""
    requests: dict[str, int] = {}
    """The seq of what each request name became."""
    jobs: records.RecordingCounts = records.RecordingCounts()
    lease: Lease | None = None

    def list_hidden_turns(self) -> frozenset[int]:
        """Numbers of turns that are not part of the conversation."""
        return self.undone | self.withdrawn

    def list_hidden(self, scope: Scope) -> list[tuple[str, int]]:
        """Return these turns with the session, as far as the scope searches it."""
        name, group = self.session.session_id, self.session.memory_group
        is_named = name in (scope.session_id, *scope.others) or scope.group == group != ""
        return [(name, turn) for turn in self.list_hidden_turns()] if scope.all_sessions or is_named else []

    def update(self, **fields: Any) -> None:
        """Change fields of the session's row."""
        self.session = self.session.model_copy(update=fields)


class StoredEntry(NamedTuple):
    """An event of the log."""

    turn: int
    trimmed_at: float
    """When it was trimmed, in seconds since 1970; 0 if not. It stays for a pending job, or as the newest summary."""
    type: str
    payload: str

    def parse(self) -> Event:
        return decode_event(self.payload)

    def measure(self) -> int:
        event = self.parse() if self.type == "turn_started" else None
        return len(self.payload) if event is None else projection.measure_event(event, self.payload)

    def list_files(self) -> set[str]:
        """Return the hashes of the files that a question came with."""
        event = self.parse() if self.type == "turn_started" else None
        return {file.hash for file in event.attachments} if isinstance(event, TurnStarted) else set()


_CONVERSATION = (
    ev.TurnStarted, ev.TurnWaiting, ev.TurnCompleted, ev.TurnFailed, ev.TurnInterrupted, ev.TurnAbandoned,
    ev.UserReplied, ev.MessageAdded, ev.NoteAdded, ev.TurnUndone, ev.VersionChosen,
)  # fmt: skip
"""Events that end a turn or change the conversation: what they lead to depends on the whole log."""


_SUMMARIES = (ev.ContextCompressed.type, ev.HistoryCleared.type)


def depends_on_log(event: Event) -> bool:
    """Return whether what the event leads to depends on the whole log of its session."""
    restarts = isinstance(event, ev.RoundStarted) and event.round >= FIRST_RESTART
    return restarts or isinstance(event, _CONVERSATION)


def is_conversation(message: MessageRecord) -> bool:
    """Does the user see the message: is it the user's, or a final answer?"""
    return message.kind == "user" or message.final


@dataclass(slots=True)
class Record:
    """A session. Edits change it in place."""

    stored: StoredSession
    entries: dict[int, StoredEntry] = field(default_factory=dict[int, StoredEntry])
    """The log by seq, in order, with what was trimmed and is needed still; only new entries without `is_whole`."""
    jobs_by_seq: dict[int, list[RecordingJob]] = field(default_factory=dict[int, list[RecordingJob]])
    is_whole: bool = True
    """The log was loaded."""
    is_deleted: bool = False
    """The whole session goes."""
    removed_files: frozenset[str] = frozenset()
    """Hashes of files that no entry names any more."""

    @staticmethod
    def decode(fields: dict[str, str], *, is_whole: bool = True) -> "Record":
        """Read the fields of a hash."""
        record = Record(StoredSession.model_validate_json(fields["record"]), is_whole=is_whole)
        for seq, text in sorted((int(name[6:]), text) for name, text in fields.items() if name.startswith("entry:")):
            turn, trimmed_at, type_, payload = text.split(" ", 3)
            record.entries[seq] = StoredEntry(int(turn), float(trimmed_at), type_, payload)
            jobs = fields.get(f"jobs:{seq}")
            record.jobs_by_seq[seq] = _JOBS.validate_json(jobs) if jobs else []
        return record

    def encode(self) -> dict[str, str]:
        """Return the fields of the hash; count the jobs."""
        if self.is_whole:
            jobs = self.jobs
            counts = Counter(job.status for job in jobs if job.status != "forgotten")
            troubled = [job for job in jobs if job.status in ("pending", "failed") and job.reason is not None]
            newest = max(troubled, key=lambda job: job.created_at, default=None)
            pending = [job for job in jobs if job.status == "pending"]
            self.stored.jobs = records.RecordingCounts(
                **counts,
                reason=newest and newest.reason,
                messages=sum(job.kind == "episode" for job in pending),
                retrying=sum(job.attempts > 0 for job in pending),
                oldest=min((job.created_at for job in pending), default=None),
                forgotten_facts=len({(job.agent_id, words) for job in jobs for words in job.forgotten}),
            )
        entries = {f"entry:{seq}": " ".join(map(str, entry)) for seq, entry in self.entries.items()}
        queue = {f"jobs:{seq}": _JOBS.dump_json(jobs).decode() for seq, jobs in self.jobs_by_seq.items() if jobs}
        return entries | queue | {"record": self.stored.model_dump_json()}

    @property
    def session_id(self) -> str:
        return self.stored.session.session_id

    def read_recording_marks(self) -> tuple[int, int, int]:
        """As `RecordingQueue.read_recording_marks`."""
        done = [job.seq for job in self.jobs if (job.kind, job.status, job.reason) == ("episode", "done", None)]
        forgotten = sum((job.status == "forgotten") + len(job.forgotten) for job in self.jobs if job.kind != "complete")
        return len(done), max(done, default=0), forgotten

    @property
    def log(self) -> dict[int, StoredEntry]:
        """The entries that have not been trimmed."""
        return {seq: entry for seq, entry in self.entries.items() if not entry.trimmed_at}

    @property
    def jobs(self) -> list[RecordingJob]:
        return [job for jobs in self.jobs_by_seq.values() for job in jobs]

    def read_events(self, turns: Collection[int], until: int | None = None) -> dict[int, list[Event]]:
        """As `SessionLog.read_events_of_turns`."""
        events = {turn: list[Event]() for turn in turns}
        for seq, entry in self.log.items():
            if entry.turn in events and entry.type != "agent_delta" and (until is None or seq <= until):
                events[entry.turn].append(entry.parse())
        return events

    def read_messages(self, turn: int | None = None, *, trimmed: bool = False) -> list[MessageRecord]:
        """Return messages, oldest first. turn: only of this one. trimmed: also what was trimmed and is needed still."""
        messages: list[MessageRecord] = []
        for seq, entry in (self.entries if trimmed else self.log).items():
            if turn in (None, entry.turn):
                messages += self._read_entry(seq, entry)
        return messages

    def read_summaries(self) -> list[MessageRecord]:
        """Return the summaries of turns that stand, oldest first, also trimmed ones."""
        hidden = self.stored.list_hidden_turns()
        entries = [(s, e) for s, e in self.entries.items() if e.type in _SUMMARIES and e.turn not in hidden]
        return [message for seq, entry in entries for message in self._read_entry(seq, entry)]

    def read_turns(self) -> list[TurnRecord]:
        """Return the turns of the log in order."""
        turns: dict[int, dict[str, Any]] = {}
        texts = {message.seq: message.content for message in self.read_messages()}
        for seq, entry in self.log.items():
            for change in self._project(seq, entry):
                match change:
                    case InsertRow("turns", row):
                        turns[entry.turn] = row
                    case UpdateTurn(values) if entry.turn in turns:
                        turns[entry.turn] |= values
                    case _:
                        pass
        turn_records: list[TurnRecord] = []
        for row in turns.values():
            question, answer = texts[row.pop("question_seq")], texts.get(row.pop("answer_seq", 0))
            turn = TurnRecord(question=question, answer=answer, withdrawn=row["turn"] in self.stored.withdrawn, **row)
            if turn.is_unfinished and turn.turn in self.stored.abandoned:
                turn = turn.model_copy(update={"status": "abandoned"})
            turn_records.append(turn)
        return turn_records

    def append(self, turn: int, batch: Sequence[EncodedEvent], newest: int = 0) -> list[int]:
        """Add events and their jobs; return their seqs. Raises SessionBusyError: the turn was started before.

        newest: the last use of any session.
        """
        seqs: list[int] = []
        for event, payload in batch:
            seqs.append(self.stored.seq + projection.count_seqs(event))
            turn = event.turn if isinstance(event, TurnStarted) and event.imported else turn
            changes = self._add(seqs[-1], StoredEntry(turn, 0, event.type, payload))
            jobs = [job for change in changes for job in self._make_jobs(seqs[-1], turn, change)]
            self.jobs_by_seq[seqs[-1]] = jobs
            counts = self.stored.jobs
            oldest = counts.oldest or min((job.created_at for job in jobs), default=None)
            self.stored.jobs = counts.model_copy(update={"pending": counts.pending + len(jobs), "oldest": oldest})
            if changes:
                last = batch[-1].event
                used = max(records.count_microseconds(last.at), 0 if getattr(last, "imported", False) else newest + 1)
                self.stored.update(updated_at=last.at, used=used)
        return seqs

    def restore(self, log: Iterable[records.LogEntry]) -> None:
        """Add the log of another store under its own numbers, with the jobs as they are there."""
        for logged in log:
            self._add(logged.seq, StoredEntry(logged.turn, 0, decode_event(logged.payload).type, logged.payload))
            self.jobs_by_seq[logged.seq] = list(logged.recordings)
        self.stored.position = max((job.position for job in self.jobs if job.position is not None), default=-1)

    def rewrite(self, log: Iterable[records.LogEntry]) -> None:
        """Put entries in place of those with the same numbers; one that is gone meanwhile stays gone."""
        for logged in log:
            if (old := self.entries.get(logged.seq)) is None:
                continue
            new = self.entries[logged.seq] = old._replace(payload=logged.payload)
            self.stored.size += new.measure() - old.measure()
            self.jobs_by_seq[logged.seq] = list(logged.recordings)
            for before, after in zip(self._project(logged.seq, old), self._project(logged.seq, new), strict=True):
                match before, after:
                    case UpdateSession(), UpdateSession():
                        self._rewrite_session(before, after)
                    case _:
                        pass

    def _rewrite_session(self, before: UpdateSession, after: UpdateSession) -> None:
        """Replace a title and a last message that the old text gave."""
        session = self.stored.session
        if before.title and session.title == before.title:
            self.stored.update(title=after.title)
        if before.last_message and session.last_message == before.last_message:
            self.stored.update(last_message=after.last_message)

    def _add(self, seq: int, entry: StoredEntry) -> list[projection.Change]:
        """Add an entry, and count what it changes. Return its changes."""
        self.entries[seq] = entry
        self.stored.size += entry.measure()
        stored, self.stored.seq = self.stored, seq
        changes = self._project(seq, entry)
        for change in changes:
            match change:
                case InsertRow("turns", _) if entry.turn <= stored.turns:
                    raise turn_started_error()
                case InsertRow("turns", _):
                    stored.turns = entry.turn
                case InsertRow("requests", row):
                    stored.requests[row["name"]] = row["seq"]
                case UpdateTurn() | WithdrawTurns():
                    self._note_turns(entry.turn, change)
                case UpdateSession(title, last_message, status):
                    session = stored.session
                    title, last_message = session.title or title or "", last_message or session.last_message
                    stored.update(title=title, last_message=last_message, status=status or session.status)
                case _:
                    pass
        for message in self._read_entry(seq, entry):
            self._count(message, 1)
            if message.final:
                self._show_answer(message)
        if entry.type in ("turn_undone", "version_chosen"):
            self._show_last_turn()
        return changes

    def _show_last_turn(self) -> None:
        """Let lists show the last turn that stands."""
        hidden = self.stored.list_hidden_turns()
        log = [entry for entry in self.log.values() if entry.turn not in hidden]
        last = max((entry.turn for entry in log), default=0)
        events = [entry.parse() for entry in log if entry.turn == last]
        self.stored.update(last_message=projection.fold_session(events).last_message or "")
        self.stored.confidence, self.stored.escalated = None, False
        for answer in [m for m in self.read_messages() if m.final and m.turn not in hidden][-1:]:
            self._show_answer(answer)

    def _note_turns(self, turn: int, change: UpdateTurn | WithdrawTurns) -> None:
        """Note what became of turns. turn: that of the event."""
        stored = self.stored
        match change:
            case UpdateTurn({"status": "completed", "winner": winner}):
                stored.winners[turn] = winner
            case UpdateTurn({"status": "undone"}):
                stored.winners.pop(turn, None)
                stored.undone |= {turn}
            case WithdrawTurns(numbers, withdrawn):
                stored.withdrawn = stored.withdrawn.union(numbers) if withdrawn else stored.withdrawn - {*numbers}
            case UpdateTurn():
                pass

    def _show_answer(self, message: MessageRecord) -> None:
        """Let lists show what they need of the last answer."""
        self.stored.confidence, self.stored.escalated = message.confidence, message.escalated
        if message.agent_id and "agent_type" in message.metadata:
            self.stored.names[message.agent_id] = message.agent_name

    def _make_jobs(self, seq: int, turn: int, change: projection.Change) -> list[RecordingJob]:
        """Return the jobs that a change of the newest entry leads to."""
        match change:
            case InsertRow("recordings", row):
                if row["kind"] == "episode":
                    self.stored.position += 1
                    row["position"] = self.stored.position
                rows = [row]
            case projection.QueueExtraction(_, time, reason):
                end = {"status": "done" if reason else "pending", "reason": reason}
                rows = [row | end for row in self._list_extractions(turn, time)]
            case _:
                rows = []
        message_id = projection.make_message_id(self.session_id, seq)
        ids = {"session_id": self.session_id, "seq": seq, "message_id": message_id}
        return [
            RecordingJob.model_validate(
                {"turn": turn, "status": "pending", "attempts": 0, **row, **ids, "agent_id": row["agent_id"] or None}
            )
            for row in rows
        ]

    def _list_extractions(self, turn: int, time: datetime) -> list[dict[str, Any]]:
        """Return a row for each agent that said something in the turn since the last time."""
        entries = self._list_entries_since_start(turn)
        jobs = [job for seq in entries for job in self.jobs_by_seq.get(seq, ())]
        seqs = [job.seq for job in jobs if job.turn == turn and job.kind == "extract"]
        own = {seq: entry for seq, entry in entries.items() if entry.turn == turn}
        since = max(seqs, default=min(own) - 1)
        new = {seq: entry for seq, entry in own.items() if seq > since and not entry.trimmed_at}
        messages = [message for seq, entry in new.items() for message in self._read_entry(seq, entry)]
        agents = {m.agent_id for m in messages if m.agent_id is not None and records.is_remembered(m)}
        return [{"kind": "extract", "agent_id": a, "since": since, "created_at": time} for a in sorted(agents)]

    def _list_entries_since_start(self, turn: int) -> dict[int, StoredEntry]:
        """Return the entries from the start of a turn on, newest first. An import ends many turns in one long log."""
        entries = dict[int, StoredEntry]()
        for seq, entry in reversed(self.entries.items()):
            entries[seq] = entry
            if entry.type == TurnStarted.type and entry.turn == turn:
                break
        return entries

    def edit_jobs(self, edit: JobEdit) -> int:
        """Change jobs; return how many were changed."""
        number = 0
        for jobs in self.jobs_by_seq.values():
            for index, job in enumerate(jobs):
                if (fields := edit(job)) is not None:
                    jobs[index] = job.model_copy(update=fields)
                    number += 1
        return number

    def remove(self, seqs: Iterable[int]) -> None:
        """Remove entries, with their jobs."""
        files = set[str]()
        for seq in seqs:
            self.jobs_by_seq.pop(seq, None)
            entry = self.entries.pop(seq)
            files |= entry.list_files()
            self.stored.size -= entry.measure()
            for message in () if entry.trimmed_at else self._read_entry(seq, entry):
                self._count(message, -1)
        if files:
            self.removed_files |= files.difference(*(entry.list_files() for entry in self.entries.values()))

    def trim(self, retention: Retention) -> None:
        """Remove the oldest messages while there are more than may be kept.

        A turn goes whole, so that no answer is left without its question. The last turn stays whole, so that it can be
        resumed, and system messages stay. What a pending job needs is set aside until it is done, for the time to live
        of a session at most. The newest summary of each agent is set aside: it stands for what was removed.
        """
        excess = self.stored.conversation_length - retention.messages
        if excess <= 0:
            return
        for seq in self._choose(excess):
            for message in self._read_entry(seq, self.entries[seq]):
                self._count(message, -1)
            self.entries[seq] = self.entries[seq]._replace(trimmed_at=time.time())
        summaries = {summary.agent_id: summary.seq for summary in self.read_summaries()}
        pending = {job.turn or -job.seq for job in self.jobs if job.status == "pending"}
        oldest = 0.0 if retention.seconds is None else time.time() - retention.seconds

        def is_needed(seq: int, entry: StoredEntry) -> bool:
            is_recorded = (entry.turn or -seq) not in pending or entry.trimmed_at < oldest
            return not entry.trimmed_at or seq in summaries.values() or not is_recorded

        self.remove([seq for seq, entry in self.entries.items() if not is_needed(seq, entry)])

    def _choose(self, excess: int) -> list[int]:
        """Choose entries from the beginning that have so many messages of the conversation."""
        chosen: list[int] = []
        turn = 0
        for seq, entry in self.log.items():
            messages = self._read_entry(seq, entry)
            # A turn is complete without what was added from outside.
            is_tool = entry.type == "tool_returned" and messages[0].round == 0
            part_of = 0 if is_tool or entry.type == "message_added" else entry.turn
            if any(message.kind == "system" for message in messages) or 0 != part_of == self.stored.turns:
                continue
            if excess <= 0 and not 0 != part_of == turn:
                break
            chosen.append(seq)
            excess -= sum(map(is_conversation, messages))
            turn = part_of
        return chosen

    def _project(self, seq: int, entry: StoredEntry) -> list[projection.Change]:
        is_silent = entry.type in projection.SILENT_TYPES
        return [] if is_silent else projection.project(self.session_id, entry.turn, seq, entry.parse())

    def _read_entry(self, seq: int, entry: StoredEntry) -> list[MessageRecord]:
        changes = self._project(seq, entry)
        return [MessageRecord(**c.row) for c in changes if isinstance(c, InsertRow) and c.table == "chat_messages"]

    def _count(self, message: MessageRecord, number: int) -> None:
        """Count a message that comes (1) or goes (-1)."""
        self.stored.update(message_count=self.stored.session.message_count + number)
        self.stored.conversation_length += number * is_conversation(message)
