"""Overviews: for a question about a whole course of events, a short piece of each of many messages. Pure."""

from collections.abc import Sequence

from massmem.memory.retrieval.pack import CountTokens, Excerpt
from massmem.memory.retrieval.query import Question
from massmem.memory.retrieval.rank import Candidates, Floats, sort_by_score
from massmem.memory.text_analysis import extract_terms, split_sentences

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
