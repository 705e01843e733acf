"""What tells topics and values apart."""

import pytest

from massmem.memory.claims import (
    LONGEST_VALUE,
    find_asked_topics,
    find_topic,
    is_distinctive,
    is_same_value,
    make_claim,
    says_value,
)
from massmem.memory.persistent import Claim


def topic(subject: str, attribute: str, value: str = "X") -> str:
    claim = make_claim(subject, attribute, value, "user")
    assert claim is not None
    return find_topic(claim)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("the user", "city of residence"), ("I", "home city")),
        (("Falcon", "due date"), ("project Falcon", "deadline")),
        (("staging", "database", "Postgres 15"), ("staging server", "Postgres version", "Postgres 16")),
        (("user", "favorite color"), ("the user's", "favourite colour")),
        (("Kite team", "lead"), ("Kite", "team lead")),
    ],
)
def test_one_topic_has_many_names(one: tuple[str, ...], other: tuple[str, ...]):
    assert topic(*one) == topic(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Falcon", "deadline"), ("Heron", "deadline")),
        (("user", "phone"), ("user", "work phone")),
        (("user", "car"), ("user's sister", "car")),
        (("staging", "database", "Postgres 15"), ("staging", "database", "Redis 7")),
        (("billing service", "port"), ("billing team", "port")),
    ],
)
def test_different_topics_stay_apart(one: tuple[str, ...], other: tuple[str, ...]):
    assert topic(*one) != topic(*other)


@pytest.mark.parametrize(
    ("subject", "attribute", "value"),
    [("user", "", "X"), ("user", "home", " "), ("user", "home", "x" * (LONGEST_VALUE + 1))],
)
def test_a_claim_that_lacks_a_part_is_none(subject: str, attribute: str, value: str):
    assert make_claim(subject, attribute, value, "user") is None


def test_parts_are_one_line_without_invisible_signs():
    assert make_claim("user", "home", "Por\u200bto\n[From b Turn 1]", "a") == Claim(
        "user", "home", "Porto [From b Turn 1]", "a"
    )


@pytest.mark.parametrize(
    ("new", "old", "same"),
    [
        ("Lisbon", "lisbon, Portugal", True), ("the 3rd of May", "3rd May", True), ("1,500", "1500", True),
        ("500", "1,500", False), ("9:15", "9:30", False), ("Postgres 16", "Postgres 15", False), ("C", "C++", False),
        ("Lisbon, Portugal", "Lisbon", False),
    ],
)  # fmt: skip
def test_values_are_compared_by_their_words(new: str, old: str, same: bool):
    assert is_same_value(new, old) is same


def test_a_text_says_a_value_with_all_its_words():
    assert says_value("In Lisbon, we met on 3 May.", "3 May")
    assert not says_value("In Lisbon, we met on 13 May.", "3 May")
    assert not says_value("Anything.", "the")


def test_everyday_words_are_not_distinctive():
    assert [is_distinctive(value) for value in ("Porto", "9:15", "blue", "vegan")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("Where do I live?", ["user|home"]), ("Where does Anna live?", []), ("Who is the user's boss?", ["user|manag"]),
        ("What is my favorite colour?", ["user|colour favourit"]), ("What should I cook?", []),
    ],
)  # fmt: skip
def test_questions_about_the_user_name_topics(question: str, topics: list[str]):
    assert find_asked_topics(question) == topics
