"""Confidence and agreement in words; what a calibration promises, on councils whose truth is known."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from massmem.core.events import Decision, WinnerDecided, now
from massmem.core.verdict import (
    LATE_ROUND_FACTOR,
    Calibration,
    Outcomes,
    Pattern,
    compute_confidence,
    describe_agreement,
    describe_share,
)
from massmem.core.voting import find_dissent

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
    winner = WinnerDecided.model_validate({"agent_id": "ann", "votes": {}} | decision)
    reasons = {voter: (choice, "as it is") for voter, choice in ballots.items()}
    dissent = find_dissent("ann", {"ann": "Paris, since 987.", "bob": "Lyon.", "eve": "Marseille."} | answers, reasons)
    assert describe_agreement(winner, dissent, 3, "Ann", presented=presented) == sentence


def test_agents_without_an_answer_do_not_agree():
    winner = WinnerDecided(agent_id="ann", votes={}, by="unanimous")
    assert describe_agreement(winner, None, 1, "ann", presented=False) == ""
    assert describe_agreement(winner, None, 3, "ann", presented=False) == "the only answer of 3 agents"
    same = find_dissent("ann", {"ann": "Paris", "bob": "paris"}, {})
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
def test_threshold_is_the_lowest_that_keeps_the_promise_on_what_it_was_fitted_on(
    counts: list[Outcomes], promised: float, adaptive: bool
):
    calibration = calibrate(counts)
    rank = calibration.find_threshold(promised, adaptive=adaptive)
    patterns = [one.full for one in counts] + [one.first for one in counts if adaptive and one.first.agrees]
    for other in {pattern.rank for pattern in patterns}:
        right = [(one.asked, one.count_right(other, adaptive=adaptive)) for one in counts]
        answered = sum(asked for asked, count in right if count is not None)
        wrong = answered - sum(count for _, count in right if count is not None)
        holds = (wrong + 1) / (answered + 1) <= promised
        assert holds or other != rank
        assert not holds or (rank is not None and rank <= other)


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
        rank = calibrate(ask_council(draw, 100, shared=0.02)).find_threshold(promised, adaptive=adaptive)
        new = [one.count_right(rank, adaptive=adaptive) for one in ask_council(draw, 200, shared=0.02) if rank]
        right = [count for count in new if count is not None]
        coverage.append(len(right) / 200)
        errors += [1 - sum(right) / len(right)] if right else []
    assert sum(errors) / len(errors) <= promised + 0.01
    assert sum(coverage) / len(coverage) > 0.6


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.booleans())
def test_council_that_shares_its_errors_is_never_sure(seed: int, adaptive: bool):
    calibration = calibrate(ask_council(random.Random(seed), 400, shared=0.3))
    assert calibration.find_threshold(0.1, adaptive=adaptive) is None
