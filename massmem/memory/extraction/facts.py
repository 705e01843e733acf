"""A model's reply as statements, and the rules for a fact: clean, short, grounded, and new. Pure.

A reply is hostile or broken until read: it may be prose, half a JSON text, or the same sentence a hundred times.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from massmem.core.errors import MalformedResponse
from massmem.core.redact import redact_line
from massmem.memory.quoting import LONGEST_FACT, to_one_line

SHORTEST_FACT = 10
"""Characters; what is shorter says nothing by itself."""

STEM = 5
"""First letters by which two forms of a word are taken for the same."""

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

# Not knowledge, however often a model is told to leave it out: ballots, and one answer held against another.
_ABOUT_THE_COUNCIL = re.compile(
    r"\bvot(?:e|es|ed|ing)\b.{0,40}\b(?:answer|agent|candidate)s?\b"
    r"|\b(?:answer|agent|candidate)s?[ _][a-z\d]\b(?:'s \w+)?.{0,30}\b(?:is|are|was|were)\b.{0,20}"
    r"\b(?:better|worse|best|stronger|weaker|preferable|superior)\b"
    r"|\breasons? (?:for|behind|of) (?:the |this |my )?vot(?:e|ing)\b",
    re.IGNORECASE,
)


def clean_fact(text: str) -> str:
    """Return the text as one line, cut to length, without control characters and what could pose as part of a prompt.

    Return "" when nothing is left.
    """
    line = to_one_line(_TERMINAL.sub("", text))
    while (less := " ".join(_FRAMES.sub(" ", line).split())) != line:
        line = less  # what is left may close up to a marker again
    return cut_text(line, LONGEST_FACT)


def cut_text(text: str, longest: int) -> str:
    """Cut a text to `longest` characters: after a sentence, else at a space and with an ellipsis."""
    if len(text) <= longest:
        return text
    head = text[:longest]
    ends = [match.end() for match in _SENTENCE_END.finditer(head + text[longest])]
    if ends and ends[-1] >= longest // 4:
        return head[: ends[-1]].rstrip()
    words = head[: longest - 1].rsplit(" ", 1)[0] if " " in head[longest // 2 :] else head[: longest - 1]
    return f"{words.rstrip()}…"


def cut_middle(text: str, longest: int, remark: str = "") -> str:
    """Cut a text to its beginning and its end, together `longest` characters. remark: stands where the rest was."""
    head, tail = 2 * longest // 3, longest // 3
    left_out = len(text) - head - tail
    return text if left_out <= 0 else f"{text[:head]}\n[{left_out:,} characters left out{remark}]\n{text[-tail:]}"


def is_knowledge(text: str) -> bool:
    """Whether the text says something about the world, and not about who voted for which answer."""
    return len(text) >= SHORTEST_FACT and not _ABOUT_THE_COUNCIL.search(text)


def is_grounded(text: str, messages: Iterable[str]) -> bool:
    """Whether every third telling word of the text, by its first letters, is in the messages.

    Small models also write down the examples of their prompt, or what they know themselves.
    """
    known = {word[:STEM] for message in messages for word in find_telling_words(message)}
    words = [word[:STEM] for word in find_telling_words(text)]
    return 3 * sum(word in known for word in words) >= len(words)


def find_telling_words(text: str) -> set[str]:
    """Return the words that tell what a text is about: long ones, and those with digits or signs."""
    return {word for word in normalize_fact(text).split() if len(word) > 3 or not word.isalpha()}


def normalize_fact(text: str) -> str:
    """Return a form that is equal for facts that differ only in case, spaces, Unicode form or punctuation.

    Signs that carry meaning stay: C++ is not C, and -5 is not 5.
    """
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(word for part in words if (word := part.strip(_AROUND_WORDS)))


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
    statements: tuple[Statement, ...]
    complete: bool = True
    """False when the reply broke off, or when some of its items could not be read."""


def parse_reply(reply: str, *, cut: bool = False) -> ParsedReply:
    """Return the statements in a model's reply, in their order.

    An object with a list, a bare list, texts instead of objects, code fences, thoughts before it, and a list that
    breaks off after whole items are all understood. An empty list means: nothing to remember.

    cut: the reply ended at its limit of tokens. Then a list with other text after it may be a draft of the one that
    was cut.

    Raises MalformedResponse: it holds no such list, or nothing whole in it.
    """
    text = reply.strip()
    if not text:
        raise MalformedResponse("the model's reply was empty instead of a list of facts")
    facts = _decode_all(text)
    if facts is None:
        text = _unwrap(text)
        facts = _decode_all(text) or _decode_embedded(text, cut=cut)
    if facts is None:
        raise MalformedResponse(f"the model's reply was no list of facts: {redact_line(reply, 120)!r}")
    items, closed = facts
    statements = tuple(statement for item in items if (statement := _as_statement(item)))
    if not statements and (items or not closed):
        raise MalformedResponse(f"no fact in the model's reply could be read: {redact_line(reply, 120)!r}")
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
    for match in islice(re.finditer(r"[\[{]", text), _MOST_STARTS):
        start = match.start()
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
