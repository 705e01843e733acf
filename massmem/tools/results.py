"""What tool servers reply: in the form that the protocol has, and as text that no terminal or database rejects."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from massmem.core.messages import clean_text
from massmem.core.text import make_printable, one_line
from massmem.providers.dialects import UnusableSchema, tidy_schema

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


def clean_reply(reply: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a reply of a server with the form of the protocol, and what cannot be used of it, a line each.

    Of a list of tools those are left out that cannot be called; what a result has in no known form becomes text.
    """
    cleaned: dict[str, Any] = {
        name: value for name, value in reply.items() if name != "_meta" or isinstance(value, dict)
    }
    if "tools" in reply:
        tools, left_out = _clean_tools(reply["tools"])
        cursor = reply.get("nextCursor")
        cleaned.pop("nextCursor", None)
        return cleaned | {"tools": tools} | ({"nextCursor": cursor} if isinstance(cursor, str) else {}), left_out
    if reply.keys() & {"content", "structuredContent", "isError", "toolResult"}:
        content = reply.get("content", cleaned.pop("toolResult", None))
        structured = cleaned.pop("structuredContent", None)
        blocks = cast("list[object]", content) if isinstance(content, list) else [content]
        texts = [_block_to_text(cast("Mapping[str, Any] | str", block)) for block in blocks if block is not None]
        if not texts and structured is not None:
            texts = [json.dumps(structured, ensure_ascii=False)]
        text = {"type": "text", "text": clean_result("\n".join(texts) or "(nothing)")}
        return cleaned | {"content": [text], "isError": str(reply.get("isError")).lower() in ("true", "1")}, []
    return cleaned, []


def _clean_tools(tools: object) -> tuple[list[dict[str, Any]], list[str]]:
    """Return those tools of a list that can be called, and why others cannot."""
    items = list(cast("Mapping[str, object]", tools).values()) if isinstance(tools, Mapping) else tools
    usable: list[dict[str, Any]] = []
    left_out: list[str] = []
    for number, item in enumerate(cast("list[object]", items) if isinstance(items, list) else [], 1):
        tool: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
        name = tool.get("name")
        if not isinstance(name, str) or not name.strip():
            left_out.append(f"its tool number {number} has no name, and is left out")
            continue
        try:
            schema = tidy_schema(tool.get("inputSchema") or {})
        except UnusableSchema as e:
            left_out.append(f"its tool {one_line(make_printable(name))} is left out: {e}")
            continue
        texts = {key: text for key in ("title", "description") if isinstance(text := tool.get(key), str)}
        usable.append({"name": name, "inputSchema": schema, **texts})
    return usable, left_out


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


def _block_to_text(block: Mapping[str, Any] | str) -> str:
    match block:
        case {"type": "image" | "audio" as kind, "data": str(data), **rest}:
            return f"[{kind}, {rest.get('mimeType') or 'binary'}, {_format_size(data)}: not shown]"
        case {"type": "resource_link", **rest}:
            return f"[resource {rest.get('name')}: {rest.get('uri')}]"
        case {"type": "resource", "resource": {"text": str(text), **rest}}:
            return f"[resource {rest.get('uri')}]\n{text}"
        case {"type": "resource", "resource": {"blob": str(data), **rest}}:
            return f"[resource {rest.get('uri')}, {rest.get('mimeType') or 'binary'}, {_format_size(data)}: not shown]"
        case str(text) | {"text": str(text)}:
            return text
        case _:
            return json.dumps(block, ensure_ascii=False)


def _format_size(encoded: str) -> str:
    """Return the size of what Base64 stands for."""
    return f"{max(1, len(encoded) * 3 // 4 // 1000):,} kB"
