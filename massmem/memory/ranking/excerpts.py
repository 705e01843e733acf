"""Sentences that hold the words of the question: what a passage is cut to where the room is small. Pure.

A code, a name or a number is said once and stands in one sentence. Ten such sentences fit where three passages do.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

from massmem.memory.ranking import text as analysis
from massmem.memory.ranking.retrieval import Candidates, Floats, Ints, by_words, coverage

SMALL_ROOM = 400
"""Tokens: a larger room holds enough whole passages, in which the answer may stand beside the words of the question."""

_MOST = 250
"""Tokens of excerpts."""

_READ = 40
"""Passages that are read for it."""

_LEAST = 0.5
"""A passage with a smaller share of what the best one has of the question's words is not read."""

_GOOD = 0.66
"""Of what the best sentence has in common with the question: with less it is left to the other witnesses."""

_STEPS = 20
"""Scores are compared in so many steps; in the same step the newest is first: what was said last is what holds."""

_SHORT = 15
"""Tokens: a neighbour not longer than this stays, it would cost little less to leave it out."""

_GAP = 2
"""Tokens of " …", which stands for what is left out."""

_OF_A_CODE = 0.5
"""So much less counts a word that is only part of a code ("reed" in REED-4410) which the question does not name."""

_CODE = re.compile(r"(?=[\w-]*\d)[^\W_]+(?:[-_][^\W_]+)+")

Count = Callable[[str], int]
"""Tokens of a sentence as it is shown."""

Excerpt = Mapping[int, str]
"""Sentences of a passage by their place in it."""


@dataclass(frozen=True, slots=True)
class _Match:
    """A sentence that holds words of the question. alike: the same for those that differ in numbers alone.

    held: how much of the question's words. score: the same, short sentences first, which say it best.
    """

    passage: int
    place: int
    held: float
    score: float
    when: tuple[int, int]
    alike: tuple[object, ...]


def to_read(c: Candidates, scores: Floats) -> Ints:
    """Indexes of the passages whose texts `excerpts` wants, the best by their words first."""
    own = coverage(c)
    order = by_words(c, scores)
    return order[: int((own >= _LEAST * own.max(initial=0)).sum())][:_READ]


def excerpts(
    c: Candidates, scores: Floats, texts: Mapping[int, str], terms: frozenset[str], tokens: int, count: Count
) -> dict[int, Excerpt]:
    """The sentences that match best, by passage, in a room of so many tokens with their labels; best first.

    texts: of passages by index. terms: stems of the question's words.
    """
    tokens = min(tokens, _MOST)
    found: dict[int, dict[int, str]] = {}
    messages: set[int] = set()
    for match in _best(_matches(c, texts, terms), scores):
        message, excerpt = int(c.message[match.passage]), found.get(match.passage, {})
        more = _with_neighbours(_analysed(texts[match.passage]), match, terms, count)
        more = {place: sentence for place, sentence in more.items() if place not in excerpt}
        further = match.passage in found or message in messages
        cost = cost_of(more, count) + (_GAP if further else int(c.label[match.passage]))
        if cost <= tokens:
            tokens -= cost
            found[match.passage] = {**excerpt, **more}
            messages.add(message)
    return {**found}


def cost_of(excerpt: Excerpt, count: Count) -> int:
    """Tokens of the excerpt, without a label."""
    return sum(map(count, excerpt.values())) + _GAP * max(0, len(excerpt) - 1)


def shown(excerpt: Excerpt) -> str:
    """The text of an excerpt, " … " where sentences between two others are left out."""
    text = ""
    for place, sentence in sorted(excerpt.items()):
        between = "" if not text else " " if place - 1 in excerpt else " … "
        text += f"{between}{sentence}"
    return text


@dataclass(frozen=True, slots=True)
class _Sentence:
    """terms: stems of its words. alone: of those outside of codes. codes: of each code. name: all without numbers."""

    text: str
    terms: tuple[str, ...]
    alone: frozenset[str]
    codes: tuple[frozenset[str], ...]
    name: tuple[str, ...]


@lru_cache(4096)
def _analysed(text: str) -> tuple[_Sentence, ...]:
    found: list[_Sentence] = []
    for sentence in analysis.sentences(text):
        terms = tuple(analysis.terms(sentence))
        alone = frozenset(analysis.terms(_CODE.sub(" ", sentence)))
        codes = tuple(frozenset(analysis.terms(code)) for code in _CODE.findall(sentence))
        found.append(_Sentence(sentence, terms, alone, codes, tuple(t for t in terms if t.isalpha()) or terms))
    return tuple(found)


def _matches(c: Candidates, texts: Mapping[int, str], terms: frozenset[str]) -> list[_Match]:
    found: list[_Match] = []
    for i, text in texts.items():
        passage = _analysed(text)
        rarity = _rarity(float(c.bm25[i]), [term for sentence in passage for term in sentence.terms], terms)
        when = int(c.day[i]), int(c.key[i])
        for place, sentence in enumerate(passage):
            if words := terms.intersection(sentence.terms):
                meant = sentence.alone.union(*(code for code in sentence.codes if code <= terms))
                held = rarity * (len(words) - _OF_A_CODE * len(words - meant))
                score = held / sqrt(analysis.length_norm(len(sentence.terms)))
                alike = (int(c.speaker[i]), words, sentence.name)
                found.append(_Match(i, place, held, score, when, alike))
    return found


def _rarity(bm25: float, passage: Sequence[str], terms: frozenset[str]) -> float:
    """The mean IDF of the question's words that a passage has, from its BM25: the index alone knows each of them."""
    weights = analysis.document_vector(passage)
    whole = sum(weights[index] for term in terms if (index := analysis.term_id(term)) in weights)
    return bm25 / whole if whole else 0.0


def _best(found: Sequence[_Match], scores: Floats) -> Sequence[_Match]:
    """Best first, and of those that are alike the newest, in the place of the best of them."""
    most = max((match.held for match in found), default=0.0)
    good = [match for match in found if match.held >= _GOOD * most]
    top = max((match.score for match in good), default=0.0)
    good.sort(
        key=lambda match: (round(_STEPS * match.score / top), float(scores[match.passage]), match.when), reverse=True
    )
    newest: dict[tuple[object, ...], _Match] = {}
    for match in good:
        known = newest.get(match.alike)
        if known is None or match.when > known.when:
            newest[match.alike] = match
    return [*newest.values()]


def _with_neighbours(found: Sequence[_Sentence], match: _Match, terms: frozenset[str], count: Count) -> dict[int, str]:
    """The sentence and its short neighbours; those that match themselves come in their own turn."""
    near = (at for at in (match.place - 1, match.place + 1) if 0 <= at < len(found))
    short = [at for at in near if terms.isdisjoint(found[at].terms) and count(found[at].text) <= _SHORT]
    return {at: found[at].text for at in (match.place, *short)}
