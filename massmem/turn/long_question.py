"""Questions larger than a model's window: read in parts, of each of which the model takes notes."""

import logging
from dataclasses import dataclass

from massmem.core import prompts
from massmem.core.errors import ProviderError
from massmem.core.messages import ChatRequest, Reply, Usage, clean_text
from massmem.memory.compression import shorten
from massmem.providers.base import ChatProvider, ask
from massmem.turn.compressor import SMALL_WINDOW, TokenMeter
from massmem.turn.prompt_builder import MIN_TOKENS, PromptBudget

log = logging.getLogger(__name__)

MAX_PARTS = 40
"""Parts that a question may have; a longer one is refused."""

_FULL = 0.9
"""Part of the room for a prompt above which a question is read in parts."""

_PART_SHARE, _END_SHARE, _NOTES_SHARE = 1 / 3, 1 / 16, 1 / 4
"""Parts of the window: for one part of the question; for its beginning and for its end; for all notes."""

_WORDS_PER_TOKEN = 0.7


@dataclass(frozen=True, slots=True)
class Reading:
    """A question as its agent can read it."""

    text: str
    parts: int
    """In how many parts it was read; 1: it fits, and `text` is the question itself."""
    usage: Usage
    """Of the requests for notes."""


async def read_question(
    question: str, agent_id: str, provider: ChatProvider, meter: TokenMeter, budget: PromptBudget
) -> Reading:
    """Return the question, or its beginning, notes on all its parts, and its end, when it is too large.

    A part that the model takes no notes of is shortened by code.

    Raises:
        LimitReached: the notes do not fit into what the turn may spend.
    """
    count = meter.buffer.cost_of_text
    tokens = count(question)
    parts = _split(question, tokens, int(budget.window * _PART_SHARE))
    if meter.assumed or tokens <= _FULL * budget.limit or len(parts) > MAX_PARTS:
        return Reading(question, 1, Usage())
    size = len(question) * int(budget.window * _END_SHARE) // tokens
    beginning, end = question[:size], question[-size:]
    max_tokens = max(MIN_TOKENS, int(budget.window * _NOTES_SHARE) // len(parts))
    notes: list[str] = []
    usage = Usage()
    for number, part in enumerate(parts, start=1):
        text = ""
        if budget.window >= SMALL_WINDOW:
            messages = prompts.build_reading_request(
                part, f"{number} of {len(parts)}", (beginning, end), int(max_tokens * _WORDS_PER_TOKEN)
            )
            reply = await _ask(provider, ChatRequest(messages, "summary", agent_id, max_tokens=max_tokens))
            text, usage = clean_text(reply.text).strip(), usage + reply.usage
        notes.append(shorten(text or part, max_tokens, count))
    return Reading(prompts.build_long_question(beginning, notes, end, tokens), len(parts), usage)


async def _ask(provider: ChatProvider, request: ChatRequest) -> Reply:
    """Return the reply; an empty one when the request fails."""
    try:
        return await ask(provider, request)
    except ProviderError as e:
        log.info("%s: a part of the question is shortened by code: %s", request.agent_id, e.message)
        return Reply()


def _split(text: str, tokens: int, max_tokens: int) -> list[str]:
    """Split a text into parts of at most about so many tokens, between words where there are any."""
    size = max(1, len(text) * max_tokens // max(tokens, 1))
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = start + size
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        if end < len(text) and space > start + size // 2:
            end = space
        parts.append(text[start:end])
        start = end
    return parts
