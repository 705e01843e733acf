"""From what a model replied to clean facts. Pure: nothing here asks a model.

A reply is hostile or broken until read: it may be prose, half a JSON text, or hold what poses as part of our prompts.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from massmem.errors import MalformedResponse
from massmem.memory.quoting import LONGEST_FACT
from massmem.redact import redact

SHORTEST_FACT = 10
"""Characters; what is shorter says nothing by itself."""

_LISTS = ("memory", "memories", "facts")
_TEXTS = ("text", "memory", "fact", "content")
_MOST_STARTS = 20
_DECODER = json.JSONDecoder(strict=False)

_OPEN_LIST = re.compile(r'\{\s*"(?:memory|memories|facts)"\s*:\s*\[|\[(?=\s*[{"])')

# What frames recalled memories and other agents' answers in our prompts, and chat templates in a model's own input.
_FRAMES = re.compile(
    r"[\[［【]\s?from\b[^\[\]［］【】]{0,100}?\bturn\s?\d{1,9}\s?[\]］】]"
    r"|\brelevant memories(?: of earlier work, quoted\b[^:]{0,120})?\s?:"
    r"|[<＜]\s?/?\s?(?:answer|memor(?:y|ies))\b[^<>＜＞]{0,200}[>＞]"
    r"|<\|[^<>|]{1,40}\|>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…。！？](?=[\"')\]]?(?:\s|$))|[。！？]")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_AROUND_WORDS = ".,;:!?…\"'`´‘’“”„«»()[]{}*_。、！？"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

# Not knowledge, however often a model is told to leave it out: ballots, and one answer held against another.
_ABOUT_THE_COUNCIL = re.compile(
    r"\bvot(?:e|es|ed|ing)\b.{0,40}\b(?:answer|agent|candidate)s?\b"
    r"|\b(?:answer|agent|candidate)s?[ _][a-z\d]\b(?:'s \w+)?.{0,30}\b(?:is|are|was|were)\b.{0,20}"
    r"\b(?:better|worse|best|stronger|weaker|preferable|superior)\b"
    r"|\breasons? (?:for|behind|of) (?:the |this |my )?vot(?:e|ing)\b",
    re.IGNORECASE,
)


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


def clean_fact(text: str) -> str:
    """`text` as one line without control characters and without what could pose as part of a prompt, cut to length.

    Empty when nothing is left.
    """
    visible = "".join(" " if _is_control(char) else char for char in _TERMINAL.sub("", text) if char not in _BIDI)
    line = " ".join(visible.split())
    while (less := " ".join(_FRAMES.sub(" ", line).split())) != line:
        line = less  # what is left may close up to a marker again
    return shortened(line, LONGEST_FACT)


def shortened(text: str, longest: int) -> str:
    """At most `longest` characters: up to the end of a sentence, else up to a space and with an ellipsis."""
    if len(text) <= longest:
        return text
    head = text[:longest]
    ends = [found.end() for found in _SENTENCE_END.finditer(head + text[longest])]
    if ends and ends[-1] >= longest // 4:
        return head[: ends[-1]].rstrip()
    words = head[: longest - 1].rsplit(" ", 1)[0] if " " in head[longest // 2 :] else head[: longest - 1]
    return f"{words.rstrip()}…"


def is_knowledge(text: str) -> bool:
    """It says something about the world, and not about who voted for which answer."""
    return len(text) >= SHORTEST_FACT and not _ABOUT_THE_COUNCIL.search(text)


def normalised(text: str) -> str:
    """What two facts have in common that differ only in case, spacing, Unicode form, or punctuation around words.

    Signs that carry meaning stay: C++ is not C, and -5 is not 5.
    """
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(word for part in words if (word := part.strip(_AROUND_WORDS)))


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


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")


def _excerpt(text: str) -> str:
    line = " ".join(redact(text[:2_000]).split())
    return repr(line if len(line) <= 120 else f"{line[:119]}…")
