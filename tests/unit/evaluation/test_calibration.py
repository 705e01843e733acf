"""Records of councils as a calibration counts them: who stands behind which answer, of the first two and of all."""

from collections import Counter

import pytest

from massmem.config.models import TeamConfig
from massmem.core.verdict import Calibration, Outcomes, Pattern
from massmem.evaluation.calibration import (
    Graded,
    Replayed,
    build_calibration,
    choose_pair,
    count_outcomes,
    list_gaps,
    list_promises,
    replay_result,
)
from massmem.evaluation.items import Item
from massmem.evaluation.output import format_calibration
from massmem.evaluation.runner import Answers, ItemResult

AGENTS = ("a", "b", "c")
TEAM = TeamConfig.model_validate({"agents": [{"id": agent, "backend": {"type": "scripted"}} for agent in AGENTS]})
SAME = "Answer: 42"


def replay(
    answers: dict[str, str], ballots: dict[str, str], cut: tuple[str, ...] = (), work_cut: tuple[str, ...] = ()
) -> Replayed:
    result = ItemResult(team="t", item="i", seed=0, members=answers, ballots=ballots, cut=cut, work_cut=work_cut)
    return replay_result(AGENTS, ("a", "b"), result)


def pattern(behind: str, against: int = 0, *, uncompared: int = 0, voted: bool = False, cut: bool = False) -> Pattern:
    return Pattern(tuple(behind), against, uncompared, voted, cut, "number")


def test_first_agents_are_read_before_the_others_and_all_with_their_ballots():
    replayed = replay({"c": "41", "b": "42", "a": "42"}, {"c": "b"})
    assert (replayed.first, replayed.full) == (pattern("ab"), pattern("ab", 1, voted=True))
    assert {replayed.first_winner, replayed.full_winner} == {"b"}, "the earliest of the same"
    split = replay({"a": "41", "b": "42", "c": "42"}, {})
    assert (split.first, split.first_winner) == (pattern("a", 1), "a")
    assert (split.full, split.full_winner) == (pattern("bc", 1), "b")


def test_agents_that_failed_leave_what_the_others_say():
    late = replay({"c": "42"}, {})
    assert (late.first.behind, late.first.agrees, late.first_winner) == ((), False, "")
    assert (late.full.behind, late.full_winner) == (("c",), "c")
    # The two that are left may vote for their own answers, as in the turn.
    two = replay({"a": "41", "b": "42"}, {"a": "a", "b": "a"})
    assert (two.full.behind, two.full_winner) == (("a", "b"), "a")
    assert replay({}, {}).full.rank < late.full.rank


def test_answer_without_its_end_says_no_result_and_one_from_cut_work_does():
    answers = {"a": "It is\n42", "b": "It is\n42"}
    lost = replay(answers, {}, cut=("a", "b"))
    assert (lost.first.kind, lost.first.cut) == ("text", True)
    short = replay(answers, {}, work_cut=("a", "b"))
    assert short.first == pattern("ab", cut=True)


def record(item: Item, *, ballots: dict[str, str] | None = None, **members: str) -> ItemResult:
    return ItemResult(team="t", item=item.key, seed=0, members=members, ballots=ballots or {}, answer="42")


def test_first_agents_count_with_what_they_said_before_they_read_the_others():
    item = Item("1", "?", "number", ("42",))
    result = record(item, a=SAME, b=SAME, c=SAME).model_copy(update={"replaced": {"b": "Answer: 7"}})
    replayed = replay_result(AGENTS, ("a", "b"), result)
    assert (replayed.first, replayed.full) == (pattern("a", 1), pattern("abc"))


def test_questions_with_the_same_patterns_are_counted_together():
    same, split = (replay({"a": "1", "b": "1", "c": last}, {}) for last in "12")
    nobody = replay({}, {})
    graded = [Graded("x", same, True, True), Graded("x", same, False, True), Graded("x", split, True, False)]
    counted = count_outcomes([*graded, Graded("y", same, True, True), Graded("x", nobody, False, False)])
    rows = {(one.group, len(one.full.behind)): (one.asked, one.right_first, one.right) for one in counted}
    assert rows == {("x", 3): (2, 1, 2), ("x", 2): (1, 1, 0), ("y", 3): (1, 1, 1)}
    assert count_outcomes(reversed(graded)) == count_outcomes(graded)


JUDGED, NUMBER = Item("1", "Why?", "judge", ("because",)), Item("2", "6 x 7?", "number", ("42",))


def calibrate(*rows: tuple[Item, ItemResult, bool]) -> tuple[Calibration, list[str]]:
    items, results, right = (list(column) for column in zip(*rows, strict=True))
    answers = Answers("team", items, results, right, AGENTS)
    return build_calibration(TEAM, answers, "d.jsonl"), list(list_gaps(TEAM, answers))


def test_calibration_has_numbers_of_questions_and_agents_and_no_texts():
    failed = ItemResult(team="t", item="x", seed=0, error="no")
    calibration, gaps = calibrate(
        (NUMBER, record(NUMBER, a=SAME, b="Answer: 7", c=SAME), True),
        (NUMBER, record(NUMBER, a="Answer: 7", b="Answer: 7"), False),
        (NUMBER, failed, False),
    )
    assert {agent: (one.right, one.asked) for agent, one in calibration.members.items()} == {
        "a": (1, 2),
        "b": (0, 2),
        "c": (1, 1),
    }
    assert sum(one.asked for one in calibration.outcomes) == 2
    assert "Answer" not in calibration.model_dump_json()
    assert gaps == [
        "a turn says nothing of its answers: that takes 30 questions",
        "1 without an answer are left out",
        "1 with answers of fewer than 3 agents count as they are",
    ]


