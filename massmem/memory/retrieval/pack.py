"""Packs what is shown into a budget of tokens: whole passages by their rank. Pure.

For a question about a whole course of events: first a headline, a short piece, of each of many messages.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from massmem.memory.points import CountTokens
from massmem.memory.retrieval.query import Question, find_names
from massmem.memory.retrieval.rank import (
    WEIGHTS,
    Candidates,
    Flags,
    Floats,
    Ints,
    coverage,
    sort_by_score,
    sort_by_words,
)
from massmem.memory.words import (
    extract_terms,
    split_sentences,
)

BY_WORDS = 200
"""Tokens, of four fifths of the room at most, for the best by their own words: what was said once, and to nobody in
particular, has no neighbours and no speaker to speak for it. More costs recall of conversations, less loses codes and
names."""

HEADER_TOKENS = 11
"""Of "[8 May 2023, this conversation]" and its line break."""


@dataclass(frozen=True, slots=True)
class Room:
    tokens: int
    """Of the text."""
    messages: int | None = None
    """Most messages and facts; None for any number."""


@dataclass(frozen=True, slots=True)
class Packed:
    chosen: list[int]
    """Indexes of candidates, best first."""
    whole: frozenset[int]
    """Those of them that are more than a headline."""
    tokens: int
    """Used of the room."""


def pack(
    question: Question,
    c: Candidates,
    scores: Floats,
    room: Room,
    headlines: Mapping[int, int] | None = None,
    left_out: Collection[int] = (),
) -> Packed:
    """Choose what to show: first a few by their own words, then greedily by score, until the room is used.

    When the question is about a person, each further passage of a message counts Weights.repeat times less, so that
    one long message does not fill the room.

    headlines: tokens of those to begin with, by index of the candidate; None: begin with whole candidates.
    left_out: indexes of candidates that are not shown.
    """
    if question.about_user or find_names(question, c.speakers):
        scores = _lower_repeats(c, scores, WEIGHTS.repeat)
    order = sort_by_score(c, scores)
    if left_out:
        order = order[~_mask(left_out, len(scores))[order]]
    first = _best_by_words(c, scores, min(BY_WORDS, room.tokens * 4 // 5)) if headlines is None else headlines
    first = {i: tokens for i, tokens in first.items() if i not in left_out}
    chosen, whole, used = _fill(c, order, first, room)
    return Packed(order[_mask(chosen, len(scores))[order]].tolist(), whole, used)


def _mask(indexes: Collection[int], size: int) -> Flags:
    flags = np.zeros(size, np.bool_)
    flags[np.fromiter(indexes, np.int64, len(indexes))] = True
    return flags


def _best_by_words(c: Candidates, scores: Floats, tokens: int) -> dict[int, int]:
    """Return the best by their own words alone, in so many tokens; one of those that match the same words equally."""
    order = sort_by_words(c, scores)
    chosen: dict[int, int] = {}
    matches: set[float] = set()
    columns = (order, c.bm25[order].round(2), c.tokens[order], c.label[order])
    for i, match, size, label in zip(*(column.tolist() for column in columns), strict=True):
        if size + label <= tokens and match not in matches:
            matches.add(match)
            chosen[i] = size
            tokens -= size + label
    return chosen


def _lower_repeats(c: Candidates, scores: Floats, repeat: float) -> Floats:
    times: dict[int, int] = {}
    lowered = scores.copy()
    for i in sort_by_score(c, scores).tolist():
        message = int(c.message[i])
        before = times[message] = times.get(message, -1) + 1
        if before and scores[i] > 0:
            lowered[i] *= repeat**before
    return lowered


def _fill(c: Candidates, order: Ints, first: Mapping[int, int], room: Room) -> tuple[list[int], frozenset[int], int]:
    """Fill the room with `first` (tokens by index), then in the order of the ranking.

    What does not fit is passed over: a shorter one may fit. A headline that comes up again is made whole.
    """
    left = room.tokens
    messages: set[int] = set()
    lines: set[int] = set()
    headers: set[tuple[int, int]] = set()
    taken: dict[int, int] = {}
    whole: set[int] = set()
    indexes = np.concatenate([np.fromiter(first, np.int64, len(first)), order])
    columns = (indexes, c.message, c.line, c.session, c.day, c.label, c.tokens)
    rows = zip(*(column.tolist() for column in (indexes, *(column[indexes] for column in columns[1:]))), strict=True)
    for turn, (i, message, line, session, day, label, all_tokens) in enumerate(rows):
        tokens = first[i] if turn < len(first) else all_tokens
        if message not in messages and room.messages is not None and len(messages) >= room.messages:
            continue
        cost = tokens + (1 if line in lines else label) + (0 if (session, day) in headers else HEADER_TOKENS)
        if i in taken:
            cost = tokens - taken[i]
        if cost <= left:
            left -= cost
            taken[i] = tokens
            messages.add(message)
            lines.add(line)
            headers.add((session, day))
            if turn >= len(first):
                whole.add(i)
    return [*taken], frozenset(whole), room.tokens - left


SMALL_ROOM = 400
"""Tokens: a larger room holds enough whole passages, in which the answer may stand beside the words of the question."""

_MOST_READ, _LEAST_COVERAGE = 40, 0.5
"""Passages that are searched for sentences; of what the best one has of the question's words."""


