"""The memories of one user: to search as an agent does, to list, to trace to their messages, to forget."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from massmem.config.home import measure_disk_usage
from massmem.core.errors import IndexDamaged, MemoryUnavailable
from massmem.core.records import COMMAND_LINE_USER, MessageRecord, Owner, SessionFilter
from massmem.memory.ledger import Chain
from massmem.memory.opening import index_root
from massmem.memory.persistent import USER, Memory, RecallOptions, RecallResult, Scope, Selection
from massmem.recording.forgetting import forget_everywhere
from massmem.session.erasure import Eraser
from massmem.session.owners import find_pinned_session, restrict_to_owner
from massmem.session.recall import build_scope, list_conversations, recall_by_words
from massmem.session.receipt import Receipt
from massmem.session.team import Team

_MOST_SESSIONS = 1_000
"""Sessions of a user of the service that are searched, the last used."""


@dataclass(frozen=True, slots=True)
class Results:
    """Memories, and what the user should know of them."""

    memories: Sequence[Memory]
    notice: str = ""
    """Why the index was not used; "": it was."""


@dataclass(frozen=True, slots=True)
class View:
    """Who looks at the memories, from where, and when."""

    agent_id: str | None
    """None: what every agent may recall."""
    session_id: str | None
    """None: from any session of the user."""
    turn: int | None = None
    """In this turn of the session; None: in the next one."""
    as_of: datetime | None = None
    """As if nothing had been said later."""
    origin: str | None = None
    """As in Selection."""


class Memories:
    """Ids of sessions are those of the store."""

    def __init__(self, team: Team, sub: str | None) -> None:
        """sub: the user; None: this machine's user."""
        self._team = team
        self._sub = sub
        self._owner = Owner(sub)

    async def search(self, query: str, view: View, limit: int) -> RecallResult:
        """Return what an agent recalls. Raises StoreError."""
        scope = await self._build_scope(view)
        options = RecallOptions(self._team.config.memory.retrieval.max_tokens, limit)
        try:
            async with self._team.open_durable_memory() as memory:
                return await memory.recall(query, scope, options)
        except MemoryUnavailable:
            return await recall_by_words(self._team.store, query, scope, options)

    async def read_history(self, query: str, view: View) -> Sequence[Chain]:
        """Return the values of what the query names, by topic, the best first. Raise MemoryUnavailable, StoreError."""
        scope = await self._build_scope(view)
        async with self._team.open_durable_memory() as memory:
            return await memory.read_history(query, scope)

    async def _build_scope(self, view: View) -> Scope:
        scope = await self._find_scope(view.agent_id, view.session_id, view.turn)
        return replace(scope, as_of=view.as_of, origin=view.origin)

    async def _find_scope(self, agent_id: str | None, session_id: str | None, turn: int | None) -> Scope:
        team = self._team
        if session_id is None:
            everywhere = self._owner == COMMAND_LINE_USER
            others = () if everywhere else await self._list_session_ids()
            return Scope("", agent_id or USER, 1, all_sessions=everywhere, others=others)
        if turn is None:
            last = await team.store.get_last_turn(session_id)
            turn = 1 if last is None else last.turn + 1
        agents = restrict_to_owner(team.agents, self._sub)
        agent = next((agent for agent in agents if agent.id == agent_id), None)
        if agent is None:
            return Scope(session_id, agent_id or USER, turn)
        pinned = await find_pinned_session(team.store, agent, self._sub)
        return build_scope(agent, session_id, turn, pinned)

    async def list(self, selection: Selection, limit: int, offset: int = 0) -> Results:
        """Return memories, newest first; what was said, when the index cannot be used. Raise StoreError."""
        try:
            async with self._team.open_durable_memory() as memory:
                return Results(await memory.list(await self._restrict(selection), limit, offset))
        except IndexDamaged:
            raise
        except MemoryUnavailable as e:
            spoken = await list_conversations(self._team.store, selection, self._owner, limit + offset)
            notice = f"{e.message}: this is what was said; facts are in the index alone"
            return Results(spoken[offset:], notice)

    async def find(self, memory_id: str) -> Memory | None:
        """Return a memory of the user; None: there is none with this id. Raise MemoryUnavailable, StoreError."""
        async with self._team.open_durable_memory() as memory:
            named = await memory.list(Selection(ids=(memory_id,)), 1)
        if not named:
            return None
        session = await self._team.store.get_session(named[0].session_id)
        return named[0] if session is not None and session.user_id == self._sub else None

    async def read_sources(self, memory: Memory) -> Sequence[MessageRecord]:
        """Return the messages that the memory comes from. Raise StoreError."""
        return await self._team.store.get_messages(memory.message_ids)

    async def forget(self, memory: Memory) -> int:
        """Delete the memory for good; return how many entries that were. Raise MemoryUnavailable, StoreError."""
        team = self._team
        async with team.open_durable_memory() as index:
            return await forget_everywhere(
                team.store, index, Selection(ids=(memory.id,)), team.config.memory, team.home
            )

    async def forget_statement(self, memory: Memory) -> Receipt:
        """Forget what the memory says in everything of the user. Raise SessionBusyError and as `forget`."""
        team = self._team
        async with team.open_durable_memory() as index:
            eraser = Eraser(team.config, team.home, Path.cwd(), team.store, index, self._owner)
            return await eraser.erase(await eraser.read_orders([memory.id], ()))

    async def measure(self) -> int | None:
        """Return the bytes of the indexes on this machine's disk; None: a server has them."""
        config = self._team.config.memory
        if config.persistent_memory.qdrant.mode == "server":
            return None
        return await asyncio.to_thread(measure_disk_usage, index_root(config, self._team.home))

    async def _restrict(self, selection: Selection) -> Selection:
        """Return the selection without the sessions of other users."""
        if selection.session_id is not None:
            return selection
        of_owner = SessionFilter(owner=self._owner)
        store = self._team.store
        everybody, own = await store.count_sessions(SessionFilter()), await store.count_sessions(of_owner)
        if everybody.sessions == own.sessions:
            return selection
        # Without any session nothing may match: no session has an empty id.
        return replace(selection, session_ids=await self._list_session_ids() or ("",))

    async def _list_session_ids(self) -> tuple[str, ...]:
        of_owner = SessionFilter(owner=self._owner, has_messages=True)
        listed = await self._team.store.find_sessions(of_owner, _MOST_SESSIONS)
        return tuple(entry.session.session_id for entry in listed)
