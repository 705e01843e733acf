"""Words of texts and of queries, for stores that index them themselves.

Words are runs of letters and digits, without case and accents, as SQLite's index has them.
"""

import re
import unicodedata

MOST_WORDS = 64
"""Words of a query that are searched for."""

_LONGEST = 500
_ACCENTS = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """All words of a text, in order; what is longer than 500 characters is cut."""
    folded = text if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFD", text))
    return [word[:_LONGEST] for word in _WORD.findall(folded.casefold())]


def sought(query: str) -> list[tuple[str, ...]]:
    """The distinct words of a query, MOST_WORDS at most; parts of one word (snake_case) are to stand side by side."""
    parts = (tuple(words(word)) for word in re.findall(r"\w+", query))
    return list(dict.fromkeys(word for word in parts if word))[:MOST_WORDS]
