"""Files with questions: the shapes that are read, what is said of those that are not, and which answers are right."""

import json
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import InputError
from massmem.evaluation.items import Item, Score, load_items, score


def write(folder: Path, *rows: Any, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load_one(folder: Path, **row: Any) -> Item:
    (item,) = load_items(write(folder, row))
    return item


@pytest.mark.parametrize(
    ("row", "scorer", "expected"),
    [
        ({"question": "6 x 7?", "answer": 42}, "number", ("42",)),
        ({"problem": "6 x 7?", "answer": "so it is\n#### 1,042"}, "number", ("so it is\n#### 1,042",)),
        ({"input": "Capital of France?", "target": "Paris"}, "exact", ("Paris",)),
        (
            {"input": [{"role": "user", "content": "Capital?"}], "ideal": ["Paris", "paris"]},
            "exact",
            ("Paris", "paris"),
        ),
        ({"question": "Which?", "choices": ["dog", "red"], "answer": "red"}, "choice", ("B",)),
        ({"question": "Which?", "choices": ["dog", "red"], "answer": 0}, "choice", ("A",)),
        ({"question": "Which?", "choices": {"text": ["dog", "red"]}, "answer": "(b)"}, "choice", ("B",)),
        ({"question": "Say", "check": {"regex": "^4"}}, "regex", ("^4",)),
        ({"question": "Say", "check": "contains", "answer": "four"}, "contains", ("four",)),
        ({"question": "Say", "answer": "True"}, "exact", ("True",)),
    ],
)
def test_shapes_of_a_question(tmp_path: Path, row: dict[str, Any], scorer: str, expected: tuple[str, ...]):
    item = load_one(tmp_path, **row)
    assert (item.scorer, item.expected) == (scorer, expected)


def test_choices_are_part_of_the_question(tmp_path: Path):
    item = load_one(tmp_path, question="Which?", choices=["dog", "red"], answer="B")
    assert "Which?\n\nA) dog\nB) red" in item.question


def test_csv_and_jsonl_read_the_same(tmp_path: Path):
    path = tmp_path / "data.csv"
    path.write_text('question,choices,answer,group\n"Which, then?","dog | red",B,animals\n6 x 7?,,42,sums\n')
    rows = [
        {"question": "Which, then?", "choices": ["dog", "red"], "answer": "B", "group": "animals"},
        {"question": "6 x 7?", "answer": "42", "group": "sums"},
    ]
    assert load_items(path) == load_items(write(tmp_path, *rows))


def test_scorer_of_the_command_line_yields_to_the_question(tmp_path: Path):
    path = write(tmp_path, {"question": "a", "answer": "1"}, {"question": "b", "answer": "1", "check": "exact"})
    assert [item.scorer for item in load_items(path, "contains")] == ["contains", "exact"]


def test_key_depends_on_the_question_alone(tmp_path: Path):
    first = load_one(tmp_path, question="a", answer="1")
    again = load_one(tmp_path, question="a", answer="2", id="x", group="y")
    other = load_one(tmp_path, question="b", answer="1")
    assert first.key == again.key != other.key


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "1"}, "there is no `question`"),
        ({"question": "  ", "answer": "1"}, "there is no `question`"),
        ({"question": "a"}, "no answer to compare with"),
        ({"question": "a", "answer": {"b": 1}}, "no text, number or list"),
        ({"question": "a", "choices": ["one"], "answer": "A"}, "no list of 2 to 26"),
        ({"question": "a", "choices": ["x", "y"], "answer": "z"}, "none of the choices"),
        ({"question": "a", "check": "choice", "answer": "A"}, "needs `choices`"),
        ({"question": "a", "check": {"regex": "("}}, "the pattern '(' cannot be used"),
        ({"question": "a", "check": {"regex": "(?=a)"}}, "looks around"),
        ({"question": "a", "check": "fuzzy", "answer": "1"}, '`check` is "fuzzy"'),
        ({"question": "a", "check": "number", "answer": "many"}, "'many' is no number"),
        ({"question": "a", "check": {"schema": {"type": "nonsense"}}}, "the schema cannot be used: type"),
        (["a"], "no JSON object"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, row: Any, message: str):
    path = write(tmp_path, {"question": "fine", "answer": "1"}, row)
    with pytest.raises(InputError) as error:
        load_items(path)
    assert message in error.value.message
    assert f"{path}:2" in error.value.message


def test_line_separators_inside_of_a_text_end_no_line(tmp_path: Path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"question": "one\u2028two\x85three?", "answer": "4"}\r\n')
    assert [item.question for item in load_items(path)] == ["one\u2028two\x85three?"]


def test_bad_files(tmp_path: Path):
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "broken.jsonl").write_text('{"question": \n')
    for name, message in {
        "missing.jsonl": "there is no file",
        ".": "is a folder",
        "bytes.jsonl": "not UTF-8",
        "empty.jsonl": "holds no questions",
        "broken.jsonl": "broken.jsonl:1: no JSON",
    }.items():
        with pytest.raises(InputError, match=message):
            load_items(tmp_path / name)


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
        (item("exact", "True"), "Not False is True.\n\nAnswer: True", True, "true"),
        (item("exact", "True"), "Not False is True.\n\nAnswer: it is not True", False, "it is not true"),
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


CASES = Path(__file__).with_name("scored_answers.jsonl")
"""Rows of data sets and texts as models write them, graded by a careful reader."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for case in map(json.loads, CASES.read_text("utf-8").splitlines())]
)
def test_an_answer_is_right_as_a_careful_reader_says(tmp_path: Path, case: dict[str, Any]):
    assert score(load_one(tmp_path, **case["row"]), case["text"]).right is case["right"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a", "choices": ["B", "A", "C"], "answer": "A"}, "may mean several of the choices"),
        ({"question": "a", "choices": ["2", "3", "1"], "answer": 2}, "may mean several of the choices"),
        ({"question": "a", "choices": ["x", "x"], "answer": "x"}, "may mean several of the choices"),
        ({"question": "a", "options": ["x", "y"], "answer": "A", "answer_index": 1}, "name two choices"),
        ({"question": "a", "__expected": "javascript: output.length"}, "`__expected` is 'javascript: output.length'"),
        ({"question": "a", "__expected1": "b", "__expected2": "c", "answer": "b"}, "several `__expected`"),
        ({"question": "a", "endings": ["x", "y"], "label": ""}, "no list of 2 to 26"),
    ],
)
def test_an_ambiguous_row_is_refused_with_its_line(tmp_path: Path, row: Any, message: str):
    with pytest.raises(InputError) as error:
        load_items(write(tmp_path, row))
    assert message in error.value.message and "data.jsonl:1" in error.value.message


def test_choices_without_an_order_are_drawn_by_their_question(tmp_path: Path):
    wrong = {f"Incorrect Answer {n}": f"wrong {n}" for n in (1, 2, 3)}
    items = [load_one(tmp_path, **{"Question": f"q{n}", "Correct Answer": "right", **wrong}) for n in range(20)]
    assert {item.expected for item in items} == {(letter,) for letter in "ABCD"}
    assert all(item.choices["ABCD".index(item.expected[0])] == "right" for item in items)


def test_judge_is_never_right_by_rule():
    assert not score(item("judge", "42"), "42").right
