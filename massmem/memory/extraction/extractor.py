"""The port of extraction: messages in, facts out. Opens the configured model, and limits what an extraction costs."""

import asyncio
import importlib
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import (
    ContentRefused,
    ContextOverflow,
    InputError,
    MalformedResponse,
    MassmemError,
    ProviderTimeout,
)
from massmem.core.events import now
from massmem.core.messages import Reply
from massmem.memory.extraction.debug import make_debug_record, write_debug
from massmem.memory.extraction.messages import (
    Chunk,
    Extraction,
    KnownFacts,
    Origin,
    RecordedMessage,
    halve,
    list_message_ids,
    make_fact,
    split_into_chunks,
)
from massmem.memory.extraction.models import Bounds, MemoryModel, open_model
from massmem.memory.extraction.summaries import summarize_result
from massmem.memory.mem0_setup import prepare_mem0
from massmem.memory.persistent import Fact
from massmem.providers import Providers

if TYPE_CHECKING:
    from massmem.memory.extraction.mem0 import ChunkFacts, Reader

log = logging.getLogger(__name__)

Extract = Callable[[Sequence[RecordedMessage], Origin], Awaitable[Extraction]]
"""Asks a model for the facts in messages. Raises MassmemError."""

Summarize = Callable[[str, str | None], Awaitable[str]]
"""Summarises a text with the named model, None for the one that extracts. Raises MassmemError."""


@dataclass(frozen=True, slots=True)
class Extractor:
    """What a model does for the memory."""

    extract: Extract
    summarize: Summarize
    """Shortens the large result of a tool."""


