"""The memory of one session at work: opened beside the first answers, fed by the recorder, asked by the agents."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import AgentConfig, BackendConfig, MemoryConfig, MemoryLlmConfig
from massmem.errors import MassmemError, MemoryUnavailable
from massmem.events import now
from massmem.memory import open_memory
from massmem.memory.extraction.debug import debug_record, write_debug
from massmem.memory.extraction.task import Extraction, Origin, RecordedMessage
from massmem.memory.memories import USER, Memory, Recalled, Wanted
from massmem.memory.persistent import PersistentMemory, Scope
from massmem.memory.quoting import Quote, render
from massmem.memory.recording.recorded import spoken
from massmem.memory.recording.worker import Extract, Recorder
from massmem.memory.tokens import estimate_tokens
from massmem.providers import Providers

if TYPE_CHECKING:
    from massmem.records import MessageRecord
    from massmem.store.base import SessionStore

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
        self._opening: asyncio.Task[PersistentMemory | None] | None = None
        self._recorder: Recorder | None = None
        self._stack = AsyncExitStack()
        self._notices: list[str] = []

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
        # A session's first turn has nothing to remember, unless other sessions are searched too.
        if self._opening is None or (scope.turn == 1 and not scope.everywhere and scope.named is None):
            return ""
        settings = agent.memory.retrieval
        wanted = Wanted(
            min(settings.max_tokens, most), settings.limit, shown if settings.exclude_recent else frozenset()
        )
        memory = await asyncio.shield(self._opening)
        try:
            if memory is not None and self._recorder is not None:
                await self._recorder.caught_up(scope.session_id, CATCH_UP)
                return (await memory.recall(question, scope, wanted)).text
        except MemoryUnavailable as e:
            self._say(f"{e.message}; memories are found by words alone for now")
        try:
            return (await by_words(self._store, question, scope, wanted)).text
        except MassmemError as e:
            self._say(f"nothing could be recalled: {e.message}")
            return ""

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

    async def _open(self) -> PersistentMemory | None:
        try:
            memory = await open_memory(self._config, self._home, os.environ)
            extract = await self._stack.enter_async_context(extractor(self._config.persistent_memory.llm, self._home))
        except MassmemError as e:
            self._say(f"{e.message}; what is said now is remembered by a later run")
            return None
        settings = {agent.id: agent.memory.recording for agent in self._agents}
        if extract is not None and self._debug is not None:
            extract = _kept(extract, self._debug)
        self._recorder = Recorder(self._store, memory, extract, settings)
        self._recorder.start()
        return memory

    def _say(self, text: str) -> None:
        log.warning("%s", text)
        if text not in self._notices:
            self._notices.append(text)


@asynccontextmanager
async def extractor(llm: MemoryLlmConfig | None, home: Path) -> AsyncGenerator[Extract | None]:
    """Asks the configured model for facts; None when none is configured: then messages are all that is remembered.

    Raises:
        InputError: the provider is unknown, or its package is not installed.
    """
    if llm is None:
        yield None
        return
    from massmem.memory.extraction.mem0 import OUR_PROVIDERS, Mem0Extractor

    async with AsyncExitStack() as stack:
        chat = None
        if llm.provider in OUR_PROVIDERS:
            providers = Providers()
            stack.push_async_callback(providers.close)
            chat = await providers.open(BackendConfig.model_validate({"type": llm.provider, "model": llm.model or ""}))
        found = Mem0Extractor(llm, home, os.environ, chat=chat)
        stack.push_async_callback(found.close)
        yield found.extract


def _kept(extract: Extract, folder: Path) -> Extract:
    """The same, and each extraction is written to a debug file."""

    async def kept(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        result = Extraction()
        try:
            result = await extract(messages, origin)
        finally:  # an extraction that fails is the one that somebody wants to look at
            record = debug_record(messages, origin, result.facts, now())
            try:
                await asyncio.to_thread(write_debug, folder, 1, record)
            except MassmemError as e:
                log.warning("no debug file of this extraction: %s", e.message)
        return result

    return kept


async def by_words(store: "SessionStore", query: str, scope: Scope, wanted: Wanted) -> Recalled:
    """Recall from the log itself, for when the index cannot be used: best word matches first, until the budget is full.

    Raises:
        StoreError: the log cannot be read.
    """
    sessions = None if scope.everywhere else [scope.session_id]
    messages = await store.search_text(query, sessions, _BY_WORDS)
    won = await store.winners(list({m.session_id for m in messages}))
    chosen: list[Memory] = []
    left = wanted.tokens
    for message in messages:
        memory = _as_memory(message)
        allowed = scope.allows(memory, won=won.get((memory.session_id, memory.turn)) == memory.agent_id)
        cost = estimate_tokens(render([Quote(memory)], scope.agent_id))
        if not allowed or message.id in wanted.without or cost > left:
            continue
        chosen.append(memory)
        left -= cost
        if len(chosen) == wanted.limit:
            break
    in_order = sorted(chosen, key=lambda m: (m.created_at, m.id))
    text = render([Quote(m) for m in in_order], scope.agent_id)
    return Recalled(text, tuple(chosen), wanted.tokens - left, lexical_only=True)


def _as_memory(m: "MessageRecord") -> Memory:
    return Memory(m.id, "episode", m.session_id, m.turn, m.agent_id or USER, spoken(m), (m.id,), m.created_at)


def _scope(agent: AgentConfig, session_id: str, turn: int) -> Scope:
    persistent = agent.memory.persistent_memory
    return Scope(session_id, agent.id, turn, everywhere=persistent.all_sessions, named=persistent.session_name)
