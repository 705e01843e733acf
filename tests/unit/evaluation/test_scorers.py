"""Whether an answer is right."""

from typing import Any

import pytest

from massmem.evaluation.items import Item
from massmem.evaluation.scorers import Score, score


def item(scorer: Any, *expected: str, **more: Any) -> Item:
    return Item("1", "Why?", scorer, expected, **more)


FORM = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}


@pytest.mark.parametrize(
    ("question", "text", "right", "value"),
    [
        (item("number", "1,000"), "It is 1000.0", True, "1000"),
        (item("number", "7"), "It is 8", False, "8"),
        (item("number", "7"), "no idea", False, ""),
        (item("choice", "B", choices=("dog", "red")), "The answer is B", True, "B"),
        (item("choice", "B", choices=("dog", "red")), "neither", False, ""),
        (item("exact", "New York", "NYC"), "nyc.", True, "nyc"),
        (item("exact", "New York"), "in New York", False, "in new york"),
        (item("contains", "New York"), "It is in new york, I think", True, "new york"),
        (item("contains", "art"), "a party", False, "a party"),
        (item("regex", r"^4\d$"), "42", True, "42"),
        (item("regex", r"^4\d$"), "It is 42", False, "it is 42"),
        (item("schema", schema=FORM), '{"port": 80}', True, '{"port": 80}'),
        (item("schema", schema=FORM), '{"port": "80"}', False, '{"port 80"}'),
    ],
)
def test_score(question: Item, text: str, right: bool, value: str):
    assert score(question, text) == Score(right, value)


def test_judge_is_never_right_by_rule():
    assert not score(item("judge", "42"), "42").right
