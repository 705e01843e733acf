"""Open tasks: what stands in place of an answer, how code checks it, and what counts as graded."""

from pathlib import Path

import pytest

from massmem.core.errors import InputError
from massmem.core.items import Check, Item, UnionItem
from massmem.evaluation.evaluate import compare_sets
from massmem.evaluation.items import load_items
from massmem.evaluation.tasks import Matches, OpenTask, match_items, read_grades, read_task

KNOWN = (
    Item("SQL injection through the name in the query", file="login.py", lines=(12, 12)),
    Item("the session never ends", file="session.py", lines=(4, 4)),
)


def list_item(number: int, title: str, file: str = "", line: int | None = None, *, rejected: bool = False) -> UnionItem:
    item = Item(title, file=file, lines=None if line is None else (line, line))
    checks = (Check(number, "reject", "no", "b"),) if rejected else ()
    return UnionItem(number, item, ("a",), (item,), checks)


def test_items_are_matched_by_place_and_words_each_once():
    listed = [
        list_item(1, "The name is put into the query: SQL injection", "login.py", 13),
        list_item(2, "SQL injection in the query with the name", "login.py", 12),
        list_item(3, "The session never ends", "other.py", 4),
        list_item(4, "Tokens are guessed", "session.py", 5),
    ]
    # The second is the same fault again, the third stands in another file; of the fourth code cannot tell.
    assert match_items(KNOWN, listed) == Matches(listed=4, known=2, matched=1, uncompared=1)


def test_items_that_somebody_rejects_count_apart():
    listed = [list_item(1, "SQL injection through the name", "login.py", 12), list_item(2, "Slow", rejected=True)]
    grade = OpenTask.model_construct(items=KNOWN).grade("", listed, [])
    assert (grade.items["all"].listed, grade.items["uncontested"].listed) == (2, 1)
    assert grade.items["all"].matched == grade.items["uncontested"].matched == 1


def test_f1_and_its_interval():
    figures = compare_sets([Matches(listed=3, known=4, matched=2, uncompared=1)] * 2)
    assert (figures.precision.count, figures.precision.total) == (4, 6)
    assert (figures.recall.count, figures.recall.total, figures.uncompared) == (4, 8, 2)
    assert figures.f1.value == pytest.approx(2 * 4 / (6 + 8))
    low, high = figures.f1.interval
    assert 0 < low < figures.f1.value < high < 1
    assert compare_sets([Matches(listed=0, known=4, matched=0, uncompared=0)]).f1.value == 0


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("The water is off on 14 May.", [True, True, True, True]),
        ("The water is off on 24 May, sorry.", [False, False, True, True]),
        ("14 May", [True, True, False, True]),
        ("Off on 14 May " + "and so on " * 10, [True, True, True, False]),
        ("", [False, False, False, False]),
    ],
)
def test_code_checks_words(text: str, met: list[bool]):
    task = OpenTask(must_mention=("14 May",), must_not_mention=("sorry", "apologise"), min_words=3, max_words=10)
    assert [one.met for one in task.grade(text, (), []).criteria] == met


@pytest.mark.parametrize(
    ("reply", "met"),
    [
        ('So. {"criteria": [{"item": 2, "met": false}, {"item": 1, "reason": "yes", "met": true}]}', [True, False]),
        ('{"criteria": [{"item": 1, "met": null}, {"item": 3, "met": true}]}', [None, None]),
        ('{"criteria": [1, {"item": "2", "met": true}]}', [None, True]),
        ('{"criteria": {"item": 1, "met": true}}', [None, None]),
        ("WRONG", [None, None]),
        ("1. I cannot help with that.\n2. No.", [None, None]),
        ("", [None, None]),
    ],
)
def test_grades_of_a_reply(reply: str, met: list[bool | None]):
    assert read_grades(reply, 2) == met


def test_task_of_a_row(home: Path):
    assert read_task({"question": "?"}, "4", "f:1") is None
    task = read_task({"items": [{"title": "a", "place": "x.py:3-4"}], "job": "decide", "max_words": 9}, None, "f:1")
    assert task is not None and task.items is not None
    assert (task.items[0].file, task.items[0].lines, task.max_words) == ("x.py", (3, 4), 9)
    assert "names the option that is chosen, and why" in [one.text for one in task.rubric]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('{"question": "?", "answer": 4, "rubric": [{"text": "short"}]}', "an answer and `rubric`"),
        ('{"question": "?", "rubric": [{"text": "short", "weight": 0}]}', "weight"),
        ('{"question": "?", "max_words": 0}', "max_words"),
        ('{"question": "?", "items": 3}', "no list of items"),
        ('{"question": "?", "job": "dance"}', "no job 'dance'"),
    ],
)
def test_an_unusable_task_says_why(tmp_path: Path, home: Path, row: str, why: str):
    path = tmp_path / "tasks.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(InputError, match=why):
        load_items(path)
