"""Rules that choose among recorded answers, on ballots that can be counted by hand."""

import pytest

from massmem.evaluation.rules import RULES, choose_most_common

VALUES = {"a": "7", "b": "1", "c": "7", "d": "2"}
BALLOTS = {"a": "b", "c": "b", "d": "b", "b": "a"}


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
    assert RULES[rule](VALUES, BALLOTS) == chosen


def test_ballots_decide_between_answers_that_equally_many_gave():
    values, ballots = {"a": "1", "b": "2", "c": "3"}, {"a": "c", "b": "c", "c": "b"}
    chosen = {name: choose(values, ballots) for name, choose in RULES.items()}
    assert chosen == {
        "the first agent's answer": "1",
        "the answer that most gave": "1",
        "the same, ballots decide between equals": "3",
        "the answer with most ballots": "3",
        "authors and ballots together": "3",
    }


def test_answers_that_come_to_nothing_are_never_chosen_where_there_is_another():
    values = {"a": "4", "b": "", "c": ""}
    assert {choose(values, {"a": "b", "b": "c"}) for choose in RULES.values()} == {"4"}
    assert {choose({"a": "", "b": ""}, {}) for choose in RULES.values()} == {""}


def test_most_common_value():
    assert choose_most_common(["1", "2", "2", ""]) == "2"
    assert choose_most_common(["2", "1"]) == "2"
    assert choose_most_common(["", ""]) == ""
