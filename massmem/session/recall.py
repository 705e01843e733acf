"""The memory of one session at work: opened beside the first answers, fed by the recorder, asked by the agents."""

import asyncio
import logging
import os
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import AgentConfig, MemoryConfig, RetrievalConfig
from massmem.core.errors import MassmemError, MemoryUnavailable
from massmem.memory import open_memory
from massmem.memory.access import may_see
from massmem.memory.extraction.extractor import Extractor, failing_extractor, open_extractor, with_debug_files
from massmem.memory.persistent import USER, Memory, PersistentMemory, RecallOptions, RecallResult, Scope, Selection
from massmem.memory.quoting import Quote, render
from massmem.memory.tokens import estimate_tokens
from massmem.recording.masking import without_values
from massmem.recording.rules import is_ballot, is_tool_use, spoken
from massmem.recording.worker import Recorder

if TYPE_CHECKING:
    from massmem.core.records import MessageRecord
    from massmem.memory.indexed import IndexedMemory
    from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

CATCH_UP = 2.0
"""Most seconds that a question waits for what was said before it to become searchable."""

_BY_WORDS = 50


class SessionMemory:
    """Never fails a turn: what cannot be recalled or recorded now is left for later, and `take_notices` says so."""

    def __init__(
        self,
        config: MemoryConfig,
        home: Path,
        store: "SessionStore",
        agents: tuple[AgentConfig, ...],
        debug: Path | None = None,
    ) -> None:
        """debug: the folder of this run's debug files; None: none are written."""
        self.enabled = config.enabled and config.persistent_memory.enabled
        self._config = config
        self._home = home
        self._store = store
        self._agents = agents
        self._debug = debug
        self._opening: asyncio.Task[IndexedMemory | None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None
        self._stack = AsyncExitStack()
        self._notices: list[str] = []
        self._said: set[str] = set()

    def start(self) -> None:
        """Begin to open the memory and to record what is due; returns at once."""
        if self.enabled:
            self._opening = asyncio.create_task(self._open())

    def wake(self) -> None:
        """Something new is in the queue."""
        if self._recorder is not None:
            self._recorder.wake()

    async def recall(
        self, agent: AgentConfig, question: str, place: tuple[str, int], shown: frozenset[str], most: int
    ) -> str:
        """The lines that bear on the question, for this agent. place: the session's id and the turn.

        shown: ids of the messages that the agent is sent verbatim. most: tokens that its context has room for.
        """
        scope = _scope(agent, *place)
        if self._opening is None:
            return ""
        try:
            if await self._nothing_before(scope):
                return ""
            memory = await asyncio.shield(self._opening)
            wanted = await self._wanted(agent.memory.retrieval, shown, most)
            return (await self._found(memory, question, scope, wanted)).text
        except MassmemError as e:
            self._say(f"nothing could be recalled: {e.message}")
            return ""

    async def forget(self, session_id: str) -> None:
        """Delete what is remembered of a session. Raises MemoryUnavailable: it may still be there."""
        if self._opening is None:
            return
        memory = await asyncio.shield(self._opening)
        if memory is None:
            raise MemoryUnavailable("the memory is not open in this process")
        await memory.forget(Selection(session_id=session_id))

    async def opened(self) -> "IndexedMemory | None":
        """What is recalled from and recorded to; None when it is off, or could not be opened."""
        return None if self._opening is None else await asyncio.shield(self._opening)

    @property
    def trouble(self) -> str:
        """Why nothing is remembered now, "" when it is, or when nothing is to be."""
        if self._opening is None or not self._opening.done() or self._opening.result() is not None:
            return ""
        return "the memory could not be opened"

    def take_notices(self) -> list[str]:
        """What the user should be told, each once."""
        notices, self._notices = self._notices, []
        return notices

    async def close(self, seconds: float) -> None:
        """Record what is due for `seconds` at most; the rest stays queued for the next run."""
        if self._opening is None:
            return
        memory = await self._opening
        if self._recorder is not None:
            await self._recorder.stop(seconds)
        await self._stack.aclose()
        if memory is not None:
            await memory.close()
        if self._warming is not None:
            await self._warming  # closing has ended it

    async def _nothing_before(self, scope: Scope) -> bool:
        """A session's first turn has nothing to remember but notes, unless other sessions are searched too."""
        if scope.turn > 1 or scope.all_sessions or scope.group is not None:
            return False
        first = await self._store.read_messages(scope.session_id, limit=1)
        return not first or first[0].turn == scope.turn

    async def _wanted(self, settings: RetrievalConfig, shown: frozenset[str], most: int) -> RecallOptions:
        without: frozenset[str] = frozenset()
        if settings.exclude_recent and shown:
            # An answer that was shown as it is stands in the log a second time, under another id.
            without = shown.union(await self._store.find_repeated_answers([*shown]))
        return RecallOptions(min(settings.max_tokens, most), settings.limit, without)

    async def _found(
        self, memory: PersistentMemory | None, question: str, scope: Scope, wanted: RecallOptions
    ) -> RecallResult:
        try:
            if memory is not None and self._recorder is not None:
                await self._recorder.catch_up(scope.session_id, CATCH_UP)
                return await memory.recall(question, scope, wanted)
        except MemoryUnavailable as e:
            self._say(f"{e.message}; memories are found by words alone for now")
        return await by_words(self._store, question, scope, wanted)

    async def _open(self) -> "IndexedMemory | None":
        try:
            memory = await open_memory(self._config, self._home, os.environ)
        except MassmemError as e:
            self._say(f"{e.message}; what is said now is remembered by a later run")
            return None
        if memory.note:
            self._say(memory.note)
        opening = open_extractor(self._config.persistent_memory.llm, self._home, memory.known())
        try:
            extractor = await self._stack.enter_async_context(opening)
        except MassmemError as e:
            self._say(f"{e.message}; until then messages are remembered word for word, and no facts")
            extractor = failing_extractor(e)
        if extractor is not None and self._debug is not None:
            extractor = with_debug_files(extractor, self._debug)
        self._recorder = recorder(self._store, memory, extractor, self._agents)
        self._recorder.start()
        self._warming = asyncio.create_task(memory.warm())
        return memory

    def _say(self, text: str) -> None:
        if text not in self._said:
            log.warning("%s", text)
            self._said.add(text)
            self._notices.append(text)


def recorder(
    store: "SessionStore",
    memory: PersistentMemory,
    extractor: Extractor | None,
    agents: Iterable[AgentConfig],
    session_id: str | None = None,
) -> Recorder:
    """Records with what is configured for each agent. extractor None: messages only. session_id None: all sessions."""
    settings = {agent.id: agent.memory.recording for agent in agents}
    extract, summarise = (extractor.extract, extractor.summarise) if extractor else (None, None)
    return Recorder(store, memory, extract, settings, session_id, summarise)


async def by_words(store: "SessionStore", query: str, scope: Scope, wanted: RecallOptions) -> RecallResult:
    """Recall from the log itself, for when the index cannot be used: best word matches first, until the budget is full.

    Raises:
        StoreError: the log cannot be read.
    """
    sessions = None if scope.all_sessions else [scope.session_id]
    hits = [message.id for message in await store.search_messages(query, sessions, _BY_WORDS)]
    found = {each.message.id: each for each in await store.get_messages_to_record(hits)}
    messages = without_values(found[hit] for hit in hits if hit in found)
    chosen: list[Memory] = []
    left = wanted.max_tokens
    for message in messages:
        if is_tool_use(message):
            continue
        memory = _as_memory(message)
        shared = not is_ballot(message) and found[message.id].winner == memory.agent_id
        allowed = may_see(scope, memory, won=shared)
        cost = estimate_tokens(render([Quote(memory)], scope.agent_id))
        if not allowed or message.id in wanted.exclude or cost > left:
            continue
        chosen.append(memory)
        left -= cost
        if len(chosen) == wanted.limit:
            break
    in_order = sorted(chosen, key=lambda m: (m.created_at, m.id))
    text = render([Quote(m) for m in in_order], scope.agent_id)
    return RecallResult(text, tuple(chosen), wanted.max_tokens - left, lexical_only=True)


def _as_memory(m: "MessageRecord") -> Memory:
    return Memory(m.id, "episode", m.session_id, m.turn, m.agent_id or USER, spoken(m), (m.id,), m.created_at)


def _scope(agent: AgentConfig, session_id: str, turn: int) -> Scope:
    persistent = agent.memory.persistent_memory
    return Scope(session_id, agent.id, turn, all_sessions=persistent.all_sessions, group=persistent.session_name)
