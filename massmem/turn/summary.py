"""The summary that stands for old messages: written by the agent's own model from an extract, or taken by code."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from massmem import prompts
from massmem.errors import LimitReached, ProviderError
from massmem.memory.compression import Count, Said, extract, extract_parts, shortened
from massmem.messages import ChatRequest, Usage, clean_text
from massmem.providers.base import ChatProvider
from massmem.replies import Reply

log = logging.getLogger(__name__)

SHARE, LEAST, MOST = 1 / 16, 48, 2_000
"""Tokens of a summary: this share of the window, within these bounds."""

EXTRACT_SHARE, EXTRACT_MOST = 1 / 12, 16_000
"""Of what was said the model is shown so many tokens: a request that costs little and cannot overflow."""

SMALL_WINDOW = 4_000
"""Tokens; below it a model has no room to write a summary, and code makes it."""

_WORDS_PER_TOKEN = 0.7
_PART = 8_000
"""Tokens that share one part of an extract: long messages are read in several."""


@dataclass(frozen=True, slots=True)
class Summary:
    text: str
    by: Literal["model", "extract"]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Summariser:
    """Writes the summaries of one agent. provider None: without a model. count: tokens of a text."""

    provider: ChatProvider | None
    agent_id: str
    window: int
    count: Count

    @property
    def budget(self) -> int:
        """Most tokens of a summary."""
        return max(LEAST, min(MOST, int(self.window * SHARE)))

    async def summarise(self, texts: Sequence[Said], previous: str) -> Summary:
        """One summary of both: `previous`, the summary so far, and what was said since.

        Never fails: where the model cannot write it, it is made of sentences of the texts, so that the prompt shrinks
        in any case.
        """
        if self.provider is not None and self.window >= SMALL_WINDOW:
            size = min(EXTRACT_MOST, int(self.window * EXTRACT_SHARE)) - self.count(previous)
            shown = await asyncio.to_thread(extract_parts, texts, max(size, self.budget), self.count, _PART)
            reply = Reply()
            try:
                await self._write(self.provider, previous, shown, reply)
            except (ProviderError, LimitReached) as e:
                log.info("%s: the summary is made by code, the model wrote none: %s", self.agent_id, e.message)
            else:
                if text := clean_text(reply.text).strip():
                    return Summary(shortened(text, self.budget, self.count), "model", reply.usage)
        text = await asyncio.to_thread(extract, texts, self.budget, self.count, previous)
        return Summary(text, "extract", Usage())

    async def _write(self, provider: ChatProvider, previous: str, shown: str, reply: Reply) -> None:
        messages = prompts.summary_prompt(previous, shown, int(self.budget * _WORDS_PER_TOKEN))
        request = ChatRequest(messages, "summary", self.agent_id, max_tokens=self.budget)
        async with aclosing(provider.stream(request)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk)
