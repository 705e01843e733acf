"""How text is stored: events as JSON that every database accepts, pages of a log for another store, and words.

Words, of texts and of queries, are for stores that index them themselves: runs of letters and digits without case and
accents, as in the full-text index of SQLite.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from massmem.core.events import Event, read_event
from massmem.core.messages import clean_text
from massmem.core.records import LogEntry, MessageRecord, RecordingJob


class EncodedEvent(NamedTuple):
    """An event as it is stored."""

    event: Event
    json: str


def encode_event(event: Event) -> EncodedEvent:
    """Return the event and its JSON, without characters that a database refuses."""
    with suppress(UnicodeEncodeError):  # a lone surrogate
        if "\\u0000" not in (text := event.model_dump_json()):
            return EncodedEvent(event, text)
    event = read_event(clean_json(msgspec.to_builtins(event)))
    return EncodedEvent(event, event.model_dump_json())


def clean_json(value: Any) -> Any:
    """Return a JSON value without characters that a database refuses, in strings and in keys."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_json(key): clean_json(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [clean_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def build_log_page(log: Sequence[dict[str, Any]], recordings: Sequence[RecordingJob]) -> list[LogEntry]:
    """Return a page of a log with the recordings that its events queued.

    log: rows with seq, turn and payload, oldest first. A recording whose event is gone goes with the next event.
    """
    seqs = [row["seq"] for row in log]
    by_event: list[list[RecordingJob]] = [[] for _ in log]
    for recording in recordings:
        by_event[bisect_left(seqs, recording.seq)].append(recording)
    return [LogEntry(**row, recordings=tuple(rows)) for row, rows in zip(log, by_event, strict=True)]


MAX_QUERY_WORDS = 64
"""Words of a query that are searched for."""

_MAX_LENGTH = 500
_ACCENTS = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters that are written without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han."""


def _fold(text: str) -> str:
    return (text if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFD", text))).casefold()


def split_words(text: str) -> list[str]:
    """Return all words of a text in order, each cut to 500 characters."""
    return [word[:_MAX_LENGTH] for word in _WORD.findall(_fold(text))]


def split_query(query: str) -> list[tuple[str, ...]]:
    """Return the distinct words of a query, MAX_QUERY_WORDS at most.

    A word with several parts (snake_case) is a tuple of them: they must stand side by side in a text.
    """
    parts = (tuple(split_words(word)) for word in re.findall(r"\w+", _fold(query)))
    return list(dict.fromkeys(word for word in parts if word))[:MAX_QUERY_WORDS]


def quote_words(query: str) -> list[str]:
    """Return the distinct words of a query for SQLite's full-text search, MAX_QUERY_WORDS at most.

    Each is quoted: what FTS5 would read as an operator is a word like any other. An accent that is a character of its
    own, as macOS writes it, would split its word.
    """
    composed = _ACCENTS.sub("", unicodedata.normalize("NFC", query))
    return [f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", composed))][:MAX_QUERY_WORDS]


def find_unspaced_words(query: str) -> list[str]:
    """Return the distinct words of a query in scripts without spaces, MAX_QUERY_WORDS at most.

    An index of words has a whole clause as one word there, so a text is looked through for these instead.
    """
    words = re.findall(r"\w+", unicodedata.normalize("NFC", query))
    return [word for word in dict.fromkeys(words) if _UNSPACED.search(word)][:MAX_QUERY_WORDS]


def merge_hits(parts: Sequence[MessageRecord], words: Sequence[MessageRecord], limit: int) -> list[MessageRecord]:
    """Return the messages that two searches found, best first: those that both did, then those of the first.

    parts: with parts of unspaced words. words: with whole words.
    """
    both = {message.id for message in parts} & {message.id for message in words}
    unique = {message.id: message for message in (*parts, *words)}
    return sorted(unique.values(), key=lambda message: message.id not in both)[:limit]


async def split_pages(entries: Sequence[LogEntry], size: int = 500) -> AsyncGenerator[Sequence[LogEntry]]:
    """Yield the entries of a log in parts, as `import_session` takes them."""
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
