"""Scores, on candidates made by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from massmem.memory.retrieval.query import Question, analyse
from massmem.memory.retrieval.rank import (
    Candidates,
    Weights,
    add_meaning,
    add_neighbours,
    best_of_session,
    expand_query,
    score,
    shortlist,
    sort_by_score,
)
from massmem.memory.words import build_query_vector, term_id
from tests.support.memories import candidates

NOTHING = analyse("kites")


def best(question: Question, c: Candidates) -> int:
    return int(np.argmax(score(question, c)))


def test_the_better_match_is_first():
    assert best(NOTHING, candidates([1, 3, 2], key=[0, 100, 200])) == 1


def test_neighbour_after_a_match_gains_more_than_one_before_it():
    found = score(NOTHING, candidates([0, 0, 3, 0, 0], key=[0, 9, 10, 11, 30]))
    assert found[2] > found[3] > found[1] > found[0]


def test_neighbours_fade_with_each_step_and_end_at_the_reach():
    total = add_neighbours(np.arange(5), np.array([1.0, 0, 0, 0, 0]))
    assert total.tolist() == pytest.approx([1, 0.8, 0.64, 0.512, 0])


def test_the_right_session_is_preferred():
    found = score(NOTHING, candidates([5, 1, 1], key=[0, 1000, 5000], session=[0, 0, 1]))
    assert found[1] > found[2]


def test_best_of_session_takes_facts_elsewhere_into_account():
    assert best_of_session(np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0])).tolist() == [3, 2, 3]


def test_who_is_asked_about_is_preferred():
    c = candidates([1, 1], key=[0, 100], speaker=[0, 1], from_user=[False, True])
    assert best(analyse("What did b paint?"), c) == 1
    assert best(analyse("What did I paint?"), c) == 1
    assert best(analyse("What did b and a paint?"), c) == 0, "all of them: no one"


def test_a_date_and_a_time_are_preferred():
    c = candidates([1, 1], key=[0, 100], day=[1, 739_000], has_time=[False, True])
    assert best(analyse("kites in April 2024"), c) == 1
    assert best(analyse("When were the kites?"), c) == 1


def test_a_question_answers_less_than_a_statement():
    assert best(NOTHING, candidates([1, 1], key=[0, 100], asks=[True, False])) == 1


def test_nothing_scores_nothing():
    assert score(NOTHING, candidates([])).tolist() == []


def test_no_match_at_all_divides_by_nothing():
    assert np.isfinite(score(NOTHING, candidates([0, 0]))).all()


def test_equal_scores_are_sorted_by_time_whatever_ids_they_have():
    """Sums of the same numbers differ in the last digits."""
    c = candidates([1, 1, 1], order=[2, 0, 1])
    assert sort_by_score(c, np.array([0.3, 0.1 + 0.2, 0.3])).tolist() == [1, 2, 0]


def test_the_shortlist_ascends():
    assert shortlist(candidates([0] * 4), np.array([1.0, 5, 3, 4]), 2).tolist() == [1, 3]


def test_meaning_adds_and_opposites_do_not_take_away():
    assert add_meaning(np.zeros(3), np.array([0.5, 0.25, -1])).tolist() == [0.5, 0.25, 0]


@pytest.mark.parametrize("field", ["words", "around", "session", "meaning", "person", "date", "time"])
def test_weights_are_positive_witnesses(field: str):
    assert getattr(Weights(), field) > 0


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
