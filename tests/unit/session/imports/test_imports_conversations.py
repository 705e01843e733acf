"""What all exports share: branches, pairs of question and answer, times."""

from datetime import UTC, datetime
from typing import Any

import pytest

from massmem.session.imports.conversations import Message, build, follow_branch, read_time

DAY = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (DAY.timestamp(), DAY), (DAY.timestamp() * 1e3, DAY), (DAY.timestamp() * 1e6, DAY),
        (str(int(DAY.timestamp())), DAY), (str(int(DAY.timestamp() * 1e3)), DAY),
        ("2026-01-02", DAY), ("2026-01-02T00:00:00.000000Z", DAY), ("2026-01-02T01:00:00+01:00", DAY),
        ({"$date": {"$numberLong": str(int(DAY.timestamp() * 1e3))}}, DAY),
        ({"$date": "2026-01-02T00:00:00Z"}, DAY),
        (None, None), ("", None), ("soon", None), (-1, None), (1e300, None), ("2999-01-01", None), ([], None),
        ({}, None),
    ],
)  # fmt: skip
def test_times_in_every_unit(value: Any, time: datetime | None):
    assert read_time(value) == time


def test_questions_without_an_answer_are_joined_to_the_next_one_and_counted_at_the_end():
    user, agent = (lambda text: Message(True, text)), (lambda text: Message(False, text))
    exchange = [user("List"), user("List moons"), agent("Two."), agent("More."), user(" "), agent(""), user("Thanks")]
    conversation = build("test", None, "", exchange, "ann")
    assert [(turn.question, turn.answer) for turn in conversation.turns] == [("List\n\nList moons", "Two.\n\nMore.")]
    assert conversation.left_out == {"question without an answer": 1}


def test_branch_without_an_end_is_the_one_with_the_newest_message():
    parents = {"a": None, "b": "a", "c": "a", "d": "c", "e": "b"}
    times = {"b": DAY, "d": datetime(2025, 1, 1, tzinfo=UTC)}
    assert follow_branch(parents, None, times) == ["a", "b", "e"]
    assert follow_branch(parents, "d", times) == ["a", "c", "d"]
    assert follow_branch(parents, None, {}) == ["a", "b", "e"]
    assert follow_branch({}, "x", {}) == []
    assert follow_branch({"a": "b", "b": "a"}, None, {}) == ["a", "b"]


def test_long_branches_are_followed_at_once():
    parents = {str(n): str(n - 1) for n in range(100_000)}
    assert len(follow_branch(dict(reversed(parents.items())), None, {})) == 100_000
