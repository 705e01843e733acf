"""Relevance feedback: what the best candidates talk about leads to memories that share no word with the question. Pure.

"What does Ana paint?" finds "Ana bought brushes for her studio"; "brushes" and "studio" then find what else she told of
them. Words are weighed as in RM3 (Abdul-Jaleel et al., UMass at TREC 2004). They find candidates; only the question's
own words rank them.
"""

from collections import Counter
from collections.abc import Mapping
from math import log

from massmem.memory.retrieval.query import Question
from massmem.memory.retrieval.rank import Candidates, Floats, sort_by_score
from massmem.memory.text_analysis import extract_terms, term_id

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
