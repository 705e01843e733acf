"""Extraction of facts by mem0: when it runs, how long it may take, and what becomes of what goes wrong.

mem0 itself is loaded with the first extraction, in a thread, and never with this module.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import (
    ContentRefused,
    ContextOverflow,
    InputError,
    MalformedResponse,
    MassmemError,
    ProviderTimeout,
)
from massmem.memory.detached import detached
from massmem.memory.extraction.chat_model import chat_model
from massmem.memory.extraction.mem0_models import Bounds, OpenModel, open_model
from massmem.memory.extraction.opened_once import OpenedOnce
from massmem.memory.extraction.task import (
    Chunk,
    Extraction,
    Known,
    Origin,
    RecordedMessage,
    chunks,
    halves,
    message_ids,
    to_fact,
)
from massmem.memory.mem0_setup import prepare_mem0
from massmem.memory.persistent import Fact

if TYPE_CHECKING:
    from massmem.memory.extraction.mem0_pipeline import Found, Reader
    from massmem.providers.base import ChatProvider

OUR_PROVIDERS = ("local", "scripted")
"""Not mem0's: they answer through a ChatProvider."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one extraction. deadline: seconds for all of it. timeout, retries: of one request.

    chunk: characters of messages in one request, compact_chunk where the model runs on the user's machine; likewise
    reply tokens. requests: most of them; what is left over then is reported as unread.
    """

    deadline: float = 300
    timeout: float = 60
    retries: int = 2
    chunk: int = 12_000
    compact_chunk: int = 4_000
    max_tokens: int = 8_000
    compact_max_tokens: int = 1_200
    requests: int = 24


class Mem0Extractor:
    """Finds facts in what an agent and the user said. Safe to use from several tasks of one event loop at a time."""

    def __init__(
        self,
        config: MemoryLlmConfig,
        state: Path,
        environ: Mapping[str, str],
        *,
        known: Known | None = None,
        chat: "ChatProvider | None" = None,
        limits: Limits | None = None,
    ) -> None:
        """state: a folder of ours for what mem0 keeps. known None: nothing is known yet.

        chat: answers instead of a provider of mem0's; config.provider only names it then.
        """
        self._config = config
        self._state = state
        self._environ = environ
        self._known = known
        self._chat = chat
        self._limits = limits or Limits()
        self._opened = OpenedOnce(self._open)

    async def extract(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        """The facts in one agent's messages of one turn, new ones only.

        Raises, when nothing could be read; when part of it could, `Extraction.problem` says what stopped the rest:
            InputError: the configured model cannot be used, or mem0 is not installed.
            ProviderError: a request failed or took too long, the model refused, or its reply holds no facts.
            MemoryUnavailable: the index cannot be used now.
        """
        if not chunks(messages, self._limits.chunk):
            return Extraction()
        model = await self._model(origin.agent_id)
        size = self._limits.compact_chunk if model.compact else self._limits.chunk
        run = _Run(origin, deque(chunks(messages, size)), self._limits.requests)
        try:
            async with asyncio.timeout(self._limits.deadline):
                await run.through(self._reader(model, origin))
        except TimeoutError:
            run.stop(ProviderTimeout(f"extracting memories took longer than {self._limits.deadline:g} seconds"))
        finally:
            if self._chat is not None:
                model.close()  # a request that is under way
        return run.result()

    async def close(self) -> None:
        """Close connections. An extraction that is under way fails."""
        await self._opened.close()

    async def _model(self, agent_id: str) -> OpenModel:
        if self._chat is None:
            return await self._opened.get()
        await asyncio.to_thread(_load, self._state)
        return chat_model(self._chat, agent_id, self._limits.compact_max_tokens)

    def _open(self) -> OpenModel:
        _load(self._state)
        if self._config.provider in OUR_PROVIDERS:
            raise InputError(
                f"memories cannot be extracted with {self._config.provider!r}: there is no such model open"
            )
        bounds = Bounds(self._limits.timeout, self._limits.retries, self._limits.max_tokens)
        return open_model(self._config, self._environ, bounds)

    def _reader(self, model: OpenModel, origin: Origin) -> "Reader":
        from massmem.memory.extraction.mem0_pipeline import Reader

        return Reader(model, self._config, origin, self._known)


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

    async def through(self, reader: "Reader") -> None:
        """Read one chunk after the other; stop at what would stop the next one as well."""
        while self.todo:
            if self.requests == self.most_requests:
                self.stop(MassmemError(f"too long to extract memories from all of it: {self.requests} parts were read"))
                return
            self.requests += 1
            chunk = self.todo[0]
            try:
                found = await detached(partial(reader.read, chunk))
            except ContextOverflow as e:
                self.todo.popleft()
                self._again_smaller(chunk, e)
            except (MalformedResponse, ContentRefused) as e:
                self.todo.popleft()
                self._missed(chunk, e)
            except MassmemError as e:
                self.stop(e)
            else:
                self.todo.popleft()
                self._take(found, chunk)

    def stop(self, problem: MassmemError) -> None:
        """Leave the rest unread."""
        while self.todo:
            self._missed(self.todo.popleft(), problem)

    def result(self) -> Extraction:
        """Raises the problem when there is nothing else."""
        if self.problem is not None and not self.answered:
            raise self.problem
        return Extraction(tuple(self.facts), self.duplicates, self.answered, self.problem, tuple(self.unread))

    def _take(self, found: "Found", chunk: Chunk) -> None:
        self.answered += 1
        self.facts.extend(to_fact(statement, chunk, self.origin) for statement in found.statements)
        self.duplicates += found.duplicates
        if not found.complete:
            self._missed(chunk, MalformedResponse("the model's reply broke off, or held items that cannot be read"))

    def _again_smaller(self, chunk: Chunk, problem: ContextOverflow) -> None:
        smaller = halves(chunk)
        if smaller is None:
            self._missed(chunk, problem)
        else:
            self.todo.extendleft(reversed(smaller))

    def _missed(self, chunk: Chunk, problem: MassmemError) -> None:
        self.problem = self.problem or problem
        self.unread.update(dict.fromkeys(message_ids(chunk)))


def _load(state: Path) -> None:
    prepare_mem0(state)
    try:
        from massmem.memory.extraction import mem0_pipeline
    except ImportError as e:
        raise InputError(
            f"memories are extracted with mem0, which cannot be loaded: {e}",
            "pip install 'massmem[memory]', or leave memory.persistent_memory.llm out",
        ) from e
    mem0_pipeline.without_downloads()
