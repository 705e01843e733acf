import pytest

from massmem.core.criticism import name_labels, replace_names

NAMES = {"A": "blue's answer", "B": "green's answer", "C": "red's answer"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("B has the load estimate, A lacks the counter-argument",
         "green's answer has the load estimate, blue's answer lacks the counter-argument"),
        ("Answer B's load (C); **Answer A**: fine", "green's answer's load (red's answer); **blue's answer**: fine"),
        ("answer (B) is right", "green's answer is right"),
        ("A better plan than B. A, though, is short.",
         "A better plan than green's answer. blue's answer, though, is short."),
        ("A/B tests in the U.S. cost C++ time", "A/B tests in the U.S. cost C++ time"),
        ("D and I are none", "D and I are none"),
    ],
)  # fmt: skip
def test_letters_of_answers_become_names(text: str, named: str):
    assert name_labels(text, NAMES) == named


def test_letters_of_the_question_or_of_an_answer_may_stand_for_something_else():
    assert name_labels("B is right; answer B", NAMES, "Which? A) tea B) milk") == "B is right; answer B"
    assert name_labels("C is missing; answer C", NAMES, "", ["vitamin C"]) == "C is missing; red's answer"


def test_names_become_what_the_reader_sees_the_longest_first():
    labels = {"blue's answer": "Answer C", "dark blue's answer": "Answer A"}
    assert replace_names("dark blue's answer, not blue's answer", labels) == "Answer A, not Answer C"
