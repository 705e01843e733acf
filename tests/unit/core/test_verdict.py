"""Confidence and agreement in words; what a calibration promises, on councils whose truth is known."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from massmem.core.events import Decision, WinnerDecided, now
from massmem.core.verdict import (
    LATE_ROUND_FACTOR,
    Calibration,
    Member,
    Outcomes,
    Pattern,
    compute_confidence,
    describe_agreement,
    describe_share,
    weigh_voices,
)
from tests.support.sample_turn import compare_texts

DECISION = WinnerDecided(agent_id="a", votes={"a": 1}, by="plurality")


@pytest.mark.parametrize(
    ("supporters", "agents", "rounds", "sure"),
    [
        (3, 3, 2, 1.0),
        (2, 3, 2, 0.6667),
        (3, 3, 3, LATE_ROUND_FACTOR),
        (3, 3, 4, round(LATE_ROUND_FACTOR**2, 4)),
        (1, 4, 2, 0.25),
        (1, 1, 1, None),
    ],
)
def test_confidence(supporters: int, agents: int, rounds: int, sure: float | None):
    assert compute_confidence(DECISION, agents, rounds, supporters) == sure


@pytest.mark.parametrize("by", ["no_vote", "no_vote_held"])
def test_answers_on_which_nobody_voted_have_no_confidence(by: Decision):
    assert compute_confidence(WinnerDecided(agent_id="a", votes={}, by=by), 3, 2, 1) is None


@given(st.integers(2, 40), st.data())
def test_confidence_is_a_share_that_grows_with_supporters_and_shrinks_with_rounds(agents: int, data: st.DataObject):
    supporters, rounds = data.draw(st.integers(1, agents)), data.draw(st.integers(1, 20))

    def confidence(supporters: int, rounds: int) -> float:
        sure = compute_confidence(DECISION, agents, rounds, supporters)
        assert sure is not None
        return sure

    sure = confidence(supporters, rounds)
    assert 0 <= sure <= 1
    assert sure <= confidence(min(supporters + 1, agents), rounds)
    assert sure >= confidence(supporters, rounds + 1)


ANSWERS = {"ann": "Paris, since 987.", "bob": "Lyon.", "eve": "Marseille."}

AGREEMENT = [
    ({"by": "no_vote_held", "no_vote": "one_round"}, {}, False, "3 answers, not compared (no vote was held: "
     "coordination.max_rounds is 1); that of Ann is shown"),
    ({"by": "no_vote_held", "no_vote": "timeout"}, {}, True, "3 answers, not compared (the time was up before a vote); "
     "the final answer is written from them"),
    ({"by": "answer_now"}, {"eve": "Paris, since 987"}, False, "2 of 3 agents gave or chose this answer; 1 answer not "
     "compared"),
    ({"by": "consensus", "votes": {"ann": 2, "eve": 1}}, {"votes": "ann:eve bob:ann eve:ann"}, False, "Ann's answer "
     "got 2 of 3 votes (nobody may choose its own)"),
    ({"by": "consensus", "votes": {"ann": 2, "eve": 1}}, {"votes": "ann:eve bob:ann eve:ann"}, True, "Ann's answer "
     "got 2 of 3 votes (nobody may choose its own); the final text was written from all three"),
    ({"by": "plurality", "votes": {"ann": 1, "eve": 1}}, {"votes": "bob:ann eve:eve"}, False, "Ann's answer got 1 of 2 "
     "votes (nobody may choose its own)"),
]  # fmt: skip


@pytest.mark.parametrize(("decision", "more", "presented", "sentence"), AGREEMENT)
def test_one_sentence_says_who_agrees(decision: dict[str, Any], more: dict[str, str], presented: bool, sentence: str):
    answers = dict(more)
    ballots = dict(vote.split(":") for vote in answers.pop("votes", "").split())
    winner = WinnerDecided(**{"agent_id": "ann", "votes": {}} | decision)
    reasons = {voter: (choice, "as it is") for voter, choice in ballots.items()}
    dissent = compare_texts("ann", {"ann": "Paris, since 987.", "bob": "Lyon.", "eve": "Marseille."} | answers, reasons)
    assert describe_agreement(winner, dissent, 3, "Ann", presented=presented) == sentence


def test_agents_without_an_answer_do_not_agree():
    winner = WinnerDecided(agent_id="ann", votes={}, by="unanimous")
    assert describe_agreement(winner, None, 1, "ann", presented=False) == ""
    assert describe_agreement(winner, None, 3, "ann", presented=False) == "the only answer of 3 agents"
    same = compare_texts("ann", {"ann": "Paris", "bob": "paris"}, {})
    assert describe_agreement(winner, same, 3, "ann", presented=False) == (
        "2 of 2 agents gave or chose this answer; 1 agent gave no answer"
    )


def test_a_share_never_stands_beside_split_votes():
    assert describe_share(1.0, {"a": 3}, escalated=False) == "agreement 100%"
    assert describe_share(1.0, {"a": 2, "b": 1}, escalated=False) == ""
    assert describe_share(0.5, {"a": 2, "b": 1}, escalated=True) == "not sure"
    assert describe_share(0.5, {"a": 2}, escalated=True) == "agreement 50%, not sure"


def calibrate(questions: Sequence[Outcomes]) -> Calibration:
    return Calibration(fingerprint="", team="t", data="d", created_at=now(), outcomes=tuple(questions), members={})


def agree(behind: int, against: int) -> Pattern:
    names = tuple("abcdefgh"[:behind])
    return Pattern(names, against, 0, voted=False, cut=False, kind="number")


@st.composite
def outcomes(draw: st.DrawFn) -> Outcomes:
    """Any counts of a team of five, right or not."""
    asked, behind, is_agreed = draw(st.integers(1, 60)), draw(st.integers(1, 5)), draw(st.booleans())
    right, right_first = draw(st.integers(0, asked)), draw(st.integers(0, asked))
    first = agree(2, 0) if is_agreed else agree(1, 1)
    return Outcomes(
        group="", first=first, full=agree(behind, 5 - behind), asked=asked, right_first=right_first, right=right
    )


@given(st.lists(outcomes(), max_size=12), st.floats(0.01, 0.5), st.booleans())
def test_answers_above_the_threshold_keep_the_promise_on_what_it_was_fitted_on(
    counts: list[Outcomes], promised: float, adaptive: bool
):
    calibration = calibrate(counts)
    threshold = calibration.find_threshold(promised, adaptive=adaptive)
    right = [(one.asked, calibration.count_right(one, threshold, adaptive=adaptive)) for one in counts]
    answered = sum(asked for asked, count in right if count is not None)
    wrong = answered - sum(count for _, count in right if count is not None)
    assert threshold is not None or not answered
    # A question counts a little more than it does without itself, so that those at the edge may be missing here.
    assert not answered or wrong <= promised * (sum(one.asked for one in counts) + 1)


def test_an_answer_is_estimated_by_its_own_questions_and_by_those_like_it():
    def row(names: str, asked: int, right: int) -> Outcomes:
        full = Pattern(tuple(names), 3 - len(names), 0, voted=False, cut=False, kind="number")
        return Outcomes(group="", first=agree(1, 1), full=full, asked=asked, right_first=0, right=right)

    members = {agent: Member(asked=100, right=right) for agent, right in (("a", 80), ("b", 50), ("c", 20))}
    counts = row("abc", 40, 40), row("ab", 50, 45), row("ac", 50, 40), row("bc", 50, 20), row("a", 50, 20)
    calibration = calibrate(counts).model_copy(update={"members": members, "alternatives": 8.0})
    estimates = {"".join(o.full.behind): calibration.estimate(o.full, of_first=False) for o in counts}
    assert estimates["abc"] > estimates["ab"] > estimates["ac"] > estimates["bc"], "two are not any two"
    # A pattern that never came up borrows from those near it.
    new = Pattern(("c",), 2, 0, voted=False, cut=False, kind="number")
    assert calibration.estimate(new, of_first=False) < estimates["bc"]
    assert calibration.estimate(replace(new, kind="text"), of_first=False) < 0.1, "of texts nothing is known"
    assert calibration.find_threshold(0.2, adaptive=False) is not None
    assert calibration.count_right(counts[1], calibration.find_threshold(0.2, adaptive=False), adaptive=False) == 45
    assert calibration.count_right(counts[3], calibration.find_threshold(0.2, adaptive=False), adaptive=False) is None


def test_one_question_says_nothing_of_itself():
    """One right answer among many patterns of one question each is no reason to be sure of its pattern."""
    draw = random.Random(3)
    rows = [
        Outcomes(
            group="",
            first=agree(1, 1),
            full=Pattern((f"a{i}",), 4, 0, voted=False, cut=False, kind="number"),
            asked=1,
            right_first=0,
            right=int(draw.random() < 0.5),
        )
        for i in range(400)
    ]
    assert calibrate(rows).find_threshold(0.2, adaptive=False) is None


def test_two_are_never_enough_where_that_costs_many_answers():
    """To stop at the two, right on 90 % where they agree, leaves no room for the answers of four, right on 88 %."""
    rows = [
        Outcomes(group="", first=agree(2, 0), full=agree(5, 0), asked=120, right_first=120, right=120),
        Outcomes(group="", first=agree(2, 0), full=agree(2, 3), asked=80, right_first=60, right=60),
        Outcomes(group="", first=agree(1, 1), full=agree(4, 1), asked=200, right_first=0, right=176),
    ]
    calibration = calibrate(rows)
    threshold = calibration.find_threshold(0.1, adaptive=True)
    assert threshold is not None and threshold[True] == 1.0
    assert threshold == calibration.find_threshold(0.1, adaptive=False)
    assert [calibration.count_right(row, threshold, adaptive=True) for row in rows] == [120, None, 176]


@pytest.mark.parametrize(
    ("right", "alternatives", "voices"),
    [((90, 50, 20), 1.0, (2.0, 0.0, 0.0)), ((90, 50, 20), 10.0, (4.5, 2.25, 1.0))],
)
def test_an_agent_that_is_mostly_wrong_has_a_voice_where_the_wrong_seldom_say_the_same(
    right: tuple[int, ...], alternatives: float, voices: tuple[float, ...]
):
    members = {str(i): Member(asked=100, right=count) for i, count in enumerate(right)}
    assert tuple(weigh_voices(members, alternatives).values()) == voices


def ask_council(draw: random.Random, questions: int, *, shared: float) -> list[Outcomes]:
    """Return what five agents answer, each right with 0.75; to the share `shared` they all give one wrong answer."""
    asked: list[Outcomes] = []
    for _ in range(questions):
        is_shared = draw.random() < shared
        values = [7 if is_shared else 0 if draw.random() < 0.75 else draw.randint(1, 9) for _ in range(5)]
        most = max(values, key=values.count)
        first = agree(2, 0) if values[0] == values[1] else agree(1, 1)
        full = agree(values.count(most), 5 - values.count(most))
        right, right_first = int(most == 0), int(values[0] == 0)
        asked.append(Outcomes(group="", first=first, full=full, asked=1, right_first=right_first, right=right))
    return asked


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("promised", [0.05, 0.1, 0.2])
def test_promise_holds_on_new_questions_of_the_same_kind(promised: float, adaptive: bool):
    draw, errors, coverage = random.Random(1), list[float](), list[float]()
    for _ in range(60):
        calibration, asked = calibrate(ask_council(draw, 100, shared=0.02)), ask_council(draw, 200, shared=0.02)
        threshold = calibration.find_threshold(promised, adaptive=adaptive)
        new = [calibration.count_right(one, threshold, adaptive=adaptive) for one in asked]
        right = [count for count in new if count is not None]
        coverage.append(len(right) / 200)
        errors += [1 - sum(right) / len(right)] if right else []
    assert sum(errors) / len(errors) <= promised + 0.01
    assert sum(coverage) / len(coverage) > 0.6


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.booleans())
def test_council_that_shares_its_errors_is_never_sure_of_what_all_say(seed: int, adaptive: bool):
    calibration = calibrate(ask_council(random.Random(seed), 400, shared=0.3))
    threshold = calibration.find_threshold(0.1, adaptive=adaptive)
    assert not calibration.is_sure(agree(5, 0), threshold, of_first=False)
    assert not calibration.is_sure(agree(2, 0), threshold, of_first=True)
