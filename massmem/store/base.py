"""The port to where sessions live."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from massmem.events import Event
from massmem.memory.memories import Selection
from massmem.records import (
    MessageRecord,
    RecordingCounts,
    RecordingKind,
    RecordingRecord,
    SessionRecord,
    TurnRecord,
)


class SessionStore(Protocol):
    """An append-only log of events per session, with the tables that are derived from it.

    Every write is one transaction that is durable when the call returns.

    Raises (all methods): StoreError and its subclasses.
    """

    async def create_session(self, session: SessionRecord) -> None:
        """Raises SessionExistsError when the id is taken."""
        ...

    async def get_session(self, session_id: str) -> SessionRecord | None: ...

    async def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionRecord]:
        """Newest first by creation."""
        ...

    async def append(self, session_id: str, turn: int, events: Sequence[Event]) -> list[int]:
        """Store events in order and, in the same transaction, what they mean for the tables.

        Returns the sequence number of each event, growing within the session.
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

    async def latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        """What stands for the oldest messages in this agent's view; metadata["until"]: the seq of the last of them."""
        ...

    async def messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        """Everything in the log, oldest first, with seq > after."""
        ...

    async def messages_by_id(self, ids: Sequence[str]) -> list[MessageRecord]:
        """Those of the messages that exist, oldest first within a session."""
        ...

    async def turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        """Everything that was said in one turn, oldest first."""
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

    async def finish_recordings(self, recordings: Sequence[RecordingRecord], reason: str | None = None) -> None:
        """They are done. reason: why there was nothing to do."""
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

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        """Never record again what the selection names (its `ids` aside), with message_ids only these messages."""
        ...

    async def close(self) -> None: ...
