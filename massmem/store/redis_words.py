"""The words of a session's messages as Redis keeps them, and the search in them. Pure.

Each session has its own index, which expires with it: a search reads one hash of each session that it may look into,
64 words of it at most, whatever the length of the texts. Ranking is BM25 (Robertson and Zaragoza, 2009), with the
values that SQLite's FTS5 uses.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

from massmem.records import MessageRecord
from massmem.store.words import words

_SOUGHT = ("user", "assistant", "tool_call")
_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Hit:
    """A message with words of the query; score: the higher the better."""

    score: float
    session_id: str
    seq: int


def counted(message: MessageRecord) -> Counter[str]:
    """How often each word stands in the message; none for kinds that are not searched."""
    return Counter(words(message.content)) if message.kind in _SOUGHT else Counter()


def adding(messages: Iterable[MessageRecord]) -> list[str]:
    """Words, each with the text that its entry is made longer by."""
    found: dict[str, str] = {}
    for message in messages:
        times = counted(message)
        if times:
            found[""] = found.get("", "") + f"{message.seq}:{times.total()};"
        for word, number in times.items():
            found[word] = found.get(word, "") + f"{message.seq}:{number};"
    return [part for pair in found.items() for part in pair]


def cutting(messages: Iterable[MessageRecord]) -> list[str]:
    """Words, each with the seq of a message that is taken out of its entry."""
    found: list[str] = []
    for message in messages:
        for word in ("", *times) if (times := counted(message)) else ():
            found += (word, str(message.seq))
    return found


def ranked(query: Sequence[tuple[str, ...]], reply: Sequence[tuple[str, Sequence[str]]], sessions: int) -> list[Hit]:
    """Messages with any word of the query, best first; a word of several parts counts where all of them stand.

    reply: per session the entries of `flat(query)`, and that of "". sessions: how many were looked into.
    """
    places = [(session_id, [_entry(text) for text in texts]) for session_id, texts in reply]
    lengths = [number for _, entries in places for number in entries[-1].values()]
    if not lengths:
        return []
    average = sum(lengths) / len(lengths)
    # What the other sessions hold is not known; as many messages each as those that were found.
    total = len(lengths) * max(sessions, len(places)) / len(places)
    index = {part: i for i, part in enumerate(flat(query))}
    scores: dict[tuple[str, int], float] = {}
    for word in query:
        found = {
            (session_id, seq): (times, entries[-1].get(seq, 1))
            for session_id, entries in places
            for seq, times in _together([entries[index[part]] for part in word]).items()
        }
        weight = log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
        for place, (times, length) in found.items():
            value = weight * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length / average))
            scores[place] = scores.get(place, 0.0) + value
    hits = [Hit(score, *place) for place, score in scores.items()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.session_id, hit.seq))


def flat(query: Iterable[tuple[str, ...]]) -> list[str]:
    """The distinct single words of a query."""
    return list(dict.fromkeys(part for word in query for part in word))


def has_any(query: Iterable[tuple[str, ...]], text: str) -> bool:
    """Whether any word of the query stands in the text, with its parts side by side."""
    joined = f" {' '.join(words(text))} "
    return any(f" {' '.join(word)} " in joined for word in query)


def _entry(text: str) -> dict[int, int]:
    pairs = (pair.split(":") for pair in text.split(";") if pair)
    return {int(seq): int(times) for seq, times in pairs}


def _together(parts: Sequence[dict[int, int]]) -> dict[int, int]:
    """The messages that have all parts, with how often at most."""
    if len(parts) == 1:
        return parts[0]
    return {seq: min(part[seq] for part in parts) for seq in set(parts[0]).intersection(*parts[1:])}
