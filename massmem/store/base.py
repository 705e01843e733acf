"""The port to where sessions live."""

from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from massmem.events import Event
from massmem.memory.memories import Selection
from massmem.records import (
    ListedSession,
    LogEntry,
    MessageKind,
    MessageRecord,
    MessageToRecord,
    RecordingCounts,
    RecordingKind,
    RecordingRecord,
    SessionCopy,
    SessionCounts,
    SessionFilter,
    SessionRecord,
    SessionState,
    TurnRecord,
)


@dataclass(frozen=True, slots=True)
class Retention:
    """What a store that keeps sessions for a time keeps of them; the others keep everything.

    seconds: after their last use, None for ever. messages: the newest of each.
    """

    seconds: float | None = 86_400.0
    messages: int = 50


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What the user should know of a store.

    durable False: what it holds ends with this process. always: to be said with every answer. once: when it is opened.
    """

    kind: str
    durable: bool = True
    always: str = ""
    once: tuple[str, ...] = ()


class Said(NamedTuple):
    """A message of a conversation as its users see it. agent_id: who answered. confidence: of a final answer."""

    seq: int
    kind: MessageKind
    content: str
    agent_id: str | None
    confidence: float | None
    at: datetime


class Mark(NamedTuple):
    """What a session is known again by: as long as it has the same mark, nothing was said in it that is not known.

    created_at: of the session, which may have been deleted and made anew. seq: of its newest event, 0 for none.
    state_at: when its state was saved last.
    """

    created_at: datetime
    seq: int
    state_at: datetime | None


@dataclass(frozen=True, slots=True)
class Lease:
    """For whom a lease is taken, see `SessionStore.acquire_lease`."""

    owner: str
    seconds: float


class SessionStore(Protocol):
    """An append-only log of events per session, with the tables that are derived from it.

    Every write is one transaction that is durable when the call returns.

    Raises (all methods): StoreError and its subclasses.
    """

    @property
    def info(self) -> StoreInfo: ...

    async def create_session(self, session: SessionRecord) -> None:
        """Raises SessionExistsError when the id is taken."""
        ...

    async def get_session(self, session_id: str) -> SessionRecord | None: ...

    async def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionRecord]:
        """Newest first by creation, without those that are being deleted."""
        ...

    async def find_sessions(
        self, wanted: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        """The last used first; those that are being deleted are among them."""
        ...

    async def session_counts(self, wanted: SessionFilter) -> SessionCounts: ...

    async def count_said(self, wanted: SessionFilter) -> int:
        """How many messages the conversations of these sessions have, see `conversation`."""
        ...

    async def asked(self, session_id: str, request: str) -> int | None:
        """The seq of the event that what was asked under this name became; None: nothing was."""
        ...

    async def rename_session(self, session_id: str, title: str) -> None:
        """Raises StoreError for an unknown session, and for one that is being deleted."""
        ...

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        """Delete the oldest part of a session, `limit` events at most, and mark what is left as being deleted.

        Returns how many messages are left, None when nothing is. limit 0: only mark it. Whoever calls this holds the
        session's lease, and calls until nothing is left.
        """
        ...

    async def erase(self) -> bool:
        """Leave nothing of what was deleted in the files of the store. False: some of it may stay; see the store."""
        ...

    async def turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        """The session's turns with a number > after, in order."""
        ...

    async def append(
        self, session_id: str, turn: int, events: Sequence[Event], new: SessionState | None = None, leaving: str = ""
    ) -> list[int]:
        """Store events in order and, in the same transaction, what they mean for the tables.

        new: the state that the session has with these events, as for `save_state`; None: it stays as it is.
        leaving: the owner who lets go of the session's lease with these events, "" for nobody.
        Returns the sequence number of each event, growing within the session.

        Raises SessionBusyError: somebody else has the lease of who is leaving; nothing was stored.
        """
        ...

    async def mark(self, session_id: str) -> Mark | None:
        """None: there is no such session, or it is being deleted."""
        ...

    async def begin_turn(
        self, session_id: str, turn: int, events: Sequence[Event], lease: Lease, known: Mark
    ) -> list[int] | None:
        """Take a lease that nobody has, and `append`, in one transaction, for who knows the session by this mark.

        None: it has another mark by now, or somebody has the lease, expired or not; nothing was done.
        """
        ...

    async def turn_events(self, session_id: str, turn: int) -> list[Event]:
        """All events of a turn in order, for taking it up again. Deltas are left out."""
        ...

    async def last_turn(self, session_id: str) -> TurnRecord | None: ...

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        """Mark an unfinished turn as given up; its messages stay in the log."""
        ...

    async def conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        """What user and agents said to each other: user messages and final answers, newest first.

        before: only messages with a smaller seq. Costs what `limit` costs, whatever the length of the log.
        """
        ...

    async def said(self, session_id: str, owner: str, before: int | None, limit: int) -> list[Said]:
        """As `conversation`, of a session that is the owner's and not being deleted; nothing of any other."""
        ...

    async def latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        """What stands for the oldest messages in this agent's view; metadata["until"]: the seq of the last of them."""
        ...

    async def messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        """Everything in the log, oldest first, with seq > after."""
        ...

    async def messages_by_id(self, ids: Sequence[str]) -> list[MessageRecord]:
        """Those of the messages that exist, oldest first within a session."""
        ...

    async def messages_to_record(self, ids: Sequence[str]) -> list[MessageToRecord]:
        """As `messages_by_id`, with what decides how each is remembered."""
        ...

    async def turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        """Everything that was said in one turn, oldest first."""
        ...

    async def repeated(self, message_ids: Sequence[str]) -> list[str]:
        """Ids of answers that a final answer among these messages repeats word for word."""
        ...

    async def search_text(
        self, query: str, session_ids: Sequence[str] | None = None, limit: int = 20
    ) -> list[MessageRecord]:
        """Messages with words of the query, best first, in these sessions or in all. Reasoning is left out."""
        ...

    async def winners(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        """Who won each complete turn of these sessions, by session id and turn."""
        ...

    async def set_memory_group(self, session_id: str, group: str) -> None:
        """From now on what is recorded of the session is found under this name by other sessions, "" for none."""
        ...

    async def due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingRecord]:
        """Pending rows of the queue whose time has come, oldest first; of one session or of all.

        `append` puts them there, in the transaction that stores what they are about.
        """
        ...

    async def claim_recording(self, recording: RecordingRecord, until: datetime) -> bool:
        """Take a row that is due: it is due for nobody, until then. False: another process was faster."""
        ...

    async def release_recording(self, recording: RecordingRecord) -> None:
        """Let go of a row that was claimed: it is due again."""
        ...

    async def finish_recordings(
        self, recordings: Sequence[RecordingRecord], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        """They are done. reason: why there was nothing to do.

        lasting False: for a memory that ends with its process; they stay pending until `release_held`.
        """
        ...

    async def release_held(self) -> int:
        """What was done for a memory that did not last is due again; returns how many rows that are."""
        ...

    async def fail_recording(self, recording: RecordingRecord, reason: str, retry_at: datetime | None) -> None:
        """It did not succeed; counts as an attempt. retry_at None: it is given up."""
        ...

    async def recording_counts(self, session_id: str | None = None) -> RecordingCounts: ...

    async def requeue(self, session_id: str | None = None, *, done: bool) -> int:
        """Make rows pending and due again: those that failed or wait, with `done` also those that are done.

        Returns how many. What was forgotten stays so.
        """
        ...

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        """From the turns of these messages no fact with these words (numbers) is recorded again; others are."""
        ...

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        """Never record again what the selection names (its `ids` aside), with message_ids only these messages."""
        ...

    async def state(self, session_id: str) -> SessionState:
        """What was saved last; an empty state for a session that has none, or that is unknown."""
        ...

    async def save_state(self, session_id: str, new: SessionState) -> None:
        """Replace the state; `updated_at` is set by the store. Raises StoreError for an unknown session."""
        ...

    async def acquire_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        """Become the one who runs turns of this session, for so many seconds from now unless renewed.

        Returns False while somebody else holds it; True also for whoever holds it already. The time is the database's
        where it has a clock of its own. owner: unique to the caller. Raises StoreError for an unknown session.
        """
        ...

    async def lease_owner(self, session_id: str) -> str | None:
        """Who took the lease last and has not let go of it, expired or not."""
        ...

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        """Hold it for so many seconds from now. False: it expired and somebody else has taken it, or it was let go."""
        ...

    async def release_lease(self, session_id: str, owner: str) -> None:
        """Let go of it; nothing happens when somebody else holds it."""
        ...

    async def export_session(self, session_id: str) -> SessionCopy | None:
        """All of a session that is not in its log; None when there is no such session."""
        ...

    async def export_log(self, session_id: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        """The log as it is stored, deltas included, oldest first, with seq > after; and what it has in the queue."""
        ...

    async def import_session(self, copy: SessionCopy, log: AsyncIterable[Sequence[LogEntry]]) -> None:
        """Store a session from another store in place of whatever is here under its id, whole or not at all.

        log: pages of the log in order, under numbers that are kept. The tables are derived from it anew.
        """
        ...

    async def close(self) -> None: ...
