"""The port to where sessions live."""

from collections.abc import Sequence
from typing import Protocol

from massmem.events import Event
from massmem.records import MessageRecord, SessionRecord, TurnRecord


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

    async def messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        """Everything in the log, oldest first, with seq > after."""
        ...

    async def close(self) -> None: ...
