"""Ranks what may answer a question. Pure functions on numpy arrays: no index, no model, no clock.

A candidate is a passage (one or two sentences of a message) or a fact. Passages that follow each other in a session
have keys that differ by one; a fact has no neighbours. `score` ranks candidates by their words, place, speaker and
date; for the SHORTLIST best `add_meaning` adds what the embedder says.

Relevance feedback: what the best candidates talk about leads to memories that share no word with the question. Pure.

"What does Ana paint?" finds "Ana bought brushes for her studio"; "brushes" and "studio" then find what else she told of
them. Words are weighed as in RM3 (Abdul-Jaleel et al., UMass at TREC 2004). They find candidates; only the question's
own words rank them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from massmem.memory.origins import mark_source
from massmem.memory.persistent import USER, Memory, Scope
from massmem.memory.points import ASKS, HAS_TIME, CountTokens
from massmem.memory.quoting import find_author, format_label
from massmem.memory.retrieval.query import Question, find_names
from massmem.memory.words import BM25_B, BM25_K1, TYPICAL_TERMS, extract_terms, term_id

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SHORTLIST = 100
"""Candidates that the embedder is asked about: budgets up to 2,000 tokens show fewer; 120 and 250 recall the same."""

_TOKENS_PER_TERM = 2.0

_DECIMALS = 6
"""Scores are compared to so many decimals: sums of the same numbers in another order differ behind them."""


@dataclass(frozen=True, slots=True)
class Weights:
    """In units of "the best match of this query": every signal is scaled to 0..1. Round numbers, none fitted."""

    words: float = 0.5
    """The passage's own BM25; it counts in `around` once more."""
    around: float = 1.0
    """BM25 of the passage with its neighbours: answers stand beside the words of the question."""
    session: float = 0.5
    """Best passage of the session: the right conversation first."""
    meaning: float = 0.5
    """Cosine; half, because a small embedder is a weaker witness than the words."""
    meaning_in_any_language: float = 1.5
    """Cosine of a multilingual embedder: nearly as much as the words. With 1 Japanese finds less, with 2 English."""
    person: float = 1.0
    """Said by the one whom the question is about ("my" is the user, "Maria" is Maria)."""
    date: float = 1.0
    """Told on, or soon after, a date that the question names."""
    time: float = 0.2
    """Names a time, and the question asks when."""
    asking: float = -0.2
    """Is itself a question: asks rather than tells."""
    reach: int = 3
    """Neighbours on each side."""
    after: float = 0.8
    """Weight, with each step, of the passages that follow a match: answers follow questions."""
    before: float = 0.6
    """The same for those that precede it."""
    repeat: float = 0.8
    """Each further passage of a message, when the question is about a person: such answers are spread."""


WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Memories that may answer a question, as parallel arrays sorted by key."""

    key: Ints
    """Ids of the points."""
    bm25: Floats
    """0 when no word matches."""
    order: Ints
    """Place in the order of time, then of the text: breaks ties, whatever ids the memories have."""
    session: Ints
    """Small numbers that tell sessions apart."""
    message: Ints
    """Small numbers that tell messages and facts apart."""
    line: Ints
    """Small numbers that tell lines apart, each with a label: passages of a message share one when all their labels are
    the same."""
    speaker: Ints
    """Index into `speakers`."""
    from_user: Flags
    asks: Flags
    has_time: Flags
    label: Ints
    """Tokens of the label, which says who spoke."""
    tokens: Ints
    """Tokens of the text."""
    day: Ints
    """Ordinal of the date."""
    memories: tuple[Memory, ...]
    speakers: tuple[str, ...]

    def take(self, which: Ints | Flags) -> "Candidates":
        """Return some of them. which: ascending indexes, or a mask."""
        indexes: Ints = np.arange(len(self.key))[which]
        positions: list[int] = indexes.tolist()
        columns: dict[str, Any] = {
            column.name: value[indexes]
            for column in fields(self)
            if isinstance(value := getattr(self, column.name), np.ndarray)
        }
        return replace(self, **columns, memories=tuple(self.memories[i] for i in positions))

    def with_relevance(self, relevance: Floats) -> "Candidates":
        """Return the candidates with the evidence that each matters for the question."""
        pairs = zip(self.memories, relevance.tolist(), strict=True)
        return replace(self, memories=tuple(replace(memory, relevance=value) for memory, value in pairs))


def build_candidates(
    memories: Sequence[Memory],
    numbers: Mapping[int, Sequence[int]],
    bm25: Mapping[int, float],
    scope: Scope,
    count: CountTokens,
) -> Candidates:
    """Return the memories as candidates for the scope's agent, whose own words need no name.

    numbers: `f` of the payloads, by id. bm25: by id. count: tokens of a text.
    """
    memories = sorted(memories, key=lambda memory: int(memory.id))
    keys = [int(memory.id) for memory in memories]
    f = np.array([numbers[key] for key in keys], np.int64).reshape(len(keys), 6)
    speakers = {name: i for i, name in enumerate(dict.fromkeys(memory.agent_id for memory in memories))}
    speaker = np.array([speakers[memory.agent_id] for memory in memories], np.int64)
    sessions = {name: i for i, name in enumerate(dict.fromkeys(memory.session_id for memory in memories))}
    sources = [memory.message_ids[0] if memory.kind == "episode" else memory.id for memory in memories]
    messages = {source: i for i, source in enumerate(dict.fromkeys(sources))}
    marks = ["; ".join(filter(None, (mark_source(m.rests_on, m.call), m.note))) for m in memories]
    line = _number_lines(memories, sources, marks)
    in_order = sorted(range(len(keys)), key=lambda i: (memories[i].created_at, f[i, 0], memories[i].text))
    order = np.zeros(len(keys), np.int64)
    order[in_order] = np.arange(len(keys))
    return Candidates(
        key=np.array(keys, np.int64),
        bm25=np.array([bm25.get(key, 0.0) for key in keys]).round(_DECIMALS),
        order=order,
        session=np.array([sessions[memory.session_id] for memory in memories], np.int64),
        message=np.array([messages[source] for source in sources], np.int64),
        line=line,
        speaker=speaker,
        from_user=np.array([memory.agent_id == USER for memory in memories], np.bool_),
        asks=(f[:, 2] & ASKS) > 0,
        has_time=(f[:, 2] & HAS_TIME) > 0,
        label=_count_labels(memories, marks, scope, count),
        tokens=f[:, 4],
        day=f[:, 5],
        memories=tuple(memories),
        speakers=tuple(speakers),
    )


def _number_lines(memories: Sequence[Memory], sources: Sequence[str], marks: Sequence[str]) -> Ints:
    """sources: the message or the fact of each memory. marks: what its label says beside the author."""
    marks_of: dict[str, set[str]] = {}
    for source, mark in zip(sources, marks, strict=True):
        marks_of.setdefault(source, set()).add(mark)
    keys = [s if len(marks_of[s]) == 1 else f"{s} {m.id}" for s, m in zip(sources, memories, strict=True)]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _count_labels(memories: Sequence[Memory], marks: Sequence[str], scope: Scope, count: CountTokens) -> Ints:
    reader = scope.agent_id
    labels = [(find_author(memory, reader, scope.names), mark) for memory, mark in zip(memories, marks, strict=True)]
    sizes = {
        (author, mark): count(f"10:15 {format_label(author, 1, reader, source=mark)}") + 1  # and a line break
        for author, mark in dict.fromkeys(labels)
    }
    return np.array([sizes[label] for label in labels], np.int64)


def score(question: Question, c: Candidates) -> Floats:
    """Return one number per candidate, higher is better: everything but the cosine."""
    if not len(c.key):
        return np.zeros(0)
    total = WEIGHTS.words * _scale(c.bm25) + WEIGHTS.around * _scale(add_neighbours(c.key, c.bm25))
    total += WEIGHTS.session * _scale(best_of_session(c.session, c.bm25))
    total += WEIGHTS.person * _is_by_person(question, c) + WEIGHTS.asking * c.asks
    if question.days:
        total += WEIGHTS.date * np.logical_or.reduce(
            [(c.day >= first) & (c.day <= last) for first, last in question.days]
        )
    if question.asks_time:
        total += WEIGHTS.time * c.has_time
    return total


def _scale(values: Floats) -> Floats:
    top = float(values.max(initial=0.0))
    return values / top if top > 0 else values


def add_neighbours(key: Ints, bm25: Floats) -> Floats:
    """Return each score plus the faded scores of the neighbours; `key` ascends, and none is there twice."""
    steps = np.arange(WEIGHTS.reach + 2)
    before, after = WEIGHTS.before**steps, WEIGHTS.after**steps
    before[-1] = after[-1] = 0.0
    total = bm25.copy()
    for offset in range(1, WEIGHTS.reach + 1):  # who is `reach` keys away is at most so many places away
        gap = np.minimum(key[offset:] - key[:-offset], WEIGHTS.reach + 1)
        total[:-offset] += before[gap] * bm25[offset:]
        total[offset:] += after[gap] * bm25[:-offset]
    return total


def best_of_session(session: Ints, bm25: Floats) -> Floats:
    """Return for each candidate the best score in its session."""
    best = np.zeros(int(session.max(initial=0)) + 1)
    np.maximum.at(best, session, bm25)
    return best[session]


def _is_by_person(question: Question, c: Candidates) -> Flags:
    """Return which were said by the one whom the question is about; none, when everyone was."""
    by_person = np.zeros(len(c.key), np.bool_)
    names = find_names(question, c.speakers)
    if names and len(names) < len(c.speakers):
        by_person |= np.array([speaker in names for speaker in c.speakers], np.bool_)[c.speaker]
    if question.about_user:
        by_person |= c.from_user
    return by_person


def sort_by_score(c: Candidates, scores: Floats) -> Ints:
    """Return indexes, best first; of equal ones the earlier first."""
    return np.lexsort((c.order, -scores.round(_DECIMALS)))


def shortlist(c: Candidates, scores: Floats, size: int = SHORTLIST) -> Ints:
    """Return indexes of the best candidates, ascending."""
    return np.sort(sort_by_score(c, scores)[:size])


def add_meaning(scores: Floats, cosines: Floats, *, is_multilingual: bool = False) -> Floats:
    """Return the scores with the embedder's opinion added. cosines: 0 for what has no vector."""
    if not is_multilingual:
        return scores + WEIGHTS.meaning * _scale(np.maximum(cosines, 0))
    lowest = cosines.min(where=cosines > 0, initial=1.0)  # all of them lie between 0.7 and 0.9
    return scores + WEIGHTS.meaning_in_any_language * _scale(np.maximum(cosines - lowest, 0))