@asynccontextmanager
async def open_extractor(
    llm: MemoryLlmConfig | None, home: Path, known: KnownFacts | None = None, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[Extractor | None]:
    """Open the configured model; yield None when none is configured: then messages are all that is remembered.

    home: folder of massmem's own files. known: what the memory holds, so that the model is shown it and does not say
    it again.

    Raises:
        InputError: the model cannot be used: see models.open_model.
    """
    if llm is None:
        yield None
        return
    providers = Providers()
    models: dict[str | None, MemoryModel] = {}

    async def open_named(name: str | None) -> MemoryModel:
        if name not in models:
            config = llm if name is None else llm.model_copy(update={"model": name})
            models[name] = await open_model(config, providers, home, environ, Bounds())
        return models[name]

    async def summarize(text: str, name: str | None) -> str:
        return await summarize_result(await open_named(name), text)

    try:
        yield Extractor(FactExtractor(await open_named(None), home, known).extract, summarize)
    finally:
        await providers.close()


def failing_extractor(error: MassmemError) -> Extractor:
    """Return an extractor for a model that could not be opened: facts wait in the queue, and each attempt says why."""

    async def extract(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        raise error

    async def summarize(text: str, name: str | None) -> str:
        raise error

    return Extractor(extract, summarize)


def with_debug_files(extractor: Extractor, folder: Path) -> Extractor:
    """Return the extractor with a debug file for each extraction."""

    async def extract(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        result = Extraction()
        try:
            result = await extractor.extract(messages, origin)
        finally:  # an extraction that fails is the one that somebody wants to look at
            record = make_debug_record(messages, origin, result.facts, now())
            try:
                await asyncio.to_thread(write_debug, folder, origin.attempt, record)
            except MassmemError as e:
                log.warning("no debug file of this extraction: %s", e.message)
        return result

    return replace(extractor, extract=extract)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one extraction. The compact ones are for models on the user's machine."""

    deadline: float = 300
    """Seconds for all of it."""
    chunk: int = 12_000
    """Characters of messages in one request."""
    compact_chunk: int = 4_000
    max_tokens: int = 8_000
    """Of one reply."""
    compact_max_tokens: int = 1_200
    requests: int = 24
    """Messages that this many requests did not reach are reported as unread."""


class FactExtractor:
    """Finds facts in what an agent and the user said. Safe to use from several tasks of one event loop at a time."""

    def __init__(
        self, model: MemoryModel, home: Path, known: KnownFacts | None = None, limits: Limits | None = None
    ) -> None:
        self._model = model
        self._home = home
        self._known = known
        self._limits = limits or Limits()

    async def extract(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        """Return the new facts in one agent's messages of one turn.

        Raises, when nothing could be read; when part of it could, `Extraction.problem` says what stopped the rest:
            InputError: mem0 is not installed.
            ProviderError: a request failed or took too long, the model refused, or its reply holds no facts.
            MemoryUnavailable: the index cannot be used now.
        """
        limits, compact = self._limits, self._model.compact
        chunks = split_into_chunks(messages, limits.compact_chunk if compact else limits.chunk)
        if not chunks:
            return Extraction()
        mem0 = await asyncio.to_thread(_load_mem0, self._home)
        max_tokens = limits.compact_max_tokens if compact else limits.max_tokens

        async def ask(system: str, user: str) -> Reply:
            return await self._model.ask(system, user, max_tokens, "extract", origin.agent_id)

        requests = _Requests(ask)
        run = _Run(origin, deque(chunks), limits.requests)
        try:
            async with asyncio.timeout(limits.deadline):
                await run.read_all(mem0.Reader(requests.send, origin, self._known, compact=compact))
        except TimeoutError:
            run.stop(ProviderTimeout(f"extracting memories took longer than {limits.deadline:g} seconds"))
        finally:
            requests.cancel()
        return run.result()


class _Requests:
    """Sends requests on the event loop for the thread of mem0, which waits for the reply."""

    def __init__(self, ask: Callable[[str, str], Awaitable[Reply]]) -> None:
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._cancelled = False
        self._request: Future[Reply] | None = None

    def send(self, system: str, user: str) -> Reply:
        async def ask() -> Reply:
            return await self._ask(system, user)

        with self._lock:
            if self._cancelled:
                raise CancelledError
            self._request = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        return self._request.result()

    def cancel(self) -> None:
        """End the request that is under way, and with it the thread that waits for it."""
        with self._lock:
            self._cancelled = True
            if self._request is not None:
                self._request.cancel()


@dataclass(slots=True)
class _Run:
    """One extraction under way."""

    origin: Origin
    todo: deque[Chunk]
    most_requests: int
    facts: list[Fact] = field(default_factory=list[Fact])
    duplicates: int = 0
    requests: int = 0
    answered: int = 0
    problem: MassmemError | None = None
    unread: dict[str, None] = field(default_factory=dict[str, None])

    async def read_all(self, reader: "Reader") -> None:
        """Read one chunk after the other; stop at what would stop the next one as well."""
        while self.todo:
            if self.requests == self.most_requests:
                self.stop(MassmemError(f"too long to extract memories from all of it: {self.requests} parts were read"))
                return
            self.requests += 1
            chunk = self.todo[0]
            try:
                facts = await asyncio.to_thread(partial(reader.read, chunk))
            except ContextOverflow as e:
                self.todo.popleft()
                self._retry_smaller(chunk, e)
            except (MalformedResponse, ContentRefused) as e:
                self.todo.popleft()
                self._skip(chunk, e)
            except MassmemError as e:
                self.stop(e)
            else:
                self.todo.popleft()
                self._add(facts, chunk)

    def stop(self, problem: MassmemError) -> None:
        """Leave the rest unread."""
        while self.todo:
            self._skip(self.todo.popleft(), problem)

    def result(self) -> Extraction:
        """Return the extraction; raise the problem when there is nothing else."""
        if self.problem is not None and not self.answered:
            raise self.problem
        return Extraction(tuple(self.facts), self.duplicates, self.answered, self.problem, tuple(self.unread))

    def _add(self, facts: "ChunkFacts", chunk: Chunk) -> None:
        self.answered += 1
        self.facts.extend(make_fact(statement, chunk, self.origin) for statement in facts.statements)
        self.duplicates += facts.duplicates
        if not facts.complete:
            self._skip(chunk, MalformedResponse("the model's reply broke off, or held items that cannot be read"))

    def _retry_smaller(self, chunk: Chunk, problem: ContextOverflow) -> None:
        smaller = halve(chunk)
        if smaller is None:
            self._skip(chunk, problem)
        else:
            self.todo.extendleft(reversed(smaller))

    def _skip(self, chunk: Chunk, problem: MassmemError) -> None:
        self.problem = self.problem or problem
        self.unread.update(dict.fromkeys(list_message_ids(chunk)))


def _load_mem0(home: Path) -> Any:
    """Import mem0, which takes seconds. Blocking."""
    prepare_mem0(home)
    try:
        return importlib.import_module("massmem.memory.extraction.mem0")
    except ImportError as e:
        raise InputError(
            f"memories are extracted with mem0, which cannot be loaded: {e}",
            "pip install 'massmem[memory]', or leave memory.persistent_memory.llm out",
        ) from e
