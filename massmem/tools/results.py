"""Results of tools as text: without what a terminal, a provider or a database rejects, and of limited length."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from massmem.core.messages import clean_text
from massmem.core.text import make_printable

if TYPE_CHECKING:
    from mcp.types import ContentBlock

MAX_CHARACTERS = 1_000_000
"""Characters of one result that the log keeps."""

_HEAD_SHARE = 3 / 4
"""Part of an excerpt that its beginning gets: lists and files mostly say at the beginning what they are."""

_CHARACTERS_PER_TOKEN = 8
"""Most characters of a token. A text that must have too many tokens is cut before it is counted."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    """For the model and for the log."""
    failed: bool = False
    """The text says what went wrong."""


def clean_result(text: str) -> str:
    """Return the text without escape sequences and lone surrogates, no longer than the log keeps."""
    cleaned = clean_text(make_printable(text[:MAX_CHARACTERS]))
    left_out = len(text) - MAX_CHARACTERS
    return cleaned if left_out <= 0 else f"{cleaned}\n[{left_out:,} more characters were not kept]"


def blocks_to_text(blocks: "Sequence[ContentBlock]", structured: Any) -> str:
    """Return all content blocks as one text. structured: the same as JSON, used when there is no block."""
    if not blocks and structured is not None:
        return clean_result(json.dumps(structured, ensure_ascii=False))
    return clean_result("\n".join(map(_block_to_text, blocks)) or "(nothing)")


def excerpt(text: str, max_tokens: int, count: Callable[[str], int], gap: Callable[[int, int], str]) -> str:
    """Return the text in about `max_tokens` tokens: its beginning, its end, and what `gap` returns between.

    gap: is given where in the text the left out part begins and ends, in characters.
    """
    if len(text) <= max_tokens:
        return text  # a token has one character at least
    sample = text[: _CHARACTERS_PER_TOKEN * max_tokens]
    tokens = count(sample)
    if len(sample) == len(text) and tokens <= max_tokens:
        return text
    room = len(sample) * max_tokens // max(tokens, 1)
    head = int(_HEAD_SHARE * room)
    end = len(text) - (room - head)
    return f"{text[:head]}\n{gap(head, end)}\n{text[end:]}"


def _block_to_text(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {_format_size(block.data)}: not shown]"
        case "resource_link":
            return f"[resource {block.name}: {block.uri}]"
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return f"[resource {inner.uri}]\n{text}"
            size = _format_size(getattr(inner, "blob", ""))
            return f"[resource {inner.uri}, {inner.mime_type or 'binary'}, {size}: not shown]"


def _format_size(encoded: str) -> str:
    """Return the size of what Base64 stands for."""
    return f"{max(1, len(encoded) * 3 // 4 // 1000):,} kB"
