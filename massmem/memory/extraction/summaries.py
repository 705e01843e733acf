"""Summaries of what tools returned, by the provider that extracts facts and a model of the user's choice."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import InputError, MalformedResponse, ProviderTimeout
from massmem.core.messages import clean_text
from massmem.memory.detached import detached
from massmem.memory.extraction.chat_model import chat_model
from massmem.memory.extraction.facts import shortened
from massmem.memory.extraction.mem0_failures import failure
from massmem.memory.extraction.mem0_models import Answer, Bounds, OpenModel, open_model
from massmem.memory.extraction.opened_once import OpenedOnce
from massmem.memory.extraction.prompts import SUMMARY_SYSTEM
from massmem.memory.mem0_setup import prepare_mem0

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

BOUNDS = Bounds(timeout=60, retries=1, max_tokens=1_000)

DEADLINE = 120.0
"""Seconds for one summary."""

LONGEST = 3_000
"""Characters of a summary."""

_MOST_READ, _MOST_READ_COMPACT = 48_000, 8_000
"""Characters of a result that a model is sent; the middle of a longer one is left out."""


class Summarizer:
    """Safe to use from several tasks of one event loop. See Mem0Extractor for the parameters."""

    def __init__(
        self,
        config: MemoryLlmConfig,
        state: Path,
        environ: Mapping[str, str],
        *,
        chat: "ChatProvider | None" = None,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._config = config
        self._state = state
        self._environ = environ
        self._chat = chat
        self._bounds = bounds
        self._opened = OpenedOnce(self._open)

    async def summarise(self, text: str) -> str:
        """What matters in the text, at most LONGEST characters.

        Raises:
            InputError: the configured model cannot be used, or mem0 is not installed.
            ProviderError: the request failed or took too long, the model refused, or it said nothing.
        """
        model = await self._model()
        excerpt = _excerpt(clean_text(text), _MOST_READ_COMPACT if model.compact else _MOST_READ)
        try:
            async with asyncio.timeout(DEADLINE):
                answer = await detached(partial(self._ask, model, excerpt))
        except TimeoutError as e:
            raise ProviderTimeout(f"summarising a tool result took longer than {DEADLINE:g} seconds") from e
        finally:
            if self._chat is not None:
                model.close()  # a request that is under way
        said = (answer.text or "").rpartition("</think>")[2].strip()
        if not said:
            raise MalformedResponse("the model's summary of a tool result was empty")
        return shortened(clean_text(said), LONGEST)

    async def close(self) -> None:
        await self._opened.close()

    async def _model(self) -> OpenModel:
        if self._chat is None:
            return await self._opened.get()
        return chat_model(self._chat, "", self._bounds.max_tokens, "summary")

    def _open(self) -> OpenModel:
        prepare_mem0(self._state)
        try:
            return open_model(self._config, self._environ, self._bounds, json=False)
        except ImportError as e:
            raise InputError(
                f"tool results are summarised with mem0, which cannot be loaded: {e}", "pip install 'massmem[memory]'"
            ) from e

    def _ask(self, model: OpenModel, text: str) -> Answer:
        with _Failures(self._config):
            return model.ask(SUMMARY_SYSTEM, text)


def _excerpt(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head, tail = 2 * most // 3, most // 3
    return f"{text[:head]}\n[{len(text) - head - tail:,} characters left out]\n{text[-tail:]}"


class _Failures:
    """Each provider's library has errors of its own: whatever it raises becomes one of ours."""

    def __init__(self, config: MemoryLlmConfig) -> None:
        self._config = config

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise failure(error, self._config) from error
