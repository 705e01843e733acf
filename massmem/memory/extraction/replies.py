"""The reply of a model, read as statements. Pure.

A reply is hostile or broken until read: it may be prose, half a JSON text, or the same sentence a hundred times.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
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
    """One item of a reply."""

    text: str
    sources: tuple[str, ...] = ()
    """The labels of messages that the model named, in its own spelling."""
    claim: tuple[str, str, str] | None = None
    """Subject, attribute and value, where it says that an attribute has a value."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply says."""

    statements: tuple[Statement, ...]
    complete: bool = True
    """False when the reply broke off, or when some of its items could not be read."""


def parse_reply(reply: str, *, cut: bool = False) -> ParsedReply:
    """Return the statements in a model's reply, in their order.

    An object with a list, a bare list, texts instead of objects, code fences, thoughts before it, and a list that
    breaks off after whole items are all understood. An empty list means: nothing to remember.

    cut: the reply ended at its limit of tokens. Then a list with other text after it may be a draft of the one that
    was cut.

    Raises:
        MalformedResponse: it holds no such list, or nothing whole in it.
    """
    text = reply.strip()
    if not text:
        raise MalformedResponse("the model's reply was empty instead of a list of facts")
    facts = _decode_all(text)
    if facts is None:
        text = _unwrap(text)
        facts = _decode_all(text) or _decode_embedded(text, cut=cut)
    if facts is None:
        raise MalformedResponse(f"the model's reply was no list of facts: {_excerpt(reply)}")
    items, closed = facts
    statements = tuple(statement for item in items if (statement := _as_statement(item)))
    if not statements and (items or not closed):
        raise MalformedResponse(f"no fact in the model's reply could be read: {_excerpt(reply)}")
    return ParsedReply(statements, closed and len(statements) == len(items))


def repeats(text: str) -> bool:
    """Whether the last whole statement of a reply that is still being written is in it a second time."""
    facts = _decode_embedded(text)
    texts = [statement.text for item in (facts[0] if facts else ()) if (statement := _as_statement(item))]
    return len(texts) > 1 and texts[-1] in texts[:-1]


def _decode_all(text: str) -> tuple[list[Any], bool] | None:
    try:
        return _items(_DECODER.decode(text))
    except (ValueError, RecursionError):
        return None


def _unwrap(text: str) -> str:
    """Remove the thoughts before the reply and its code fence. A thought that never ended leaves nothing."""
    text = text.rpartition("</think>")[2].partition("<think>")[0].strip()
    if text.startswith("```"):
        text = text.partition("\n")[2]
    return text.removesuffix("```").strip()


def _decode_embedded(text: str, *, cut: bool = False) -> tuple[list[Any], bool] | None:
    """Return the first list of facts inside other text, or the whole items of one that breaks off."""
    for start in _find_starts(text):
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            if opened := _OPEN_LIST.match(text, start):
                return _decode_items(text, opened.end()), False
            continue
        facts = _items(value)
        # A bare [] amid prose says nothing; as the whole reply, or inside an object, it means: nothing to remember.
        if facts is not None and (isinstance(value, dict) or any(map(_as_statement, facts[0]))):
            items, closed = facts
            return items, closed and not (cut and text[end:].strip())
    return None


def _find_starts(text: str) -> Iterator[int]:
    matches = re.finditer(r"[\[{]", text)
    return (match.start() for match in islice(matches, _MOST_STARTS))


def _decode_items(text: str, position: int) -> list[Any]:
    """Return the whole items of a list that breaks off. position: behind its bracket."""
    items: list[Any] = []
    while True:
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        try:
            item, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return items
        items.append(item)


def _items(value: object) -> tuple[list[Any], bool] | None:
    """Return the list of facts that a JSON value stands for; None when it is something else."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        value = next((fields[name] for name in _LISTS if name in fields), None)
        if isinstance(value, dict):
            value = cast("list[object]", [value])
    return (cast("list[Any]", value), True) if isinstance(value, list) else None


def _as_statement(item: object) -> Statement | None:
    if isinstance(item, str):
        return Statement(item) if item.strip() else None
    if not isinstance(item, dict):
        return None
    fields = cast("dict[str, object]", item)
    text = next((value for name in _TEXTS if isinstance(value := fields.get(name), str) and value.strip()), None)
    if text is None:
        return None
    sources = fields.get("sources")
    labels = cast("list[object]", sources if isinstance(sources, list) else [sources] if sources else [])
    return Statement(text, tuple(str(label) for label in labels), _read_claim(fields))


def _read_claim(fields: dict[str, object]) -> tuple[str, str, str] | None:
    match [fields.get(name) for name in ("subject", "attribute", "value")]:
        case [str(subject), str(attribute), str() | int() | float() as value] if attribute.strip():
            return subject, attribute, str(value)
        case _:
            return None


def _excerpt(text: str) -> str:
    line = " ".join(redact(text[:2_000]).split())
    return repr(line if len(line) <= 120 else f"{line[:119]}…")
