"""The sessions of one user, as that user names them; those of others do not exist.

The store's name of a session begins with a hash of whose it is. Two users may give the same name, and nobody can
tell from an answer whether somebody else has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from massmem.errors import UnknownSessionError
from massmem.records import ListedSession, SessionFilter, SessionRecord
from massmem.server.schemas import is_session_id
from massmem.session.new_session import owner_hash
from massmem.store.base import Said, SessionStore

MOST_SHOWN = 10_000
"""Messages of a conversation that is read whole."""

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """Conversations with the agents that answered in each. total: of all."""

    sessions: list[ListedSession]
    agents: dict[str, list[str]]
    total: int


@dataclass(frozen=True, slots=True)
class Totals:
    conversations: int
    messages: int


class Conversations:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def session(self, sub: str, name: str) -> SessionRecord:
        """Raises UnknownSessionError, always the same; StoreError."""
        if is_session_id(name):
            found = await self._store.get_session(stored_name(sub, name))
            if found is not None and found.user_id == sub and found.status != "deleting":
                return found
        raise UnknownSessionError("Session not found")

    async def newest(self, sub: str, name: str, limit: int = MOST_SHOWN) -> list[Said]:
        """The newest messages of the conversation, oldest first: what the user said, and what was answered.

        Raises UnknownSessionError, StoreError.
        """
        found: list[Said] = []
        before: int | None = None
        while len(found) < limit and is_session_id(name):
            wanted = min(_PAGE, limit - len(found))
            page = await self._store.said(stored_name(sub, name), sub, before, wanted)
            found += page
            if len(page) < wanted:
                break
            before = page[-1].seq
        if not found:
            await self.session(sub, name)
        return found[::-1]

    async def page(self, sub: str, limit: int, offset: int) -> Page:
        wanted = SessionFilter(owner=sub)
        found = await self._store.find_sessions(wanted, limit, offset)
        winners = await self._store.winners([each.session.session_id for each in found])
        agents: dict[str, dict[str, None]] = {each.session.session_id: {} for each in found}
        for (session_id, _), winner in sorted(winners.items()):
            agents[session_id][winner] = None
        alive = [each for each in found if each.session.status != "deleting"]
        total = (await self._store.session_counts(wanted)).sessions
        return Page(alive, {name: [*names] for name, names in agents.items()}, total)

    async def totals(self, sub: str | None) -> Totals:
        """Of one user, or with None of all."""
        wanted = SessionFilter(owner=sub)
        return Totals((await self._store.session_counts(wanted)).sessions, await self._store.count_said(wanted))

    async def names(self, sub: str) -> list[str]:
        """All of the user's sessions, the last used first."""
        found = await self._store.find_sessions(SessionFilter(owner=sub))
        return [user_name(each.session.session_id) for each in found if each.session.status != "deleting"]


def stored_name(sub: str, name: str) -> str:
    return f"{owner_hash(sub)}.{name}"


def user_name(stored: str) -> str:
    return stored.partition(".")[2]


def agents_used(messages: Sequence[Said]) -> list[str]:
    """Those that answered, in the order in which they did first."""
    return list(dict.fromkeys(m.agent_id for m in messages if m.agent_id and m.kind != "user"))