@pytest.mark.parametrize(("third", "right_first"), [("because it is", 1), ("no reason", 0)])
def test_judged_answer_of_the_first_two_is_right_only_as_that_of_the_team(third: str, right_first: int):
    ballots = {"a": "c", "b": "c", "c": "c"} if third == "no reason" else {}
    result = record(JUDGED, a="because it is", b="Because it is.", c=third, ballots=ballots)
    calibration, gaps = calibrate((JUDGED, result, True))
    (one,) = calibration.outcomes
    assert (one.first.agrees, one.right, one.right_first, calibration.members) == (True, 1, right_first, {})
    assert gaps[1].startswith("of 1 a model judged the team's answer alone")


def test_table_adds_up_and_names_what_a_promise_comes_to():
    both = pattern("ab")

    def row(group: str, full: Pattern, asked: int, right: int, first: Pattern = both) -> Outcomes:
        return Outcomes(group=group, first=first, full=full, asked=asked, right_first=right, right=right)

    calibration, _ = calibrate((NUMBER, record(NUMBER, a=SAME, b=SAME, c=SAME), True))
    counts = (
        row("x", pattern("abc"), 60, 60),
        row("y", pattern("abc"), 20, 19),
        row("x", pattern("ab", 1), 30, 20),
        row("x", pattern("bc", 1), 40, 30, pattern("a", 1)),
    )
    calibration = calibration.model_copy(update={"outcomes": counts})
    lines = [line.split() for line in format_calibration(calibration).splitlines()]
    table = {" ".join(words[:-6]): words[-6] for words in lines if len(words) > 6 and "/" in words[-6]}
    assert table["3 behind (number)"] == "79/80"
    assert (table["x"], table["y"]) == ("60/60", "19/20")
    assert table["2 behind, 1 against (number)"] == "50/70"
    explained = {line.split("  ")[0]: line.split()[-6:] for line in format_calibration(calibration).splitlines()}
    assert explained["a, b, c (number)"] == ["%", "of", "82", "98.4", "%", "0.05"]
    assert explained["b, c, 1 against (number)"][-1] == "0.1", "(10 + 1 + 1) / (80 + 40 + 1)"
    assert explained["a, b, 1 against (number)"][-1] == "0.2"
    assert table["the first two: 2 behind (number)"] == "99/110"
    promises = {(one.max_error, one.depth): (one.answered.count, one.wrong.count) for one in list_promises(calibration)}
    assert promises[0.05, "full"] == (80, 1)
    assert promises[0.05, "adaptive"] == (80, 1)
    assert promises[0.2, "full"] == (150, 21)
    assert promises[0.2, "adaptive"] == (150, 21)


def grade_pairs(right: dict[str, tuple[int, int]]) -> dict[tuple[str, ...], list[Graded]]:
    """Return for each two agents, of a hundred questions, on how many they agreed, and were right."""
    agreed, split = (replay({"a": "1", "b": last}, {}) for last in "12")
    return {
        tuple(pair): [Graded("", agreed if i < agrees else split, i < count, False) for i in range(100)]
        for pair, (agrees, count) in right.items()
    }


CHEAP = {"a": 1.0, "b": 1.0, "c": 1.0}


@pytest.mark.parametrize(
    ("right", "prices", "pair"),
    [
        ({"ab": (40, 20), "ac": (40, 38), "bc": (40, 20)}, CHEAP, "ac"),
        ({"ab": (40, 30), "ac": (40, 32), "bc": (40, 30)}, CHEAP, "ab"),  # no clear difference: the usual two
        ({"ab": (40, 36), "ac": (40, 38), "bc": (40, 33)}, CHEAP | {"a": 30.0}, "bc"),  # a need not be paid for
    ],
)
def test_those_are_asked_first_whose_agreement_says_most_for_their_price(
    right: dict[str, tuple[int, int]], prices: dict[str, float], pair: str
):
    assert choose_pair(("a", "b"), grade_pairs(right), prices) == tuple(pair)


def test_calibration_asks_first_who_agrees_best_and_learns_how_seldom_the_wrong_agree():
    rows = [
        (NUMBER, record(NUMBER, a=str(n), b=SAME if n % 2 else "7", c=SAME if n % 2 else f"-{n}"), n % 2 == 1)
        for n in range(100, 200)
    ]
    calibration, _ = calibrate(*rows)
    assert calibration.first == ("b", "c")
    assert calibration.alternatives == 152, "of 150 pairs of wrong answers none is the same"
    assert all(one.first.behind == ("b", "c") for one in calibration.outcomes if one.first.agrees)


def test_measured_voices_are_those_that_the_answers_are_counted_with():
    rows = [
        (NUMBER, record(NUMBER, a=SAME if n % 10 else "9", b="7", c="7" if n % 10 else SAME), n % 10 > 0)
        for n in range(50)
    ]
    items, results, right = (list(column) for column in zip(*rows, strict=True))
    weighed = TEAM.model_copy(update={"coordination": TEAM.coordination.model_copy(update={"weights": "measured"})})
    answers = Answers("team", items, results, right, AGENTS)
    winners = [
        Counter({one.full.behind: one.asked for one in build_calibration(team, answers, "d").outcomes})
        for team in (TEAM, weighed)
    ]
    assert winners[0].most_common(1) == [(("b", "c"), 45)]
    assert winners[1].most_common(1) == [(("a",), 50)]
