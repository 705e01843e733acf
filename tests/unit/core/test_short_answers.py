"""The short answer in a text."""

import pytest

from massmem.core.short_answers import find_short_answer, normalise, read_choice, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The total is 1,234.50 dollars.", "1234.5"),
        ("First 3, then 4.", "4"),
        ("It costs $18.", "18"),
        ("It fell to -3 degrees", "-3"),
        ("10-3 is 7", "7"),
        ("between 5-6", "6"),
        ("so it is −2", "-2"),
        ("5 x 14.4 is 72.0\n#### 72", "72"),
        ("#### Step 2\nIt is 9.", "9"),
        ("thus $\\boxed{0.50}$, which rounds to 1", "0.5"),
        ("7.0", "7"),
        ("100", "100"),
        ("none at all", None),
        ("", None),
        ("１２", "12"),
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
        ("The answer is -5", "The answer is 5", False),
        ("f(x)", "f x", False),
        ("C++", "C", False),
        ("It is 42 km", "It is 42 miles", False),
    ],
)
def test_same_answer(first: str, second: str, same: bool):
    assert (find_short_answer(first) == find_short_answer(second)) is same


def test_normalised_texts_of_the_same_words_are_equal():
    assert normalise(" Paris,  FRANCE.") == normalise("“paris” france".replace("“", '"').replace("”", '"'))
    assert normalise("don't") != normalise("dont")
