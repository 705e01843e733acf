"""Reports, from answers whose figures can be counted by hand; intervals and tests, against published values."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from massmem.core.evaluation import PerQuestion, Presentation
from massmem.core.messages import Usage
from massmem.core.verdict import wilson_interval
from massmem.evaluation.calibration import choose_winner
from massmem.evaluation.evaluate import (
    RULES,
    choose_score,
    compare,
    difference_interval,
    mcnemar_p,
    report_entrant,
    trace_risk,
)
from massmem.evaluation.items import Item, Score, score
from massmem.evaluation.runner import Answers, ItemResult


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_as_published(right: int, total: int, low: float, high: float):
    assert wilson_interval(right, total) == pytest.approx((low, high), abs=5e-5)


def test_nothing_is_known_of_no_answers():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert difference_interval([], []) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "p"), [(0, 0, 1.0), (8, 3, 0.2265625), (3, 8, 0.2265625), (10, 0, 2 / 1024)]
)
def test_mcnemar_is_the_exact_sign_test(first: int, second: int, p: float):
    assert mcnemar_p(first, second) == pytest.approx(p)


def test_difference_interval_holds_the_difference_and_knows_its_side():
    better, worse = [True] * 80 + [False] * 20, [True] * 50 + [False] * 50
    low, high = difference_interval(better, worse)
    assert 0.2 < low < 0.3 < high < 0.4
    assert difference_interval(worse, better)[1] < 0


def test_difference_interval_of_equal_answers_is_empty():
    assert difference_interval([True, False], [True, False]) == difference_interval([False], [False])


def test_risk_grows_from_the_surest_answers_to_all():
    sure, unsure = (1.0, 3, True), (0.5, 1, True)
    points = trace_risk([(unsure, False), (sure, True), (unsure, True), (sure, True)])
    assert [(point.answered, point.wrong, point.coverage, point.error) for point in points] == [
        (2, 0, 0.5, 0.0),
        (4, 1, 1.0, 0.25),
    ]
    assert trace_risk([]) == []


VALUES = {"a": "7", "b": "1", "c": "7", "d": "2"}
BALLOTS = {"a": "b", "c": "b", "d": "b", "b": "a"}


def choose_value(rule: str, values: dict[str, str], ballots: dict[str, str]) -> str:
    return choose_score(rule, {agent: Score(False, value) for agent, value in values.items()}, ballots).value


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        ("the first agent's answer", "7"),
        ("the answer that most gave", "7"),
        ("the same, ballots decide between equals", "7"),
        ("the answer with most ballots", "1"),
        ("authors and ballots together", "1"),
    ],
)
def test_choice_of_a_rule(rule: str, chosen: str):
    assert choose_value(rule, VALUES, BALLOTS) == chosen


def test_ballots_decide_between_answers_that_equally_many_gave():
    values, ballots = {"a": "1", "b": "2", "c": "3"}, {"a": "c", "b": "c", "c": "b"}
    chosen = {rule: choose_value(rule, values, ballots) for rule in RULES}
    assert chosen == {
        "the first agent's answer": "1",
        "the answer that most gave": "1",
        "the same, ballots decide between equals": "3",
        "the answer with most ballots": "3",
        "authors and ballots together": "3",
    }


def test_answers_that_come_to_nothing_are_never_chosen_where_there_is_another():
    values = {"a": "4", "b": "", "c": ""}
    assert {choose_value(rule, values, {"a": "b", "b": "c"}) for rule in RULES} == {"4"}
    assert {choose_value(rule, {"a": "", "b": ""}, {}) for rule in RULES} == {""}


ITEMS = [Item(str(n), f"Question {n}?", "number", (str(n),), group="even" if n % 2 == 0 else "odd") for n in range(4)]


def answer(item: Item, winner: str, final: str, **members: str) -> ItemResult:
    return ItemResult(
        team="t",
        item=item.key,
        seed=0,
        answer=final,
        winner=winner,
        members=members,
        confidence=0.5,
        usage=Usage(10, 5, requests=3, cost=0.25),
        seconds=2.0,
    )


def answers(name: str, results: Sequence[ItemResult]) -> Answers:
    right = [score(item, result.answer).right for item, result in zip(ITEMS, results, strict=True)]
    return Answers(name, ITEMS, results, right)


COUNCIL = answers(
    "council",
    [
        answer(ITEMS[0], "a", "0", a="0", b="0", c="0"),  # all right
        answer(ITEMS[1], "b", "1", a="7", b="1", c="7"),  # the minority was chosen
        answer(ITEMS[2], "a", "2", a="9", b="2", c="2"),  # a wrong one was chosen, and mended
        answer(ITEMS[3], "c", "8", a="3", b="8", c="3"),  # a right one was chosen, and spoiled
    ],
)
SINGLE = answers("single", [answer(item, "a", text, a=text) for item, text in zip(ITEMS, "0129", strict=True)])


def test_figures_of_a_team():
    report = report_entrant(COUNCIL)
    assert (report.accuracy.count, report.accuracy.total, report.cost) == (3, 4, 1.0)
    assert (report.per_question, report.failed) == (PerQuestion(tokens=15, seconds=2.0, requests=3), 0)
    assert {name: (share.count, share.total) for name, share in report.groups.items()} == {
        "even": (2, 2),
        "odd": (1, 2),
    }


def test_figures_of_a_council():
    council = report_entrant(COUNCIL).council
    assert council is not None
    assert {name: share.count for name, share in council.members.items()} == {"a": 2, "b": 3, "c": 3}
    assert council.oracle.count == 4
    assert (council.chosen.count, council.chosen.total) == (2, 3)
    assert council.rules["the answer that most gave"].count == 3
    assert council.presentation == Presentation(mended=1, spoiled=1)
    assert council.agreement == pytest.approx((1 + 1 / 3 + 1 / 3 + 1 / 3) / 4)
    assert [(point.answered, point.wrong) for point in council.risk] == [(1, 0), (4, 1)]


def test_worth_of_each_agent_and_of_weights():
    council = report_entrant(COUNCIL).council
    assert council is not None and council.weighed is not None
    # The vote on these answers chooses a right one of 3 questions.
    assert {agent: one.right.count for agent, one in council.without.items()} == {"a": 3, "b": 2, "c": 2}
    assert {agent: one.difference for agent, one in council.without.items()} == {"a": 0.0, "b": -0.25, "c": -0.25}
    assert council.without["b"].interval[0] < 0 <= council.without["b"].interval[1]
    # b and c were right on 3 of 4, a on 2; the only pair of wrong answers is the same, and another one is added.
    assert council.weighed.weights == {"a": 0.5, "b": 1.0, "c": 1.0}
    partial = report_entrant(replace(COUNCIL, is_full=False)).council
    assert partial is not None and (partial.without, partial.weighed) == ({}, None)
    # To the last question b, which was right on all others, outweighs the two that were right.
    assert (council.weighed.right.count, council.weighed.difference) == (2, -0.25)


def test_a_ballot_for_an_agent_that_leaves_counts_for_who_says_the_same():
    result = answer(ITEMS[0], "a", "0", a="0", b="9", c="0", d="9").model_copy(update={"ballots": {"d": "a"}})
    assert choose_winner({"b": 1, "c": 1, "d": 1}, result) == "c"
    assert choose_winner({"b": 1, "d": 1}, result) == "b"
    assert choose_winner({"a": 0.1, "b": 2.0, "c": 0.1, "d": 0.5}, result) == "a"  # a ballot goes before authors
    heavy = result.model_copy(update={"ballots": {"d": "a", "c": "b"}})
    assert choose_winner({"a": 1.0, "b": 1.0, "c": 0.1, "d": 2.0}, heavy) == "a"
    assert choose_winner({"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.1}, heavy) == "b"


def test_a_team_that_was_unsure_is_measured_by_what_it_answered_too():
    held_back = COUNCIL.results[3].model_copy(update={"verdict": "unsure"})
    team = replace(COUNCIL, results=[*COUNCIL.results[:3], held_back])
    report = report_entrant(team)
    assert report.selective is not None and report.coverage is not None
    assert (report.accuracy.count, report.accuracy.total) == (3, 4)
    assert (report.selective.count, report.selective.total) == (3, 3)
    assert (report.coverage.count, report.coverage.total) == (3, 4)
    assert report_entrant(COUNCIL).selective is None
    assert held_back.claim == held_back.members["c"]


def test_one_agent_is_no_council():
    assert report_entrant(SINGLE).council is None


def test_failures_count_as_wrong_and_unknown_prices_as_unknown():
    failed = ItemResult(team="t", item=ITEMS[0].key, seed=0, error="no answer")
    free = answer(ITEMS[1], "a", "1", a="1").model_copy(update={"usage": Usage(1, 1)})
    report = report_entrant(Answers("team", ITEMS[:2], [failed, free], [False, True]))
    assert (report.failed, report.accuracy.count, report.cost) == (1, 1, None)


def test_comparison_counts_pairs():
    comparison = compare(COUNCIL, SINGLE)
    assert (comparison.total, comparison.only_first, comparison.only_second) == (4, 0, 0)
    assert (comparison.difference, comparison.p) == (0.0, 1.0)
    better = Answers("better", ITEMS[1:], SINGLE.results[1:], [True, True, True])
    comparison = compare(better, COUNCIL)
    assert (comparison.total, comparison.only_first, comparison.only_second) == (3, 1, 0)
    assert comparison.difference == pytest.approx(1 / 3)
