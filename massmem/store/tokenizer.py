"""Words of texts and of queries, for stores that index them themselves.

Words are runs of letters and digits without case and accents, as in SQLite's full-text index.
"""

import re
import unicodedata

MAX_QUERY_WORDS = 64
"""Words of a query that are searched for."""

_MAX_LENGTH = 500
_ACCENTS = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W_]+")


def _fold(text: str) -> str:
    """Return the text without case and accents."""
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
