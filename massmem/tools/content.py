"""What a tool gives back, as text: cleaned of what no terminal, provider or database takes, and bounded."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from massmem.core.display import make_printable
from massmem.core.messages import clean_text

if TYPE_CHECKING:
    from mcp.types import ContentBlock

LONGEST = 1_000_000
"""Characters of one result that the log keeps."""

_HEAD_SHARE = 3 / 4
"""Of a result that is cut: lists and files mostly say in their beginning what they are."""

_LONGEST_TOKEN = 8
"""Characters; a text that is longer than its tokens could be is cut before it is counted."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """text: for the model and the log. failed: it says what went wrong."""

    text: str
    failed: bool = False


def plain(text: str) -> str:
    """The text without escape sequences and lone surrogates, no longer than the log keeps."""
    kept = clean_text(make_printable(text[:LONGEST]))
    left_out = len(text) - LONGEST
    return kept if left_out <= 0 else f"{kept}\n[{left_out:,} more characters were not kept]"


def text_of(blocks: "Sequence[ContentBlock]", structured: Any) -> str:
    """All blocks as one text. structured: the same as JSON, used when there is no block."""
    if not blocks and structured is not None:
        return plain(json.dumps(structured, ensure_ascii=False))
    return plain("\n".join(map(_block, blocks)) or "(nothing)")


def excerpt(text: str, tokens: int, count: Callable[[str], int]) -> str:
    """The text in about so many tokens: its beginning and its end, and how much is left out between."""
    if len(text) <= tokens:
        return text  # a token is a character at the least
    some = text[: _LONGEST_TOKEN * tokens]
    size = count(some)
    if len(some) == len(text) and size <= tokens:
        return text
    room = len(some) * tokens // max(size, 1)
    head = int(_HEAD_SHARE * room)
    tail = room - head
    said = f"[{len(text) - room:,} of {len(text):,} characters left out here; ask for a smaller part to see them]"
    return f"{text[:head]}\n{said}\n{text[len(text) - tail :]}"


def _block(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {_size(block.data)}: not shown]"
        case "resource_link":
            return f"[resource {block.name}: {block.uri}]"
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return f"[resource {inner.uri}]\n{text}"
            return (
                f"[resource {inner.uri}, {inner.mime_type or 'binary'}, {_size(getattr(inner, 'blob', ''))}: not shown]"
            )


def _size(encoded: str) -> str:
    """Of Base64."""
    return f"{max(1, len(encoded) * 3 // 4 // 1000):,} kB"
