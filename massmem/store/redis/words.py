"""The words of a session's messages as Redis keeps them, and the search in them. Pure.

Each session has its own index, which expires with it: a search reads one hash of each session that it may look into,
64 words of it at most, whatever the length of the texts. Ranking is BM25 (Robertson and Zaragoza, 2009), with the
values that SQLite's FTS5 uses.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log

from massmem.records import MessageRecord
from massmem.store.words import words

Found = tuple[str, Sequence[str]]
"""A session with the entries of `flat(query)` in its index, "" for none, and that of "" last."""

_RANKED, _READ = 5_000, 10_000
"""Messages that are ranked, about: rarer words come first until they match so many together; and at most."""

_SOUGHT = ("user", "assistant", "tool_call", "tool_result")
_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Hit:
    """A message with words of the query; score: the higher the better."""

    score: float
    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class _Term:
    """A word of the query. parts: where its entries are. messages: how many have it, at most."""

    parts: list[int]
    messages: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A session with messages that are to be ranked. texts: the entries that were found in it."""

    session_id: str
    texts: Sequence[str]
    seqs: set[int]


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


def ranked(query: Sequence[tuple[str, ...]], reply: Sequence[Found], sessions: int) -> list[Hit]:
    """Messages with a word of the query, best first; a word of several parts counts where all of them stand.

    reply: what was found in each session with any of the words. sessions: how many were looked into. Where very many
    messages have a word, the rarer words choose those that are ranked.
    """
    if not reply:
        return []
    index = {part: i for i, part in enumerate(flat(query))}
    counts = [sum(texts[i].count(";") for _, texts in reply) for i in range(len(index) + 1)]
    # What the other sessions hold is not known; as many messages each as those that were found.
    total = counts[-1] * max(sessions, len(reply)) / len(reply)
    terms = [_Term([index[part] for part in word], min(counts[index[part]] for part in word)) for word in query]
    places = list(_first(_places(reply, _chosen([term for term in terms if term.messages]))))
    lengths = {place.session_id: _entry(place.texts[-1]) for place in places}
    measured = [number for of_session in lengths.values() for number in of_session.values()]
    average = sum(measured) / max(len(measured), 1)
    scores: defaultdict[tuple[str, int], float] = defaultdict(float)
    for term in terms:
        # BM25 with this many messages: how rare the word is, how often it is there, how long the message is.
        weight = log(1 + (max(total - term.messages, 0.0) + 0.5) / (term.messages + 0.5)) * (_K1 + 1)
        for place in places:
            for seq, times in _together(place.texts, term).items():
                if seq in place.seqs:
                    length = lengths[place.session_id].get(seq, average) / average
                    value = weight * times / (times + _K1 * (1 - _B + _B * length))
                    scores[place.session_id, seq] += value
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


def _together(texts: Sequence[str], term: _Term) -> dict[int, int]:
    """The messages of a session that have all parts of the word, with how often at most."""
    first, *others = (_entry(texts[part]) for part in term.parts)
    if not others:
        return first
    return {seq: min(part[seq] for part in (first, *others)) for seq in set(first).intersection(*others)}


def _chosen(found: Sequence[_Term]) -> list[_Term]:
    """The rarest word, and others as long as few messages have them."""
    chosen: list[_Term] = []
    together = 0
    for term in sorted(found, key=lambda term: term.messages):
        together += term.messages
        if chosen and together > _RANKED:
            break
        chosen.append(term)
    return chosen


def _places(reply: Iterable[Found], chosen: Sequence[_Term]) -> Iterator[_Place]:
    for session_id, texts in reply:
        there = [term for term in chosen if all(texts[part] for part in term.parts)]
        if seqs := {seq for term in there for seq in _together(texts, term)}:
            yield _Place(session_id, texts, seqs)


def _first(places: Iterable[_Place]) -> Iterator[_Place]:
    """As many as may be ranked, for a query of nothing but common words."""
    read = 0
    for place in places:
        yield place
        read += len(place.seqs)
        if read >= _READ:
            return
