"""Packs what is shown into a budget of tokens: whole passages by their rank, or the sentences that match. Pure.

A code, a name or a number is said once and stands in one sentence. Ten such sentences fit where three passages do: in
a small room the passages that match by their words are cut to those sentences.

Overviews: for a question about a whole course of events, a short piece of each of many messages. Pure.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

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
    build_document_vector,
    extract_terms,
    guess_language,
    length_norm,
    split_sentences,
    term_id,
)

BY_WORDS = 200
"""Tokens, of four fifths of the room at most, for the best by their own words: what was said once, and to nobody in
particular, has no neighbours and no speaker to speak for it. More costs recall of conversations, less loses codes and
names."""

HEADER_TOKENS = 7
"""Of "[8 May 2023]" and its line break."""

SMALL_ROOM = 400
"""Tokens: a larger room holds enough whole passages, in which the answer may stand beside the words of the question."""

_EXCERPT_ROOM = 250
"""Most tokens of excerpts."""

_MOST_READ = 40
"""Passages that are searched for sentences."""

_LEAST_COVERAGE = 0.5
"""A passage with a smaller share of what the best one has of the question's words is not searched."""

_LEAST_MATCH = 0.66
"""Of what the best sentence has in common with the question: with less it is left to the ranking of passages."""

_STEPS = 20
"""Scores are compared in so many steps; in the same step the newest is first: what was said last is what holds."""

_SHORT_SENTENCE = 15
"""Tokens: a neighbour not longer than this stays, it would cost little less to leave it out."""

_GAP = 2
"""Tokens of " …", which stands for what is left out."""

_PART_OF_CODE = 0.5
"""So much less counts a word that is only part of a code ("reed" in REED-4410) which the question does not name."""

_CODE = re.compile(r"(?<![^\W_])(?=[\w-]{0,80}\d)[^\W_]+(?:[-_][^\W_]+)+")

Excerpt = Mapping[int, str]
"""Sentences of a passage by their place in it."""


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
    """Those of them that are more than an excerpt."""
    tokens: int
    """Used of the room."""


