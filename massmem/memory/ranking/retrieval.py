"""Ranking and packing of what is recalled. Pure functions on numpy arrays: no index, no model, no clock.

A candidate is a passage (one or two sentences of a message) or a fact. Passages that follow each other in a session
have keys that differ by one; a fact has no neighbours. `score` ranks candidates by their words, place, speaker and
date; for the SHORTLIST best `with_meaning` adds what the embedder says; `select` packs them into the budget.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from massmem.memory.ranking.question import Question, named
from massmem.memory.ranking.text import BM25_B, BM25_K1, TYPICAL_TERMS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SHORTLIST = 100
"""Candidates that the embedder is asked about: budgets up to 2,000 tokens show fewer; 120 and 250 recall the same."""

BY_WORDS = 200
"""Tokens, of four fifths of the room at most, for the best by their own words: what was said once, and to nobody in
particular, has no neighbours and no speaker to speak for it. More costs recall of conversations, less loses codes and
names."""

_TOKENS_PER_TERM = 2.0

HEADER_TOKENS = 7
"""Of "[8 May 2023]" and its line break."""


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
    person: float = 1.0
    """Said by the one whom the question is about ("my" is the user, "Maria" is Maria)."""
    date: float = 1.0
    """Told on, or soon after, a date that the question names."""
    time: float = 0.2
    """Says when, and the question asks when."""
    asking: float = -0.2
    """Is itself a question: asks rather than tells."""
    reach: int = 3
    """Neighbours on each side."""
    after: float = 0.8
    """What follows a match counts so much less with each step: answers follow questions."""
    before: float = 0.6
    """The same for what precedes it."""
    repeat: float = 0.8
    """Each further passage of a message, when the question is about a person: such answers are spread."""


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Parallel arrays, sorted by key.

    bm25: 0 when no word matches. session, message: numbers that tell them apart, small ones for sessions. speaker:
    index into `speakers`. label, tokens: what its label and its text cost. day: ordinal of its date.
    """

    key: Ints
    bm25: Floats
    session: Ints
    message: Ints
    speaker: Ints
    from_user: Flags
    asks: Flags
    has_time: Flags
    label: Ints
    tokens: Ints
    day: Ints
    speakers: tuple[str, ...]

    def take(self, which: Ints | Flags) -> "Candidates":
        """Some of them: ascending indexes, or a mask."""
        return Candidates(
            self.key[which],
            self.bm25[which],
            self.session[which],
            self.message[which],
            self.speaker[which],
            self.from_user[which],
            self.asks[which],
            self.has_time[which],
            self.label[which],
            self.tokens[which],
            self.day[which],
            self.speakers,
        )


def score(question: Question, c: Candidates, w: Weights = DEFAULT_WEIGHTS) -> Floats:
    """One number per candidate, higher is better: everything but the cosine."""
    if not len(c.key):
        return np.zeros(0)
    total = w.words * _scaled(c.bm25) + w.around * _scaled(around(c.key, c.bm25, w))
    total += w.session * _scaled(best_of_session(c.session, c.bm25))
    total += w.person * _said_by_whom(question, c) + w.asking * c.asks
    if question.days:
        total += w.date * np.logical_or.reduce([(c.day >= first) & (c.day <= last) for first, last in question.days])
    if question.wants_time:
        total += w.time * c.has_time
    return total


def _scaled(values: Floats) -> Floats:
    top = float(values.max(initial=0.0))
    return values / top if top > 0 else values


def around(key: Ints, bm25: Floats, w: Weights) -> Floats:
    """Own score plus the faded scores of the neighbours; `key` ascends, and none is there twice."""
    steps = np.arange(w.reach + 2)
    before, after = w.before**steps, w.after**steps
    before[-1] = after[-1] = 0.0
    total = bm25.copy()
    for offset in range(1, w.reach + 1):  # who is `reach` keys away is at most so many places away
        gap = np.minimum(key[offset:] - key[:-offset], w.reach + 1)
        total[:-offset] += before[gap] * bm25[offset:]
        total[offset:] += after[gap] * bm25[:-offset]
    return total


def best_of_session(session: Ints, bm25: Floats) -> Floats:
    """For each candidate the best score in its session."""
    best = np.zeros(int(session.max(initial=0)) + 1)
    np.maximum.at(best, session, bm25)
    return best[session]


def _said_by_whom(question: Question, c: Candidates) -> Flags:
    """Which were said by the one whom the question is about; none, when everyone was."""
    said = np.zeros(len(c.key), np.bool_)
    names = named(question, c.speakers)
    if names and len(names) < len(c.speakers):
        said |= np.array([speaker in names for speaker in c.speakers], np.bool_)[c.speaker]
    if question.about_user:
        said |= c.from_user
    return said


def shortlist(scores: Floats, size: int = SHORTLIST) -> Ints:
    """Indexes of the best candidates, ascending."""
    if len(scores) <= size:
        return np.arange(len(scores))
    return np.sort(np.argpartition(-scores, size)[:size])


