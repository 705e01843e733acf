"""The memories of one owner, as every front end has them: to search as an agent does, to list, to trace, to forget."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from massmem.config.home import measure_disk_usage
from massmem.config.models import AgentConfig, TeamConfig
from massmem.core.errors import IndexDamaged, MemoryUnavailable
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, MessageRecord, Owner
from massmem.memory.ledger import Chain
from massmem.memory.opening import erase_in_other_indexes, index_root
from massmem.memory.persistent import USER, Memory, RecallOptions, RecallResult, Scope, Selection
from massmem.recording.forgetting import forget_memories
from massmem.session.erasure import Eraser
from massmem.session.owners import find_pinned_session, list_own_sessions, restrict_selection, restrict_to_owner
from massmem.session.recall import build_scope, list_conversations, recall_by_words
from massmem.session.team import Team
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

_MOST_SESSIONS = 1_000
"""Sessions of a user of the service that are searched, the last used."""


@dataclass(frozen=True, slots=True)
class View:
    """Who looks at the memories, from where, and when."""

    agent_id: str | None = None
    """None: what every agent may recall."""
    session_id: str | None = None
    """None: from any session of the owner."""
    turn: int | None = None
    """In this turn of the session; None: in the next one."""
    as_of: datetime | None = None
    """As if nothing had been said later."""
    origin: str | None = None
    """As in Selection."""


@dataclass(frozen=True, slots=True)
class Memories:
    """Ids of sessions are those of the store. All methods raise StoreError."""

    config: TeamConfig
    home: Path
    store: SessionStore
    open_index: Callable[[], AbstractAsyncContextManager["IndexedMemory"]]
    """Raises MemoryUnavailable: another process has it, or its server is away."""
    owner: Owner | Everybody
    """None: everybody."""
    agents: Sequence[AgentConfig] = ()
    """Those that recall from other sessions than the one of a view as their settings say; the others from that one."""

    @classmethod
    def of(cls, team: Team, owner: Owner) -> Self:
        """Return the memories of an owner on an open team."""
        agents = restrict_to_owner(team.agents, owner)
        return cls(team.config, team.home, team.store, team.open_durable_memory, owner, agents)

    async def search(
        self, query: str, view: View, limit: int | None = None, max_tokens: int | None = None
    ) -> tuple[RecallResult, str]:
        """Return what an agent recalls, and "" or why the index was not used, and the log was searched by words.

        limit, max_tokens: None: as configured.
        """
        settings, scope = self.config.memory.retrieval, await self._build_scope(view)
        options = RecallOptions(max_tokens or settings.max_tokens, limit or settings.limit)
        try:
            async with self.open_index() as index:
                return await index.recall(query, scope, options), ""
        except MemoryUnavailable as e:
            return await recall_by_words(self.store, query, scope, options), e.message

    async def read_history(self, query: str, view: View) -> Sequence[Chain]:
        """Return the values of what the query names, by topic, the best first. Raise MemoryUnavailable."""
        scope = await self._build_scope(view)
        async with self.open_index() as index:
            return await index.read_history(query, scope)

    async def _build_scope(self, view: View) -> Scope:
        scope = await self._find_scope(view.agent_id, view.session_id, view.turn)
        names = {agent.id: agent.display_name for agent in self.agents}
        return replace(scope, as_of=view.as_of, origin=view.origin, names=names)

    async def _find_scope(self, agent_id: str | None, session_id: str | None, turn: int | None) -> Scope:
        if session_id is None:
            everywhere = self.owner == COMMAND_LINE_USER
            others = () if everywhere else await list_own_sessions(self.store, self.owner, _MOST_SESSIONS)
            return Scope("", agent_id or USER, 1, all_sessions=everywhere, others=others)
        if turn is None:
            last = await self.store.get_last_turn(session_id)
            turn = 1 if last is None else last.turn + 1
        agent = next((agent for agent in self.agents if agent.id == agent_id), None)
        if agent is None or self.owner is EVERYBODY:
            return Scope(session_id, agent_id or USER, turn)
        pinned = await find_pinned_session(self.store, agent, self.owner)
        return build_scope(agent, session_id, turn, pinned)

    async def list_from_index(self, selection: Selection, limit: int, offset: int = 0) -> Sequence[Memory]:
        """Return memories, newest first. Raise MemoryUnavailable."""
        selection = await self._restrict(selection)
        async with self.open_index() as index:
            return await index.list(selection, limit, offset)

    async def list(self, selection: Selection, limit: int, offset: int = 0) -> tuple[Sequence[Memory], str]:
        """Return memories, newest first, and "" or why the index was not used: then they are what was said."""
        try:
            return await self.list_from_index(selection, limit, offset), ""
        except IndexDamaged:
            raise  # the user has to know: nothing but a rebuild mends it
        except MemoryUnavailable as e:
            spoken = await list_conversations(self.store, selection, self.owner, limit + offset)
            return spoken[offset:], e.message

    async def find(self, memory_id: str) -> Memory | None:
        """Return a memory of the owner; None: there is none with this id. Raise MemoryUnavailable."""
        return next(iter(await self.list_from_index(Selection(ids=(memory_id,)), 1)), None)

    async def read_sources(self, memory: Memory) -> Sequence[MessageRecord]:
        """Return the messages that the memory comes from."""
        return await self.store.get_messages(memory.message_ids)

    async def forget(self, selection: Selection) -> int:
        """Delete memories of the owner for good; return how many entries those were. Raise as `forget_memories`."""
        selection = await self._restrict(selection)
        async with self.open_index() as index:
            return await forget_memories(self.store, index, selection, self.config.memory, self.home)

    async def withdraw(self, index: "IndexedMemory", selection: Selection) -> None:
        """Delete the memories of turns that leave the log, from every index. The queue stays: it leaves with the log.

        Raises MemoryUnavailable.
        """
        await index.forget(selection)
        root = index_root(self.config.memory, self.home)
        await erase_in_other_indexes(root, index.folder, selection, ())

    @asynccontextmanager
    async def open_eraser(self) -> AsyncGenerator[Eraser]:
        """Yield what forgets statements in everything of the owner. Raise MemoryUnavailable."""
        async with self.open_index() as index:
            yield Eraser(self.config, self.home, Path.cwd(), self.store, index, self.owner)

    async def measure(self) -> int | None:
        """Return the bytes of the indexes on this machine's disk; None: a server has them."""
        config = self.config.memory
        if config.persistent_memory.qdrant.mode == "server":
            return None
        return await asyncio.to_thread(measure_disk_usage, index_root(config, self.home))

    async def _restrict(self, selection: Selection) -> Selection:
        """Return the selection without the sessions of other owners; one that names a session stays as it is."""
        return selection if selection.session_id else await restrict_selection(self.store, selection, self.owner)
