"""Relevance feedback on candidates made by hand."""

from collections.abc import Sequence

from massmem.memory.retrieval.feedback import expand_query
from massmem.memory.retrieval.query import analyse
from massmem.memory.text_analysis import build_query_vector, term_id
from tests.support.memories import candidates

QUESTION = analyse("What does Ana paint?")
WORDS = build_query_vector(QUESTION.forms)


def expand(texts: Sequence[str], scores: Sequence[float], **columns: Sequence[float]) -> dict[int, float]:
    c = candidates(scores, texts, **columns)
    return expand_query(WORDS, QUESTION, c, c.bm25)


def test_a_word_that_many_candidates_share_weighs_less_than_one_of_the_best():
    rest = [f"Boats {word}." for word in ("sail", "sink", "float", "rust", "rock", "drift", "wait", "turn", "land")]
    words = expand(["Ana paints boats with brushes.", *rest], [9, *[1] * 9])
    assert words[term_id("brush")] > words[term_id("boat")]


def test_the_words_of_the_question_keep_their_weight_and_weigh_more_than_all_others():
    words = expand(["Ana paints with brushes.", "Clouds pass."], [2, 1])
    assert words.items() >= WORDS.items()
    assert 0 < sum(words.values()) - sum(WORDS.values()) < sum(WORDS.values())


def test_a_candidate_that_only_asks_lends_no_words():
    assert term_id("brush") not in expand(["Does Ana paint with brushes?", "Clouds pass."], [2, 1], asks=[True, False])


def test_nothing_to_learn_from_gives_nothing_to_look_for():
    assert expand([], []) == {}
    assert expand(["Ana paints."], [1]) == {}