def with_meaning(scores: Floats, cosines: Floats, w: Weights = DEFAULT_WEIGHTS) -> Floats:
    """Add the embedder's opinion."""
    return scores + w.meaning * _scaled(np.maximum(cosines, 0))


@dataclass(frozen=True, slots=True)
class Room:
    """tokens: of the text that is shown. messages: most of them, None for any number."""

    tokens: int
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class Picked:
    """chosen: indexes of candidates, best first. whole: those of them that are more than an excerpt. tokens: used."""

    chosen: list[int]
    whole: frozenset[int]
    tokens: int


def select(
    question: Question,
    c: Candidates,
    scores: Floats,
    room: Room,
    excerpts: Mapping[int, int] | None = None,
    out: Collection[int] = (),
) -> Picked:
    """What to show: first a few by their own words, then greedily by score, until the room is used.

    When the question is about a person, each further passage of a message counts Weights.repeat times less, so that
    one long message does not fill the room.

    excerpts: what is taken by its words: tokens of excerpts, by the index of the candidate that they are cut from;
    None: whole candidates. out: what may not be shown.
    """
    if question.about_user or named(question, c.speakers):
        scores = _spread(scores, c.message, DEFAULT_WEIGHTS.repeat)
    order = np.argsort(-scores, kind="stable")
    if out:
        order = order[~_mask(out, len(scores))[order]]
    first = _by_words(c, scores, min(BY_WORDS, room.tokens * 4 // 5)) if excerpts is None else excerpts
    first = {i: tokens for i, tokens in first.items() if i not in out}
    chosen, whole, used = _fill(c, order, first, room)
    return Picked(order[_mask(chosen, len(scores))[order]].tolist(), whole, used)


def _mask(these: Collection[int], size: int) -> Flags:
    """Which of so many indexes are these."""
    flags = np.zeros(size, np.bool_)
    flags[np.fromiter(these, np.int64, len(these))] = True
    return flags


def coverage(c: Candidates) -> Floats:
    """How much of the question's words a passage has, rare ones counting more: BM25 without what its length does."""
    length = c.tokens / _TOKENS_PER_TERM / TYPICAL_TERMS
    return c.bm25 * (1 + BM25_K1 * (1 - BM25_B + BM25_B * length)) / (BM25_K1 + 1)


def by_words(c: Candidates, scores: Floats) -> Ints:
    """Indexes of what has words of the question, the best by these first, then by score, then what was said last."""
    own = coverage(c)
    return np.lexsort((-c.key, -c.day, -scores, -own))[: np.count_nonzero(own > 0)]


def _by_words(c: Candidates, scores: Floats, tokens: int) -> dict[int, int]:
    """The best by their own words alone, in so many tokens; of those that match the same words equally well, one."""
    order = by_words(c, scores)
    chosen: dict[int, int] = {}
    seen: set[float] = set()
    columns = (order, c.bm25[order].round(2), c.tokens[order], c.label[order])
    for i, alike, size, label in zip(*(column.tolist() for column in columns), strict=True):
        if size + label <= tokens and alike not in seen:
            seen.add(alike)
            chosen[i] = size
            tokens -= size + label
    return chosen


def _spread(scores: Floats, message: Ints, repeat: float) -> Floats:
    times: dict[int, int] = {}
    spread = scores.copy()
    for i in np.argsort(-scores, kind="stable").tolist():
        of = int(message[i])
        before = times[of] = times.get(of, -1) + 1
        if before and scores[i] > 0:
            spread[i] *= repeat**before
    return spread


def _fill(c: Candidates, order: Ints, excerpts: Mapping[int, int], room: Room) -> tuple[list[int], frozenset[int], int]:
    """What does not fit is passed over: a shorter one may fit. An excerpt that comes up again is made whole."""
    left = room.tokens
    messages: set[int] = set()
    headers: set[tuple[int, int]] = set()
    taken: dict[int, int] = {}
    whole: set[int] = set()
    at = np.concatenate([np.fromiter(excerpts, np.int64, len(excerpts)), order])
    columns = (at, c.message[at], c.session[at], c.day[at], c.label[at], c.tokens[at])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for turn, (i, message, session, day, label, all_of_it) in enumerate(rows):
        tokens = excerpts[i] if turn < len(excerpts) else all_of_it
        further = message in messages
        if not further and room.messages is not None and len(messages) >= room.messages:
            continue
        cost = tokens + (1 if further else label) + (0 if (session, day) in headers else HEADER_TOKENS)
        if i in taken:
            cost = tokens - taken[i]
        if cost <= left:
            left -= cost
            taken[i] = tokens
            messages.add(message)
            headers.add((session, day))
            if turn >= len(excerpts):
                whole.add(i)
    return [*taken], frozenset(whole), room.tokens - left


def in_time_order(c: Candidates, chosen: Sequence[int]) -> list[int]:
    """Days in order, a session's passages of a day together in theirs, its facts after them."""
    at = np.array(chosen, np.int64)
    return at[np.lexsort((c.key[at], c.session[at], c.day[at]))].tolist()