def pack(
    question: Question,
    c: Candidates,
    scores: Floats,
    room: Room,
    excerpts: Mapping[int, int] | None = None,
    left_out: Collection[int] = (),
) -> Packed:
    """Choose what to show: first a few by their own words, then greedily by score, until the room is used.

    When the question is about a person, each further passage of a message counts Weights.repeat times less, so that
    one long message does not fill the room.

    excerpts: tokens of the excerpts to begin with, by index of the candidate; None: begin with whole candidates.
    left_out: indexes of candidates that are not shown.
    """
    if question.about_user or find_names(question, c.speakers):
        scores = _lower_repeats(c, scores, WEIGHTS.repeat)
    order = sort_by_score(c, scores)
    if left_out:
        order = order[~_mask(left_out, len(scores))[order]]
    first = _best_by_words(c, scores, min(BY_WORDS, room.tokens * 4 // 5)) if excerpts is None else excerpts
    first = {i: tokens for i, tokens in first.items() if i not in left_out}
    chosen, whole, used = _fill(c, order, first, room)
    return Packed(order[_mask(chosen, len(scores))[order]].tolist(), whole, used)


def sort_by_time(c: Candidates, chosen: Sequence[int]) -> list[int]:
    """Return the indexes day by day, a session's passages of a day together in their order, its facts after them."""
    indexes = np.array(chosen, np.int64)
    first_of_session = np.full(int(c.session.max(initial=0)) + 1, len(c.key), np.int64)
    np.minimum.at(first_of_session, c.session, c.order)
    return indexes[np.lexsort((c.key[indexes], first_of_session[c.session[indexes]], c.day[indexes]))].tolist()


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

    What does not fit is passed over: a shorter one may fit. An excerpt that comes up again is made whole.
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


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    terms: tuple[str, ...]
    """Stems of its words."""
    plain_terms: frozenset[str]
    """Of words outside of codes."""
    codes: tuple[frozenset[str], ...]
    """Terms of each code."""
    name: tuple[str, ...]
    """All terms without numbers."""


@dataclass(frozen=True, slots=True)
class _Match:
    """A sentence that holds words of the question."""

    passage: int
    place: int
    held: float
    """How much of the question's words it holds."""
    score: float
    """The same, short sentences first, which say it best."""
    time: tuple[int, int]
    kind: tuple[object, ...]
    """The same for sentences that differ in numbers alone."""


def cut_excerpts(
    c: Candidates, scores: Floats, terms: frozenset[str], tokens: int, count: CountTokens
) -> dict[int, Excerpt]:
    """Return the sentences that match best, by index of their passage, in a room of so many tokens; best first.

    terms: stems of the question's words.
    """
    tokens = min(tokens, _EXCERPT_ROOM)
    excerpts: dict[int, dict[int, str]] = {}
    lines: set[int] = set()
    for match in _best_matches(_find_matches(c, scores, terms), scores):
        line, excerpt = int(c.line[match.passage]), excerpts.get(match.passage, {})
        sentences = _analyse_sentences(c.memories[match.passage].text)
        more = _with_neighbours(sentences, match, terms, count)
        more = {place: sentence for place, sentence in more.items() if place not in excerpt}
        further = match.passage in excerpts or line in lines
        cost = count_excerpt(more, count) + (_GAP if further else int(c.label[match.passage]))
        if cost <= tokens:
            tokens -= cost
            excerpts[match.passage] = {**excerpt, **more}
            lines.add(line)
    return {**excerpts}


def count_excerpt(excerpt: Excerpt, count: CountTokens) -> int:
    """Return the tokens of the excerpt, without a label."""
    return sum(map(count, excerpt.values())) + _GAP * max(0, len(excerpt) - 1)


def join_excerpt(excerpt: Excerpt) -> str:
    """Return the text of an excerpt, " … " where sentences between two others are left out."""
    text = ""
    for place, sentence in sorted(excerpt.items()):
        between = "" if not text else " " if place - 1 in excerpt else " … "
        text += f"{between}{sentence}"
    return text


@lru_cache(4096)
def _analyse_sentences(text: str) -> tuple[_Sentence, ...]:
    sentences: list[_Sentence] = []
    language = guess_language(text)
    for sentence in split_sentences(text):
        terms = tuple(extract_terms(sentence, language))
        plain = frozenset(extract_terms(_CODE.sub(" ", sentence), language))
        codes = tuple(frozenset(extract_terms(code)) for code in _CODE.findall(sentence))
        sentences.append(_Sentence(sentence, terms, plain, codes, tuple(t for t in terms if t.isalpha()) or terms))
    return tuple(sentences)


def _find_matches(c: Candidates, scores: Floats, terms: frozenset[str]) -> list[_Match]:
    matches: list[_Match] = []
    for i in _passages_to_read(c, scores):
        sentences = _analyse_sentences(c.memories[i].text)
        rarity = _mean_idf(float(c.bm25[i]), [term for sentence in sentences for term in sentence.terms], terms)
        time = int(c.day[i]), int(c.order[i])
        for place, sentence in enumerate(sentences):
            if words := terms.intersection(sentence.terms):
                meant = sentence.plain_terms.union(*(code for code in sentence.codes if code <= terms))
                held = rarity * (len(words) - _PART_OF_CODE * len(words - meant))
                score = held / sqrt(length_norm(len(sentence.terms)))
                kind = (int(c.speaker[i]), words, sentence.name)
                matches.append(_Match(i, place, held, score, time, kind))
    return matches


def _passages_to_read(c: Candidates, scores: Floats) -> list[int]:
    """Return the indexes of passages that are searched for sentences, the best by their words first."""
    own = coverage(c)
    order = sort_by_words(c, scores)
    return order[: int((own >= _LEAST_COVERAGE * own.max(initial=0)).sum())][:_MOST_READ].tolist()


def _mean_idf(bm25: float, passage: Sequence[str], terms: frozenset[str]) -> float:
    """Return the mean IDF of the question's words that a passage has, from its BM25: only the index knows each."""
    weights = build_document_vector(passage)
    whole = sum(weights[index] for term in terms if (index := term_id(term)) in weights)
    return bm25 / whole if whole else 0.0


def _best_matches(matches: Sequence[_Match], scores: Floats) -> Sequence[_Match]:
    """Return the matches best first; of one kind only the newest, in the place of the best of them."""
    most = max((match.held for match in matches), default=0.0)
    good = [match for match in matches if match.held >= _LEAST_MATCH * most]
    top = max((match.score for match in good), default=0.0)
    good.sort(
        key=lambda match: (round(_STEPS * match.score / top), float(scores[match.passage]), match.time), reverse=True
    )
    newest: dict[tuple[object, ...], _Match] = {}
    for match in good:
        known = newest.get(match.kind)
        if known is None or match.time > known.time:
            newest[match.kind] = match
    return [*newest.values()]


def _with_neighbours(
    sentences: Sequence[_Sentence], match: _Match, terms: frozenset[str], count: CountTokens
) -> dict[int, str]:
    """Return the sentence and its short neighbours; those that match themselves come in their own turn."""
    near = (place for place in (match.place - 1, match.place + 1) if 0 <= place < len(sentences))
    short = [
        place
        for place in near
        if terms.isdisjoint(sentences[place].terms) and count(sentences[place].text) <= _SHORT_SENTENCE
    ]
    return {place: sentences[place].text for place in (match.place, *short)}


_SHARE = 0.9
"""Of the room; the rest is for whole passages."""

_HEADLINE = 15
"""Tokens: with more, fewer of the messages that matter have room; with fewer, they say less."""

_CUT = " …"


def cut_headlines(
    question: Question, c: Candidates, scores: Floats, tokens: int, count: CountTokens
) -> dict[int, Excerpt]:
    """Return the beginning of the sentence that matches best, of one passage of each message, by index of the passage.

    tokens: of the room. count: tokens of a sentence.
    """
    left = int(_SHARE * tokens)
    headlines: dict[int, Excerpt] = {}
    for i in _rank_messages(question, c, scores):
        if left < _HEADLINE:
            break
        text = _shorten(_best_sentence(c.memories[i].text, question.terms), count)
        cost = count(text) + int(c.label[i])
        if cost <= left:
            left -= cost
            headlines[i] = {0: text}
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
