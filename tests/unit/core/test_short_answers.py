"""The result of a text, and which texts come to the same one."""

import json
from pathlib import Path
from typing import Any

import pytest

from massmem.core.short_answers import list_keys, normalise, read_choice, read_short_answer

CASES = Path(__file__).with_name("same_answers.jsonl")
"""Texts as models write them, and whether a careful reader says that they give one result."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for case in map(json.loads, CASES.read_text("utf-8").splitlines())]
)
def test_the_same_as_a_careful_reader_says(case: dict[str, Any]):
    assert (len(set(group(*case["answers"]))) == 1) is case["same"]


def read_number(text: str) -> str | None:
    result = read_short_answer(text, graded=True).result
    return None if result is None or result.kind != "number" else str(result)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The total is 1,234.50 dollars.", "1234.5 USD"),
        ("First 3, then 4.", "4"),
        ("It costs $18.", "18 USD"),
        ("It fell to -3 degrees", "-3 °"),
        ("10-3 is 7", "7"),
        ("between 5-6", None),
        ("so it is −2", "-2"),
        ("5 x 14.4 is 72.0\n#### 72", "72"),
        ("#### Step 2\nIt is 9.", "9"),
        ("thus $\\boxed{0.50}$, which rounds to 1", "0.5"),
        ("7.0", "7"),
        ("100", "100"),
        ("none at all", None),
        ("", None),
        ("１２", "12"),
        ("12345678901234567890123456789012345", "12345678901234567890123456789012345"),
        ("7" * 1_100_000, None),
    ],
)
def test_number_that_a_text_ends_in(text: str, number: str | None):
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("**B**", "B"),
        ("(b) is wrong. The answer is C.", "C"),
        ("The correct answer is: (A) dog", "A"),
        ("Option B fits, because A dog barks.", "B"),
        ("Let us see.\nC) blue", "C"),
        ("It must be blue.", "C"),
        ("A dog or a red thing", ""),
        ("The answer is E.", ""),
        ("", ""),
    ],
)
def test_letter_that_a_text_chooses(text: str, letter: str):
    assert read_choice(text, ["dog", "red", "blue"]) == letter


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (" Paris,  FRANCE.", "paris france", True),
        ("**42**", "42", True),
        ("5 x 8 + 2\n#### 42", "6 x 7\n#### 42", True),
        ("so \\boxed{7}", "thus it is \\boxed{7}.", True),
        ("#### Conclusion\nYes.", "#### Conclusion\nNo.", False),
        ("-5", "5", False),
        ("5 x 8 + 2 is 42\n**Answer: 42**", "6 x 7\n\n42.", True),
        ("So the answer is $1,200.", "We get\n\\boxed{1200}", True),
        ("It is late.\nThe final answer is: (B)", "Answer: b", True),
        ("It is even.\nYes.", "Four divides it.\nyes", True),
        ("It takes\nAnswer: 5 km", "It takes\nAnswer: 5 miles", False),
        ("Paris is large.\nIt is in France.", "Rome is large.\nIt is in France.", False),
        ("My answer is that it depends on what you want to do with it, and on how much time there is.", "It", False),
        ("The best choice is not obvious. Take Kafka.", "The best choice is not obvious. Take Redis.", False),
        ("I would say it depends.\nTake Kafka.", "I would say it depends.\nTake Redis.", False),
        ("My answer to your question. Take Kafka.", "My answer to your question. Take Redis.", False),
        ("Solution:\nInstall it.\npip install kafka", "Solution:\nInstall it.\npip install redis", False),
        ("Answer: Paris\n\nIt lies on the Seine.", "It is old. The answer is Paris.", True),
        ("Odpowiedź to Paryż.", "Paryż", True),
        ("The answer is -5", "The answer is 5", False),
        ("f(x)", "f x", False),
        ("C++", "C", False),
        ("It is 42 km", "It is 42 miles", False),
        ("We met on the 3rd. 27", "27", False),
        ("I like it. 2024-05-03", "2024-05-03", False),
        ("What is 3 * 9? 27", "27", True),
        ("3 * 9 = 27. 27", "27", True),
        ("There are 12 months in a year, and 24 in two.", "12", False),
        ("10 minutes ago", "10", False),
        ("3 May", "May 3", True),
        ("3 May", "3", False),
        ("Twelve.", "12", True),
        ("B) Paris", "B. Paris", True),
    ],
)
def test_same_answer(first: str, second: str, same: bool):
    assert (len(set(list_keys({"a": read_short_answer(first), "b": read_short_answer(second)}).values())) == 1) is same


def group(*texts: str) -> list[str]:
    """Return the keys of answers to one question."""
    return list(list_keys({str(i): read_short_answer(text) for i, text in enumerate(texts)}).values())


@pytest.mark.parametrize(
    "text",
    [
        "Answer: 240 sheets of paper",
        "Answer: Tommy folds $240",
        "120 + 120\nTogether that makes 240.",
        "Answer: \\$240",
    ],
)
def test_where_one_answer_is_a_number_the_number_of_the_others_counts(text: str):
    assert group("Answer: 240", text, "Answer: 24") == ["240", "240", "24"]


def test_letter_or_verdict_that_begins_the_last_line_counts_where_another_answer_is_one():
    assert group("Answer: B", "The answer is B) the 4th of May", "(B), because of May") == ["b", "b", "b"]
    assert group("Answer: no", "It is odd.\nNo, it is not.", "Nobody knows") == ["no", "no", "nobody knows"]


def test_words_beside_numbers_count_where_no_answer_is_bare():
    assert len(set(group("Answer: Paris, 1889", "Answer: London, 1889"))) == 2
    assert len(set(group("Answer: 5 km", "Answer: 5 miles", "Answer: 6"))) == 3


def test_answer_without_its_end_has_no_result():
    keys = list_keys({"a": read_short_answer("240"), "b": read_short_answer("We get\n240", truncated=True)})
    assert len(set(keys.values())) == 2


def test_normalised_texts_of_the_same_words_are_equal():
    assert normalise(" Paris,  FRANCE.") == normalise("“paris” france".replace("“", '"').replace("”", '"'))
    assert normalise("don't") != normalise("dont")
