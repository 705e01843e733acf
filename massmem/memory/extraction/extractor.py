"""The models that turn what was said into facts, opened as they are configured."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import BackendConfig, MemoryLlmConfig
from massmem.core.errors import MassmemError
from massmem.core.events import now
from massmem.memory.extraction.debug import debug_record, write_debug
from massmem.memory.extraction.task import Extraction, Known, Origin, RecordedMessage
from massmem.providers import Providers

if TYPE_CHECKING:
    from massmem.memory.extraction.summaries import Summarizer
    from massmem.providers.base import ChatProvider

log = logging.getLogger(__name__)

Extract = Callable[[Sequence[RecordedMessage], Origin], Awaitable[Extraction]]
"""Asks a model for the facts in messages. Raises MassmemError."""

Summarise = Callable[[str, str | None], Awaitable[str]]
"""Summarises a text with the named model, None for the one that extracts. Raises MassmemError."""


@dataclass(frozen=True, slots=True)
class Extractor:
    """extract: asks the model for facts. summarise: shortens the large result of a tool for it."""

    extract: Extract
    summarise: Summarise


@asynccontextmanager
async def open_extractor(
    llm: MemoryLlmConfig | None, home: Path, known: Known | None = None
) -> AsyncGenerator[Extractor | None]:
    """None when no model is configured: then messages are all that is remembered.

    known: what the memory holds, so that the model is shown it and does not say it again.

    Raises:
        InputError: the provider is unknown, or its package is not installed.
    """
    if llm is None:
        yield None
        return
    from massmem.memory.extraction.mem0 import Mem0Extractor

    async with AsyncExitStack() as stack:
        models = _Models(llm, home, stack)
        found = Mem0Extractor(llm, home, os.environ, known=known, chat=await models.chat(llm))
        stack.push_async_callback(found.close)
        yield Extractor(found.extract, models.summarise)


class _Models:
    """Those that summarise, by name, and the providers of massmem's own among all of them."""

    def __init__(self, llm: MemoryLlmConfig, home: Path, stack: AsyncExitStack) -> None:
        self._llm = llm
        self._home = home
        self._stack = stack
        self._providers: Providers | None = None
        self._summarizers: dict[str | None, Summarizer] = {}

    async def chat(self, llm: MemoryLlmConfig) -> "ChatProvider | None":
        """None: mem0 has a client of its own for it."""
        from massmem.memory.extraction.mem0 import OUR_PROVIDERS

        if llm.provider not in OUR_PROVIDERS:
            return None
        if self._providers is None:
            self._providers = Providers()
            self._stack.push_async_callback(self._providers.close)
        backend = BackendConfig.model_validate({"type": llm.provider, "model": llm.model or ""})
        return await self._providers.open(backend)

    async def summarise(self, text: str, model: str | None) -> str:
        """model None: the one that extracts."""
        from massmem.memory.extraction.summaries import Summarizer

        if model not in self._summarizers:
            llm = self._llm if model is None else self._llm.model_copy(update={"model": model})
            opened = Summarizer(llm, self._home, os.environ, chat=await self.chat(llm))
            self._stack.push_async_callback(opened.close)
            self._summarizers[model] = opened
        return await self._summarizers[model].summarise(text)


def failing_extractor(error: MassmemError) -> Extractor:
    """For a model that could not be opened: what is to be extracted waits, and each attempt says why."""

    async def extract(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        raise error

    async def summarise(text: str, model: str | None) -> str:
        raise error

    return Extractor(extract, summarise)


def with_debug_files(extractor: Extractor, folder: Path) -> Extractor:
    """The same, and each extraction is written to a debug file."""

    async def kept(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        result = Extraction()
        try:
            result = await extractor.extract(messages, origin)
        finally:  # an extraction that fails is the one that somebody wants to look at
            record = debug_record(messages, origin, result.facts, now())
            try:
                await asyncio.to_thread(write_debug, folder, origin.attempt, record)
            except MassmemError as e:
                log.warning("no debug file of this extraction: %s", e.message)
        return result

    return replace(extractor, extract=kept)
