"""Scores and packing, on candidates made by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.ranking.question import Question, analyse
from massmem.memory.ranking.retrieval import (
    HEADER_TOKENS,
    Candidates,
    Picked,
    Room,
    Weights,
    around,
    best_of_session,
    in_time_order,
    score,
    select,
    shortlist,
    with_meaning,
)

NOTHING = analyse("kites")


def candidates(bm25: Sequence[float], **columns: Sequence[float]) -> Candidates:
    """Passages of one session, each a message of its own, unless columns say otherwise."""
    n = len(bm25)
    ints = {"key": range(n), "session": [0] * n, "message": range(n), "speaker": [0] * n, "label": [2] * n}
    ints |= {"tokens": [10] * n, "day": [700_000] * n}
    flags = {"from_user": [False] * n, "asks": [False] * n, "has_time": [False] * n}
    return Candidates(
        bm25=np.array(bm25, float),
        **{k: np.array(list(columns.get(k, v)), np.int64) for k, v in ints.items()},
        **{k: np.array(list(columns.get(k, v)), np.bool_) for k, v in flags.items()},
        speakers=("a", "b"),
    )


def best(question: Question, c: Candidates) -> int:
    return int(np.argmax(score(question, c)))


def test_the_better_match_is_first():
    assert best(NOTHING, candidates([1, 3, 2], key=[0, 100, 200])) == 1


def test_what_stands_beside_a_match_gains_more_after_it_than_before_it():
    found = score(NOTHING, candidates([0, 0, 3, 0, 0], key=[0, 9, 10, 11, 30]))
    assert found[2] > found[3] > found[1] > found[0]


def test_neighbours_fade_with_each_step_and_end_at_the_reach():
    w = Weights(reach=2, after=0.5, before=0.1)
    total = around(np.arange(4), np.array([1.0, 0, 0, 0]), w)
    assert total.tolist() == [1, 0.5, 0.25, 0]


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
    assert select(NOTHING, candidates([]), np.zeros(0), Room(100)) == Picked([], frozenset(), 0)


def test_no_match_at_all_divides_by_nothing():
    assert np.isfinite(score(NOTHING, candidates([0, 0]))).all()


def test_the_shortlist_ascends():
    assert shortlist(np.array([1.0, 5, 3, 4]), 2).tolist() == [1, 3]


def test_meaning_adds_and_opposites_do_not_take_away():
    assert with_meaning(np.zeros(3), np.array([0.5, 0.25, -1])).tolist() == [0.5, 0.25, 0]


def test_what_fits_is_shown_best_first():
    picked = select(NOTHING, candidates([1, 2, 3]), np.array([1.0, 2, 3]), Room(HEADER_TOKENS + 24))
    assert picked == Picked([2, 1], frozenset({1, 2}), HEADER_TOKENS + 24)


def test_what_is_too_long_is_passed_over_for_what_fits():
    c = candidates([3, 2], tokens=[500, 5])
    assert select(NOTHING, c, np.array([3.0, 2]), Room(50)).chosen == [1]


def test_the_number_of_messages_is_bounded_but_not_their_passages():
    c = candidates([4, 3, 2, 1], message=[7, 8, 7, 9])
    assert select(NOTHING, c, np.array([4.0, 3, 2, 1]), Room(1000, 2)).chosen == [0, 1, 2]
    assert select(NOTHING, c, np.array([4.0, 3, 2, 1]), Room(1000, 0)).chosen == []


def test_answers_about_a_person_are_spread_over_messages():
    c = candidates([4, 3, 3], message=[7, 7, 8])
    scores = np.array([4.0, 3.5, 3])
    assert select(NOTHING, c, scores, Room(1000)).chosen == [0, 1, 2]
    assert select(analyse("my kites"), c, scores, Room(1000)).chosen == [0, 2, 1]


def test_time_order_keeps_a_sessions_day_together_and_puts_facts_after_it():
    c = candidates([0] * 4, key=[5, 6, 900, 1 << 62], session=[1, 1, 0, 1], day=[2, 3, 2, 2])
    assert in_time_order(c, [3, 2, 1, 0]) == [2, 0, 3, 1]


def test_of_equal_matches_the_newest_is_taken_by_its_words():
    """The two say the same as far as words tell, and the room is too small for both: what was said last holds."""
    c = candidates([3, 3], tokens=[20, 20], key=[0, 100])
    assert select(NOTHING, c, np.array([1.0, 1]), Room(40)).chosen == [1]
    assert select(NOTHING, c, np.array([2.0, 1]), Room(40)).chosen == [0]


def test_an_excerpt_that_fits_is_shown_where_its_passage_does_not():
    c = candidates([3, 2], tokens=[30, 30])
    picked = select(NOTHING, c, np.array([1.0, 2]), Room(HEADER_TOKENS + 12 + 12), {0: 10, 1: 10})
    assert picked == Picked([1, 0], frozenset(), HEADER_TOKENS + 24)


def test_an_excerpt_becomes_whole_where_there_is_room_for_it():
    c = candidates([3, 2], tokens=[30, 30])
    picked = select(NOTHING, c, np.array([1.0, 2]), Room(HEADER_TOKENS + 12 + 32), {0: 10, 1: 10})
    assert picked == Picked([1, 0], frozenset({1}), HEADER_TOKENS + 12 + 32)


def test_what_may_not_be_shown_makes_room():
    c = candidates([3, 2], tokens=[30, 30])
    room = Room(HEADER_TOKENS + 32)
    assert select(NOTHING, c, np.array([2.0, 1]), room, out={0}).chosen == [1]
    assert select(NOTHING, c, np.array([2.0, 1]), room, {0: 10}, {0}).chosen == [1]


@given(
    st.lists(st.tuples(st.floats(-2, 5), st.integers(1, 90), st.integers(0, 5), st.integers(0, 3)), max_size=40),
    st.integers(0, 400),
    st.one_of(st.none(), st.integers(0, 6)),
)
def test_the_room_is_never_exceeded(rows: list[tuple[float, int, int, int]], tokens: int, messages: int | None):
    scores = np.array([row[0] for row in rows])
    c = candidates([0] * len(rows), tokens=[r[1] for r in rows], message=[r[2] for r in rows], day=[r[3] for r in rows])
    picked = select(analyse("my kites"), c, scores, Room(tokens, messages))
    chosen, used = picked.chosen, picked.tokens
    shown = {int(c.message[i]) for i in chosen}
    days = {int(c.day[i]) for i in chosen}
    cost = (
        sum(int(c.tokens[i]) for i in chosen) + 2 * len(shown) + (len(chosen) - len(shown)) + HEADER_TOKENS * len(days)
    )
    assert used == cost <= tokens or not chosen
    assert len(set(chosen)) == len(chosen)
    assert messages is None or len(shown) <= messages


@pytest.mark.parametrize("field", ["words", "around", "session", "meaning", "person", "date", "time"])
def test_weights_are_positive_witnesses(field: str):
    assert getattr(Weights(), field) > 0
