"""Summaries of what tools returned, by the model that extracts facts or one of the user's choice."""

import asyncio

from massmem.core.errors import MalformedResponse, ProviderTimeout
from massmem.core.messages import clean_text
from massmem.memory.extraction.facts import cut_text
from massmem.memory.extraction.models import MemoryModel
from massmem.memory.extraction.prompts import SUMMARY_SYSTEM

LONGEST = 3_000
"""Characters of a summary."""

_DEADLINE = 120.0
"""Seconds for one summary, all attempts together."""
_MAX_TOKENS = 1_000
_MOST_READ, _MOST_READ_COMPACT = 48_000, 8_000
"""Characters of a result that a model is sent; the middle of a longer one is left out."""


async def summarize_result(model: MemoryModel, text: str) -> str:
    """Return what matters in the result of a tool, in at most LONGEST characters.

    Raises:
        ProviderError: the request failed or took too long, the model refused, or its summary is empty.
    """
    excerpt = _cut_middle(clean_text(text), _MOST_READ_COMPACT if model.compact else _MOST_READ)
    try:
        async with asyncio.timeout(_DEADLINE):
            reply = await model.ask(SUMMARY_SYSTEM, excerpt, _MAX_TOKENS, "summary")
    except TimeoutError as e:
        raise ProviderTimeout(f"summarising a tool result took longer than {_DEADLINE:g} seconds") from e
    summary = reply.text.rpartition("</think>")[2].strip()
    if not summary:
        raise MalformedResponse("the model's summary of a tool result was empty")
    return cut_text(clean_text(summary), LONGEST)


def _cut_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head, tail = 2 * most // 3, most // 3
    return f"{text[:head]}\n[{len(text) - head - tail:,} characters left out]\n{text[-tail:]}"
