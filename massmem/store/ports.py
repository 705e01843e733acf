"""The port to where sessions live: five small protocols, and `SessionStore` as their sum.

Every write is one transaction that is durable when the call returns. All methods raise StoreError and its subclasses.
"""

from collections.abc import AsyncIterable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypedDict, Unpack

from massmem.core.errors import InputError, SessionBusyError, StoreError
from massmem.core.events import Event
from massmem.core.records import (
    ApiKey,
    Everybody,
    ListedSession,
    LogEntry,
    MessageRecord,
    MessageToRecord,
    Owner,
    PageSession,
    RecordingCounts,
    RecordingJob,
    RecordingKind,
    SessionCopy,
    SessionCounts,
    SessionFilter,
    SessionRecord,
    SessionState,
    TurnPlace,
    TurnRecord,
)
from massmem.memory.persistent import Scope, Selection

SEARCHED_KINDS = ("user", "assistant", "tool_call", "tool_result")
"""Kinds of messages that `SessionLog.search_messages` looks into."""

HELD = datetime(9999, 1, 1, tzinfo=UTC)
"""The next attempt of a job that was recorded in a memory that does not last."""


LogPages = AsyncIterable[Sequence[LogEntry]]
FilePages = AsyncIterable[Mapping[str, bytes]]
"""The files of a session, by the SHA-256 of their bytes, a few at a time."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a store with a time to live keeps a session, and how much of it. Other stores keep everything."""

    seconds: float | None = 86_400.0
    """After the last use of a session; None: for ever."""
    messages: int = 50
    """How many messages of each conversation, the newest: user messages and final answers."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    kind: str
    durable: bool = True
    """False: what it holds ends with this process."""
    always: str = ""
    """A warning for every answer."""
    once: tuple[str, ...] = ()
    """Warnings for when the store is opened."""


class SessionLog(Protocol):
    """An append-only log of events per session, and the tables that are derived from it."""

    async def append(
        self,
        session_id: str,
        turn: int,
        events: Sequence[Event],
        *,
        state: SessionState | None = None,
        owner: str = "",
        release_lease: bool = False,
    ) -> list[int]:
        """Store events in order and, in the same transaction, what they mean for the tables.

        turn: of the events; where imported turns start, those that follow are of theirs.
        state: replaces the session's state in the same transaction; None: the state stays as it is.
        owner: who runs the turn and holds the session's lease; "" for an append outside of turns.
        release_lease: release the owner's lease in the same transaction.
        Returns the sequence number of each event; numbers grow within a session.

        Raises SessionBusyError: somebody else holds the lease, or has begun this turn; nothing was stored.
        """
        ...

    async def read_turn_events(self, session_id: str, turn: int, until: int | None = None) -> list[Event]:
        """Return the events of a turn in order, without deltas. until: the number in the log of the last one."""
        ...

    async def read_events_of_turns(
        self, session_id: str, turns: Collection[int], until: int | None = None
    ) -> dict[int, list[Event]]:
        """As `read_turn_events`, of several turns, by their numbers."""
        ...

    async def get_last_turn(self, session_id: str, *, with_withdrawn: bool = False) -> TurnRecord | None:
        """Return the last turn that is not withdrawn; it may be undone. with_withdrawn: the last one of all."""
        ...

    async def list_places(self, session_id: str) -> list[TurnPlace]:
        """Return where each turn of the session stands, in order."""
        ...

    async def list_hidden(self, scope: Scope) -> frozenset[tuple[str, int]]:
        """Return the turns, by session and number, that are withdrawn or undone, of all sessions that it searches."""
        ...

    async def list_turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        """Return the session's turns with a number > after, in order."""
        ...

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        """Mark an unfinished turn as given up. Its messages stay in the log."""
        ...

    async def find_request(self, session_id: str, request: str) -> int | None:
        """Return the seq of the event that the question under this request name became, None for a new name."""
        ...

    async def read_conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        """Return user messages and final answers, newest first.

        before: only messages with a smaller seq. The cost depends on `limit`, not on the length of the log.
        """
        ...

    async def get_latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        """Return the summary that stands for the oldest messages in this agent's prompts.

        metadata["until"] is the seq of the last message that it covers. agent_id "": where the history was cleared.
        """
        ...

    async def read_messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        """Return every message with seq > after, oldest first."""
        ...

    async def read_turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        """Return every message of one turn, oldest first; 0: those of none, such as notes."""
        ...

    async def get_messages(self, message_ids: Sequence[str]) -> list[MessageRecord]:
        """Return those of the messages that exist, oldest first within a session."""
        ...

    async def find_repeated_answers(self, message_ids: Sequence[str]) -> list[str]:
        """Return the ids of answers that a final answer among these messages repeats word for word."""
        ...

    async def search_messages(
        self,
        query: str,
        session_ids: Sequence[str] | None = None,
        limit: int = 20,
        *,
        owner: Owner | Everybody,
    ) -> list[MessageRecord]:
        """Return messages with words of the query, best first, without reasoning.

        session_ids: only of these sessions; None: of all of the owner.
        """
        ...

    async def get_winner_names(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        """Return what people are shown for the winner of each complete turn of these sessions, by id and turn."""
        ...

    async def save_files(self, session_id: str, files: Mapping[str, bytes]) -> None:
        """Store files by the SHA-256 of their bytes; one that is there stays. Raises StoreError for an unknown session.

        They belong to the session: they are deleted with it, and no other session finds them.
        """
        ...

    async def load_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return those of the session's files that exist, by hash."""
        ...

    async def delete_files(self, session_id: str, hashes: Sequence[str]) -> None:
        """Delete files of the session; what names them stays. Nothing happens for one that does not exist."""
        ...

    async def load_state(self, session_id: str) -> SessionState:
        """Return the state that was saved last; an empty state for a session without one."""
        ...

    async def save_state(self, session_id: str, state: SessionState) -> None:
        """Replace the state and set its `updated_at`. Raises StoreError for an unknown session."""
        ...


class LeaseTable(Protocol):
    """Who may run the turns of a session."""

    async def acquire_lease(self, session_id: str, owner: str, seconds: float, *, if_free: bool = False) -> bool:
        """Take the lease for so many seconds from now; True also for its present owner. False: somebody else has it.

        if_free: not one that has expired, either: whose it is may have to be checked first. The clock is the database's
        where it has one. owner: unique to the caller. Raises StoreError for an unknown session.
        """
        ...

    async def get_lease_owner(self, session_id: str) -> str | None:
        """Return who took the lease last and has not released it, expired or not."""
        ...

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        """Hold the lease for so many seconds from now. False: it was released, or expired and somebody else took it."""
        ...

    async def release_lease(self, session_id: str, owner: str) -> None:
        """Release the lease; nothing happens when somebody else holds it."""
        ...


class RecordingQueue(Protocol):
    """Jobs of recording memories. `SessionLog.append` adds the rows with the events they are about."""

    async def list_due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingJob]:
        """Return pending rows whose time has come, oldest first. session_id None: of all sessions."""
        ...

    async def get_messages_to_record(self, message_ids: Sequence[str]) -> list[MessageToRecord]:
        """As `SessionLog.get_messages`, with what decides how each message is remembered."""
        ...

    async def claim_recording(self, recording: RecordingJob, until: datetime) -> bool:
        """Take a due row: until then it is due for nobody else. False: another process was faster."""
        ...

    async def extend_claim(self, recording: RecordingJob, until: datetime | None) -> None:
        """Claim a row for longer that this process has claimed; None: make it due again.

        What was done or forgotten meanwhile stays so.
        """
        ...

    async def finish_recordings(
        self, recordings: Sequence[RecordingJob], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        """Mark rows as done. reason: why there was nothing to record.

        lasting False: the memory ends with this process; the rows are held until `release_held_recordings`.
        """
        ...

    async def release_held_recordings(self) -> int:
        """Make the rows due again that were recorded in a memory that did not last. Returns how many."""
        ...

    async def fail_recording(self, recording: RecordingJob, reason: str, retry_at: datetime | None) -> None:
        """Count a failed attempt. retry_at None: the row has failed for good."""
        ...

    async def add_attempts(self, recordings: Sequence[RecordingJob], number: int) -> None:
        """Add this to the failed attempts of pending rows."""
        ...

    async def count_recordings(self, session_id: str | None = None) -> RecordingCounts: ...

    async def read_recording_marks(self) -> dict[str, tuple[int, int, int]]:
        """Return what an index should hold of each session.

        How many messages, the number of the last one (0: there is none), and how much is forgotten.
        """
        ...

    async def requeue_recordings(self, session_id: str | None = None, *, done: bool, facts: bool = True) -> int:
        """Make failed and waiting rows due again, with `done` also those that are done. Returns how many.

        Rows of forgotten memories stay forgotten. facts: also those for which a model is asked.
        """
        ...

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        """Never again record a fact with these words (as numbers) from the turns of these messages."""
        ...

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        """Never again record what the selection names (its `ids` aside); with message_ids only these messages."""
        ...


class SessionFields(TypedDict, total=False):
    """Those of a `SessionRecord` that change by themselves."""

    history_hash: str
    config_path: str
    origins: tuple[tuple[str, int], ...]


class SessionCatalogue(Protocol):
    """Sessions as a whole: making, finding, naming, deleting, copying."""

    async def create_session(self, session: SessionRecord) -> None:
        """Raises SessionExistsError when the id is taken."""
        ...

    async def get_session(self, session_id: str) -> SessionRecord | None: ...

    async def list_sessions(self) -> list[SessionRecord]:
        """Return sessions, the newest first by creation, without those that are being deleted."""
        ...

    async def find_sessions(
        self, criteria: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        """Return sessions, the last used first; those that are being deleted are among them."""
        ...

    async def count_sessions(self, criteria: SessionFilter) -> SessionCounts: ...

    async def count_messages(self, criteria: SessionFilter) -> int:
        """Return how many messages the conversations of these sessions have, see `read_conversation`."""
        ...

    async def rename_session(self, session_id: str, title: str) -> None:
        """Raises StoreError for an unknown session, and for one that is being deleted."""
        ...

    async def update_session(self, session_id: str, **fields: Unpack[SessionFields]) -> None:
        """Replace fields of the session's row; nothing happens when the session is unknown."""
        ...

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        """Delete the oldest part of a session, `limit` events at most, and mark the rest as being deleted.

        Returns how many messages are left, None when nothing is. limit 0: only mark it. The caller holds the session's
        lease and calls until nothing is left.
        """
        ...

    async def erase_deleted(self) -> bool:
        """Remove the bytes of what was deleted from the files of the store. False: some of them may stay."""
        ...

    async def export_session(self, session_id: str) -> SessionCopy | None:
        """Return what of a session is not in its log; None for an unknown session."""
        ...

    async def export_log(
        self, session_id: str, after: int = 0, limit: int = 1000, *, with_trimmed: bool = False
    ) -> list[LogEntry]:
        """Return the log as stored, deltas included, with seq > after, oldest first, and its rows in the queue.

        with_trimmed: also what retention has removed from the conversation, and something still needs.
        """
        ...

    async def rewrite_log(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        """Put entries in place of those with the same numbers, in one transaction, with what is derived from them.

        The only change of a log: what the user wants to be forgotten goes. An entry may differ in its texts and in the
        state of its rows in the queue, and in nothing else. A title or last message that came from a text changes
        with it. Raises StoreError for an unknown session.
        """
        ...

    async def import_session(
        self, copy: SessionCopy, log: LogPages, files: FilePages | None = None, *, replaces: int | None = None
    ) -> None:
        """Store a session of another store in place of the one with this id, whole or not at all.

        log: pages of the log in order; their numbers are kept, and the tables are derived from them anew.
        replaces: the last number of the log that is there, as far as the caller knows, 0 without a log; None: any.

        Raises SessionBusyError: the log there ends elsewhere, and nothing was changed.
        """
        ...


MAX_BROWSERS = 50
"""Browsers in which a user can have entered at the same time."""


class KeyTable(Protocol):
    """The API keys of users of the service, and their browsers: all processes on a store know the same."""

    async def add_key(self, key: ApiKey) -> None: ...

    async def find_key(self, key_hash: str) -> ApiKey | None:
        """Return the key with this hash, expired or not; None: there is none, or it was deleted."""
        ...

    async def list_keys(self) -> list[ApiKey]:
        """Return all keys, the oldest first."""
        ...

    async def delete_key(self, key_id: str) -> bool:
        """Delete the key with this id. False: there is none."""
        ...

    async def add_page_session(self, session: PageSession) -> None:
        """Add the browser, in place of the user's oldest beyond MAX_BROWSERS; those that have expired may go."""
        ...

    async def renew_page_session(self, session: PageSession) -> None:
        """Store when the browser was used last. One that has left meanwhile does not come back."""
        ...

    async def find_page_session(self, cookie_hash: str) -> PageSession | None:
        """Return the browser whose cookie has this hash; None: there is none, or it has left."""
        ...

    async def delete_page_session(self, cookie_hash: str) -> None: ...


class SessionStore(SessionLog, LeaseTable, RecordingQueue, SessionCatalogue, KeyTable, Protocol):
    """Where sessions live."""

    @property
    def info(self) -> StoreInfo: ...

    async def close(self) -> None: ...


def unknown_session_error(session_id: str) -> StoreError:
    """Return the error for a change of a session that does not exist."""
    return StoreError(
        f"session {session_id!r} is not in the store: it was deleted meanwhile, or never created",
        "see the sessions with: massmem --list-sessions",
    )


def password_error() -> InputError:
    """Return the error for a URL whose password would be taken for another part of it, and shown."""
    return InputError(
        "store.url: a special character of the password must be written as its code",
        "%40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %25 for %",
    )


def lease_lost_error(session_id: str) -> SessionBusyError:
    """Return the error for a change under a lease that another process has taken over."""
    return SessionBusyError(
        f"another process has taken over {session_id}: the store could not be reached for too long",
        "see what became of the question with: massmem sessions show",
    )


def check_replaced(session_id: str, replaces: int | None, last: int) -> None:
    """Raise SessionBusyError: the log that ends with the number `last` is not the one to be replaced."""
    if replaces not in (None, last):
        what = f"{session_id} was written to while it was to be replaced, and stays as it is"
        raise SessionBusyError(what, "run the same command again")


def turn_started_error() -> SessionBusyError:
    return SessionBusyError(
        "another process has started this turn of the session already", "wait until it has ended, then ask again"
    )
