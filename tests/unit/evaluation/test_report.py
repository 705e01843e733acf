"""Reports, from answers whose figures can be counted by hand."""

from collections.abc import Sequence

import pytest

from massmem.core.messages import Usage
from massmem.evaluation.items import Item
from massmem.evaluation.report import Answers, compare, grade_by_score, report_entrant
from massmem.evaluation.results import Result

ITEMS = [Item(str(n), f"Question {n}?", "number", (str(n),), group="even" if n % 2 == 0 else "odd") for n in range(4)]


def answer(item: Item, winner: str, final: str, **members: str) -> Result:
    return Result(
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


def answers(name: str, results: Sequence[Result]) -> Answers:
    right = [grade_by_score(item, result.answer) for item, result in zip(ITEMS, results, strict=True)]
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
    assert (report.tokens, report.seconds, report.requests, report.failed) == (15, 2.0, 3, 0)
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
    assert (council.presentation_mended, council.presentation_spoiled) == (1, 1)
    assert council.agreement == pytest.approx((1 + 1 / 3 + 1 / 3 + 1 / 3) / 4)
    assert council.calibration_error == pytest.approx(0.25)


def test_one_agent_is_no_council():
    assert report_entrant(SINGLE).council is None


def test_failures_count_as_wrong_and_unknown_prices_as_unknown():
    failed = Result(team="t", item=ITEMS[0].key, seed=0, error="no answer")
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
