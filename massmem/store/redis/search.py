"""Search in the messages of sessions by their words. Pure.

A session has 50 messages by default, so that its log is read as a whole: there is no index to keep.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

from massmem.core.records import MessageRecord
from massmem.store.ports import SEARCHED_KINDS
from massmem.store.redis.document import read_messages
from massmem.store.tokenizer import fold, split_words

Term = tuple[str, ...]
"""A word of a query; the parts of one such as snake_case stand side by side."""

_ADDED_WORDS = frozenset(("vote", "ask", "user"))
"""Words that the projection adds to what an event says."""

_K1, _B = 1.2, 0.75  # as SQLite's FTS5 has them


@dataclass(frozen=True, slots=True)
class Match:
    message: MessageRecord
    counts: tuple[int, ...]
    """How often each term of the query stands in the message."""
    length: int
    """Words of the message."""


def find_matches(session_id: str, members: Iterable[str], query: Sequence[Term]) -> list[Match]:
    """Return the messages of members of a log that have a term of the query."""
    parts = {part for term in query for part in term}
    if not parts & _ADDED_WORDS:
        # Most events need not be parsed then.
        members = [member for member in members if _contains_any(fold(member), parts)]
    matches: list[Match] = []
    for message in read_messages(session_id, members):
        words = split_words(message.content) if message.kind in SEARCHED_KINDS else []
        text = _join(words)
        counts = tuple(text.count(_join(term)) for term in query)
        if any(counts):
            matches.append(Match(message, counts, len(words)))
    return matches


def rank(matches: Sequence[Match], searched: int) -> list[MessageRecord]:
    """Return the messages, best first by BM25 (Robertson and Zaragoza, 2009). searched: how many were looked into."""
    average = sum(match.length for match in matches) / max(1, len(matches))
    found_in = [sum(map(bool, counts)) for counts in zip(*(match.counts for match in matches), strict=True)]
    weights = [log(1 + (max(searched - number, 0) + 0.5) / (number + 0.5)) for number in found_in]

    def score(match: Match) -> float:
        norm = _K1 * (1 - _B + _B * match.length / average)
        return sum(w * n * (_K1 + 1) / (n + norm) for w, n in zip(weights, match.counts, strict=True))

    best = sorted(matches, key=lambda match: (-score(match), match.message.session_id, match.message.seq))
    return [match.message for match in best]


def _join(words: Sequence[str]) -> str:
    # Blanks of its own on both sides of each word, so that a word next to itself is counted twice.
    return f" {'  '.join(words)} "


def _contains_any(text: str, parts: Iterable[str]) -> bool:
    return any(part in text for part in parts)