def coverage(c: Candidates) -> Floats:
    """Return how much of the question's words each passage has, rare ones counting more: BM25 without its length."""
    length = c.tokens / _TOKENS_PER_TERM / TYPICAL_TERMS
    return (c.bm25 * (1 + BM25_K1 * (1 - BM25_B + BM25_B * length)) / (BM25_K1 + 1)).round(_DECIMALS)


def sort_by_words(c: Candidates, scores: Floats) -> Ints:
    """Return indexes of what has words of the question: the best by these first, then by score, then the latest."""
    own = coverage(c)
    order = np.lexsort((-c.order, -scores.round(_DECIMALS), -own))
    return order[: np.count_nonzero(own > 0)]


_PASSAGES = 10
"""The best candidates, whose words are taken; 5 and 20 recall no more."""
_COMPARED = 100
"""The candidates among which a word must stand out; 50, and all, recall the same."""
_TERMS = 20
"""10 and 40 recall the same."""
_SHARE = 0.6
"""Weight of all words of the candidates together, for 1 of the question's; 2 recalls no more."""


def expand_query(words: Mapping[int, float], question: Question, c: Candidates, scores: Floats) -> dict[int, float]:
    """Return the question's words with those that stand out in the best candidates; empty when none do.

    words: weight of each word of the question, by the word's number. scores: of the candidates.
    """
    ranked: list[int] = sort_by_score(c, scores).tolist()
    order = [i for i in ranked if not c.asks[i]][:_COMPARED]
    terms = {i: frozenset(extract_terms(c.memories[i].text)) for i in order}
    passages = Counter(term for of_passage in terms.values() for term in of_passage)
    known = question.terms.union(*(extract_terms(speaker) for speaker in c.speakers))
    weights: dict[str, float] = {}
    for i in order[:_PASSAGES]:
        for term in terms[i] - known:
            standing_out = log((len(terms) + 1) / (passages[term] + 0.5))
            weights[term] = weights.get(term, 0.0) + float(scores[i]) * standing_out
    chosen = sorted(weights, key=lambda term: (-weights[term], term))[:_TERMS]
    total = sum(weights[term] for term in chosen)
    if total <= 0:
        return {}
    share = _SHARE * sum(words.values()) / total
    return {term_id(term): share * weights[term] for term in chosen} | dict(words)
