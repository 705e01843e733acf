"""The models that read what was said for memories: which one the configuration names, and one request to it."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import ContentRefused, MalformedResponse, ProviderTimeout
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    Purpose,
    Reply,
    TextChunk,
    clean_text,
)
from massmem.memory.extraction.facts import cut_middle, cut_text
from massmem.memory.extraction.prompts import SCHEMA, SUMMARY_SYSTEM
from massmem.memory.extraction.replies import repeats
from massmem.memory.mem0 import (
    OWN_NAMES,
    as_backend,
    explain_unknown_provider,
    find_backend_type,
    list_key_variables,
    name_section,
)
from massmem.providers import Providers
from massmem.providers.presets import PRESETS

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

SETTING = "memory.persistent_memory.llm"

_CUT = " [...]"
"""At the end of a summary that the model did not end."""
_SUMMARY_DEADLINE = 120.0
"""Seconds for one summary, all attempts together."""
_SUMMARY_TOKENS = 1_000
LONGEST_SUMMARY = 3_000
"""Characters."""
_MOST_READ, _MOST_READ_COMPACT = 48_000, 8_000
"""Characters of a result that a model is sent; the middle of a longer one is left out."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one request."""

    timeout: float = 60
    """Seconds without any byte from the server."""
    retries: int = 2
    """Attempts after the first."""


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """A model that reads messages for memories."""

    chat: "ChatProvider"
    compact: bool
    """It runs on the user's machine, where mem0's 8,000 tokens of instructions take minutes or do not fit: it is sent
    shorter prompts, and its replies are held to a JSON Schema."""

    async def ask(self, system: str, user: str, max_tokens: int, purpose: Purpose, agent_id: str = "") -> Reply:
        """Send one request. A reply to "extract" that starts to repeat itself is ended there.

        Raises:
            ProviderError: the request failed, or the model refused.
        """
        messages = (ChatMessage("system", system), ChatMessage("user", user))
        schema = SCHEMA if self.compact and purpose == "extract" else None
        request = ChatRequest(messages, purpose, agent_id, schema=schema, temperature=0.0, max_tokens=max_tokens)
        reply = Reply()
        async with aclosing(self.chat.stream(request)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk)
                may_repeat = purpose == "extract" and isinstance(chunk, TextChunk) and "}" in chunk.text
                if may_repeat and repeats(reply.text):
                    # A small model that starts over does so until its last token, minutes later.
                    return Reply(f"{reply.text.rpartition('}')[0]}}}]}}", finish="stop")
        if reply.finish == "content_filter":
            raise ContentRefused("the model refused to read this for memories")
        return reply

    async def summarize(self, text: str) -> str:
        """Return what matters in the result of a tool, in at most LONGEST_SUMMARY characters.

        Raises:
            ProviderError: the request failed or took too long, the model refused, or its summary is empty.
        """
        excerpt = cut_middle(clean_text(text), _MOST_READ_COMPACT if self.compact else _MOST_READ)
        try:
            async with asyncio.timeout(_SUMMARY_DEADLINE):
                reply = await self.ask(SUMMARY_SYSTEM, excerpt, _SUMMARY_TOKENS, "summary")
        except TimeoutError as e:
            raise ProviderTimeout(f"summarising a tool result took longer than {_SUMMARY_DEADLINE:g} seconds") from e
        summary = reply.text.rpartition("</think>")[2].partition("<think>")[0].strip()
        if not summary:
            raise MalformedResponse("the model's summary of a tool result was empty")
        if reply.is_truncated:
            summary = f"{summary[: LONGEST_SUMMARY - len(_CUT)]}{_CUT}"
        return cut_text(clean_text(summary), LONGEST_SUMMARY)


async def open_model(
    llm: MemoryLlmConfig, providers: Providers, environ: Mapping[str, str], bounds: Bounds
) -> MemoryModel:
    """Open the configured model.

    Raises:
        InputError: no such provider, or its endpoint or model is missing or wrong.
        MissingKeyError: no API key.
        MissingModelError: the local model is not on disk.
    """
    backend = find_backend_type(llm.provider)
    if backend is None:
        raise explain_unknown_provider(SETTING, llm.provider, {*PRESETS, *OWN_NAMES})
    preset = PRESETS[backend]
    settings = as_backend(
        llm, "llm", preset.memory_model or preset.default_model, environ,
        timeout=bounds.timeout, max_retries=bounds.retries,
    )  # fmt: skip
    without = "then messages are remembered word for word, without extracted facts"
    with name_section(SETTING, list_key_variables(llm.provider, "llm"), without):
        return MemoryModel(await providers.open(settings), compact=not preset.needs_key)