def cut_sentences(
    c: Candidates, scores: Floats, terms: frozenset[str], tokens: int, count: CountTokens
) -> dict[int, str]:
    """Return the sentence that matches best, of the passages that match best by their words, by index of the passage.

    A code, a name or a number stands in one sentence: in a small room ten of these fit where three passages do.

    terms: stems of the question's words. tokens: of the room.
    """
    own, left = coverage(c), min(tokens, BY_WORDS)
    best = sort_by_words(c, scores)
    passages: list[int] = best[own[best] >= _LEAST_COVERAGE * own.max(initial=0)].tolist()
    # The latest of equal ones is first; facts of one moment have no order but that of their texts.
    passages.sort(key=lambda i: (-own[i], c.memories[i].text if c.memories[i].kind == "fact" else ""))
    sentences: dict[int, str] = {}
    for i in passages[:_MOST_READ]:
        text = _best_sentence(c.memories[i].text, terms)
        cost = count(text) + int(c.label[i])
        if cost <= left:
            left -= cost
            sentences[i] = text
    return sentences


_SHARE = 0.9
"""Of the room; the rest is for whole passages."""

_HEADLINE = 15
"""Tokens: with more, fewer of the messages that matter have room; with fewer, they say less."""

_CUT = " …"


def cut_headlines(question: Question, c: Candidates, scores: Floats, tokens: int, count: CountTokens) -> dict[int, str]:
    """Return the beginning of the sentence that matches best, of one passage of each message, by index of the passage.

    tokens: of the room. count: tokens of a sentence.
    """
    left = int(_SHARE * tokens)
    headlines: dict[int, str] = {}
    for i in _rank_messages(question, c, scores):
        if left < _HEADLINE:
            break
        text = _shorten(_best_sentence(c.memories[i].text, question.terms), count)
        cost = count(text) + int(c.label[i])
        if cost <= left:
            left -= cost
            headlines[i] = text
    return headlines


def _rank_messages(question: Question, c: Candidates, scores: Floats) -> Sequence[int]:
    """Return the best passage of each message, the best message first.

    Who asks in which order they brought something up is told what they said; else each message of the user is followed
    by the reply to it.
    """
    best: dict[int, int] = {}
    for i in sort_by_score(c, scores).tolist():
        best.setdefault(int(c.message[i]), i)
    if question.asks_order:
        return sorted(best.values(), key=lambda i: question.about_user and not c.from_user[i])
    ranked: dict[int, int] = {}
    for message, i in best.items():
        ranked[message] = i
        reply = best.get(message + 1)
        if c.from_user[i] and reply is not None and c.session[reply] == c.session[i]:
            ranked[message + 1] = reply
    return [*ranked.values()]


def _best_sentence(text: str, terms: frozenset[str]) -> str:
    return max(split_sentences(text), key=lambda sentence: len(terms.intersection(extract_terms(sentence))), default="")


def _shorten(sentence: str, count: CountTokens) -> str:
    """Return the first words of a sentence, as many as a headline has room for; one at least."""
    size = count(sentence)
    if size <= _HEADLINE:
        return sentence
    words = sentence.split()
    length = max(1, len(words) * _HEADLINE // size)
    while length > 1 and count(" ".join(words[:length]) + _CUT) > _HEADLINE:
        length -= 1
    return " ".join(words[:length]) + _CUT
