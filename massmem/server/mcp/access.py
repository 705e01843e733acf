"""What the tools work with: the sessions of one user, and a way to ask the council."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from massmem.core.errors import MassmemError
from massmem.core.events import Event
from massmem.core.records import COMMAND_LINE_USER, ListedSession, MessageRecord, Owner, SessionFilter, SessionRecord
from massmem.memory.persistent import RecallResult
from massmem.session.memories import Memories, View
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.store.lookup import require_own_session

NOTES = "notes"
"""The session of notes that belong to no other session."""


class Access(Protocol):
    """The council, as one user has it."""

    team: Team
    owner: Owner

    def to_stored_id(self, session_id: str) -> str:
        """Return the id under which the store knows a session of the user. Raise InputError: it cannot be an id."""
        ...

    def to_public_id(self, stored_id: str) -> str: ...

    def ask(self, question: str, session_id: str | None) -> AsyncGenerator[Event, None]:
        """Ask, and yield the events of the turn, with the id of the session as its user knows it.

        When nobody takes them to the end, the turn is stopped for good.

        session_id: as its user knows it; None: a new session. Raises as `Session.ask`.
        """
        ...


async def find_session(access: Access, session_id: str) -> SessionRecord:
    """Return a session of the user. Raise UnknownSessionError, with the same message for those of others."""
    return await require_own_session(access.team.store, access.to_stored_id(session_id), access.owner)


async def list_sessions(access: Access, limit: int) -> list[ListedSession]:
    """Return the user's sessions, the last used first. Raise StoreError."""
    of_owner = SessionFilter(owner=access.owner, has_messages=True)
    listed = await access.team.store.find_sessions(of_owner, limit)
    return [entry for entry in listed if entry.session.status != "deleting"]


async def read_messages(access: Access, session_id: str, limit: int) -> list[MessageRecord]:
    """Return the newest questions and final answers of a session, oldest first. Raise UnknownSessionError."""
    session = await find_session(access, session_id)
    return (await access.team.store.read_conversation(session.session_id, None, limit))[::-1]


async def search_memories(access: Access, query: str, limit: int) -> RecallResult:
    """Return what every agent may recall of the user's sessions. Raise StoreError."""
    recalled, _ = await Memories.of(access.team, access.owner).search(query, View(), limit)
    return recalled


async def remember(access: Access, text: str, session_id: str | None) -> str:
    """Store a note in a session of the user, by default in that of notes; return the session. Raise as `remember`."""
    name = session_id or NOTES
    stored_id = access.to_stored_id(name)
    record = await access.team.store.get_session(stored_id)
    if session_id is not None or record is not None:
        record = await find_session(access, name)
    session = Session(access.team, record, session_id=stored_id, owner=access.owner)
    try:
        await session.remember(text)
    finally:
        await session.close()
    await access.team.memory.catch_up(stored_id)  # who notes something expects to find it
    return name


class LocalAccess:
    """The council of the command line's user."""

    owner = COMMAND_LINE_USER

    def __init__(self, team: Team) -> None:
        self.team = team
        self._tasks: set[asyncio.Task[None]] = set()

    def to_stored_id(self, session_id: str) -> str:
        return session_id

    def to_public_id(self, stored_id: str) -> str:
        return stored_id

    async def ask(self, question: str, session_id: str | None) -> AsyncGenerator[Event, None]:
        record = None if session_id is None else await find_session(self, session_id)
        session = Session(self.team, record, owner=self.owner)
        queue = asyncio.Queue[Event | MassmemError | None]()

        async def run() -> None:
            try:
                async with aclosing(session.ask(question)) as events:
                    async for event in events:
                        queue.put_nowait(event)
                queue.put_nowait(None)
            except MassmemError as e:
                queue.put_nowait(e)
            finally:
                await session.close()

        # Apart from the request: what cancels that must not keep the turn from storing that it was stopped.
        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, MassmemError):
                    raise item
                yield item
        finally:
            session.stop("user")

    async def close(self) -> None:
        """Wait until the turns that were stopped have stored that."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
