"""The short answer in a text."""

import pytest

from massmem.evaluation.short_answers import normalise, read_choice, read_number


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
        ("#### 72\nas 5 x 14.4", "72"),
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


def test_normalised_texts_of_the_same_words_are_equal():
    assert normalise(" Paris,  FRANCE.") == normalise("“paris” france".replace("“", '"').replace("”", '"'))
    assert normalise("don't") != normalise("dont")
