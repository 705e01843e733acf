"""What a model replied, as statements. Pure.

A reply is hostile or broken until read: it may be prose, half a JSON text, or the same sentence a hundred times.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from massmem.core.errors import MalformedResponse
from massmem.core.redact import redact

_LISTS = ("memory", "memories", "facts")
_TEXTS = ("text", "memory", "fact", "content")
_MOST_STARTS = 20
_DECODER = json.JSONDecoder(strict=False)

_OPEN_LIST = re.compile(r'\{\s*"(?:memory|memories|facts)"\s*:\s*\[|\[(?=\s*[{"])')


@dataclass(frozen=True, slots=True)
class Statement:
    """One item of a reply. sources: the labels of messages that the model named, in its own spelling."""

    text: str
    attributed_to: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says. complete: False when it broke off, or when some of its items could not be read."""

    statements: tuple[Statement, ...]
    complete: bool = True


def read_reply(reply: str | None) -> Reading:
    """The statements in a model's reply, in the order in which they stand there.

    An object with a list, a bare list, texts instead of objects, code fences, thoughts before it, and a list that
    breaks off after whole items are all understood. An empty list means: nothing to remember.

    Raises:
        MalformedResponse: it holds no such list, or nothing whole in it.
    """
    text = (reply or "").strip()
    if not text:
        raise MalformedResponse("the model's reply was empty instead of a list of facts")
    found = _whole(text)
    if found is None:
        text = _unwrapped(text)
        found = _whole(text) or _embedded(text)
    if found is None:
        raise MalformedResponse(f"the model's reply was no list of facts: {_excerpt(reply or '')}")
    items, closed = found
    statements = tuple(statement for item in items if (statement := _statement(item)))
    if not statements and (items or not closed):
        raise MalformedResponse(f"no fact in the model's reply could be read: {_excerpt(reply or '')}")
    return Reading(statements, closed and len(statements) == len(items))


def repeats(begun: str) -> bool:
    """The last whole statement of a reply that is still being written stands there already."""
    found = _embedded(begun)
    texts = [statement.text for item in (found[0] if found else ()) if (statement := _statement(item))]
    return len(texts) > 1 and texts[-1] in texts[:-1]


def _whole(text: str) -> tuple[list[Any], bool] | None:
    try:
        return _items(_DECODER.decode(text))
    except (ValueError, RecursionError):
        return None


def _unwrapped(text: str) -> str:
    """Without the thoughts before it and its code fence. A thought that never ended leaves nothing."""
    text = text.rpartition("</think>")[2].partition("<think>")[0].strip()
    if text.startswith("```"):
        text = text.partition("\n")[2]
    return text.removesuffix("```").strip()


def _embedded(text: str) -> tuple[list[Any], bool] | None:
    """The first list of facts inside other text, or the whole items of one that breaks off."""
    for start in _starts(text):
        try:
            value, _ = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            if opened := _OPEN_LIST.match(text, start):
                return _before_the_break(text, opened.end()), False
            continue
        found = _items(value)
        # A bare [] amid prose says nothing; as the whole reply, or inside an object, it means: nothing to remember.
        if found is not None and (isinstance(value, dict) or any(map(_statement, found[0]))):
            return found
    return None


def _starts(text: str) -> Iterator[int]:
    for number, found in enumerate(re.finditer(r"[\[{]", text)):
        if number == _MOST_STARTS:
            return
        yield found.start()


def _before_the_break(text: str, at: int) -> list[Any]:
    items: list[Any] = []
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            item, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return items
        items.append(item)


def _items(value: object) -> tuple[list[Any], bool] | None:
    """The list of facts that a JSON value stands for; None when it is something else."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        value = next((fields[name] for name in _LISTS if name in fields), None)
        if isinstance(value, dict):
            value = cast("list[object]", [value])
    return (cast("list[Any]", value), True) if isinstance(value, list) else None


def _statement(item: object) -> Statement | None:
    if isinstance(item, str):
        return Statement(item) if item.strip() else None
    if not isinstance(item, dict):
        return None
    fields = cast("dict[str, object]", item)
    text = next((found for name in _TEXTS if isinstance(found := fields.get(name), str) and found.strip()), None)
    if text is None:
        return None
    by, sources = fields.get("attributed_to"), fields.get("sources")
    named = cast("list[object]", sources if isinstance(sources, list) else [sources] if sources else [])
    return Statement(text, by if isinstance(by, str) else "", tuple(str(label) for label in named))


def _excerpt(text: str) -> str:
    line = " ".join(redact(text[:2_000]).split())
    return repr(line if len(line) <= 120 else f"{line[:119]}…")
