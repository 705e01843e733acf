"""The conversations of one user: to find, read, list, count and delete. Those of others do not exist.

Users name their sessions. The stored id begins with a hash of the owner: two users may give the same name, and no
response tells whether somebody else has given it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from massmem.core.errors import MassmemError, SessionBusyError, UnknownSessionError
from massmem.core.records import ListedSession, MessageRecord, Owner, SessionFilter, SessionRecord
from massmem.server.schemas import is_session_id
from massmem.server.turns import Turns
from massmem.session.delete import delete_contents
from massmem.session.lease import hold_lease
from massmem.session.owners import owner_hash
from massmem.session.team import Team

log = logging.getLogger(__name__)

MAX_MESSAGES = 10_000
"""Messages of a conversation that is read whole."""

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A page of a list of conversations."""

    sessions: list[ListedSession]
    agents: dict[str, list[str]]
    """The names of the agents that answered in each, by the session's id."""
    total: int
    """The length of the whole list."""


@dataclass(frozen=True, slots=True)
class Totals:
    """How much there is."""

    conversations: int
    messages: int


class Conversations:
    """The sessions of a store as their owners see them."""

    def __init__(self, team: Team, turns: Turns) -> None:
        self._team = team
        self._store = team.store
        self._turns = turns
        self._must_erase = False
        """The files of the store may still hold bytes of deleted sessions."""

    async def find(self, owner: str, session_id: str) -> SessionRecord:
        """Return the user's session. Raise UnknownSessionError, always with the same message; StoreError."""
        if is_session_id(session_id):
            session = await self._store.get_session(to_stored_id(owner, session_id))
            if session is not None and session.user_id == owner and session.status != "deleting":
                return session
        raise UnknownSessionError("Session not found")

    async def read(self, session: SessionRecord, limit: int = MAX_MESSAGES) -> list[MessageRecord]:
        """Return the newest questions and final answers of the session, oldest first. Raise StoreError."""
        messages: list[MessageRecord] = []
        before: int | None = None
        while len(messages) < limit:
            size = min(_PAGE, limit - len(messages))
            page = await self._store.read_conversation(session.session_id, before, size)
            messages += page
            if len(page) < size:
                break
            before = page[-1].seq
        return messages[::-1]

    async def list_page(self, owner: str, limit: int, offset: int) -> ConversationPage:
        """Return the user's conversations from number `offset` on, the last used first. Raise StoreError."""
        of_owner = SessionFilter(owner=Owner(owner), has_messages=True)
        sessions = await self._store.find_sessions(of_owner, limit, offset)
        winners = await self._store.get_winner_names([listed.session.session_id for listed in sessions])
        agents: dict[str, dict[str, None]] = {listed.session.session_id: {} for listed in sessions}
        for (session_id, _), winner in sorted(winners.items()):
            agents[session_id][winner] = None
        return ConversationPage(
            [listed for listed in sessions if listed.session.status != "deleting"],
            {session_id: list(names) for session_id, names in agents.items()},
            (await self._store.count_sessions(of_owner)).sessions,
        )

    async def list_ids(self, owner: str) -> list[str]:
        """Return the ids of all sessions of the user, the last used first. Raise StoreError."""
        sessions = await self._store.find_sessions(SessionFilter(owner=Owner(owner), has_messages=True))
        return [
            public_session_id(listed.session.session_id) for listed in sessions if listed.session.status != "deleting"
        ]

    async def count(self, owner: str | None) -> Totals:
        """Count what one user has, or with None all users. Raise StoreError."""
        of_owner = SessionFilter(owner=None if owner is None else Owner(owner), has_messages=True)
        sessions = (await self._store.count_sessions(of_owner)).sessions
        return Totals(sessions, await self._store.count_messages(of_owner))

    async def delete(self, session: SessionRecord) -> None:
        """Delete the session and what is remembered of it. When that fails half-way, `finish_deletions` goes on.

        Raises:
            SessionBusyError: A turn of it is under way.
            StoreError: The session could not be marked as being deleted.
        """
        if self._turns.is_running(session.session_id):
            raise SessionBusyError("a question to this session is under way")
        async with hold_lease(self._store, self._team.process, session.session_id):
            await self._store.delete_session(session.session_id, 0)
        try:
            await self._erase(session)
        except MassmemError as e:
            log.warning("the rest of a deleted session will be erased later: %s", e.message)

    async def finish_deletions(self) -> None:
        """Erase what is left of deleted sessions, also of those that another process began. Raise StoreError."""
        for listed in await self._store.find_sessions(SessionFilter(status="deleting")):
            try:
                await self._erase(listed.session)
            except SessionBusyError:
                continue  # another process erases it
        if self._must_erase and await self._store.erase_deleted():
            self._must_erase = False

    async def _erase(self, session: SessionRecord) -> None:
        async def erase_memories(session_ids: Sequence[str]) -> int:
            for session_id in session_ids:
                await self._team.memory.forget(session_id)
            return 0  # nobody asks how many there were

        async with hold_lease(self._store, self._team.process, session.session_id):
            await delete_contents(self._store, [session], erase_memories)
        self._must_erase = True


def to_stored_id(owner: str, session_id: str) -> str:
    """Return the id under which the store knows a session of the user."""
    return f"{owner_hash(owner)}.{session_id}"


def public_session_id(stored_id: str) -> str:
    """Return the id under which its user knows a stored session."""
    return stored_id.partition(".")[2]


def list_agents(messages: Sequence[MessageRecord]) -> list[str]:
    """Return the names of the agents that answered, in the order of their first answers."""
    return list(dict.fromkeys(m.agent_name for m in messages if m.agent_name and m.kind != "user"))
