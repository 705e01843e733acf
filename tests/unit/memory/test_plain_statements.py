"""Which sentences of a user are claims, and which only look like one."""

import pytest

from massmem.memory.claims import find_topic
from massmem.memory.plain_statements import read_claims, read_statement


@pytest.mark.parametrize(
    ("sentence", "subject", "attribute", "value"),
    [
        ("I live in Porto.", "user", "home", "Porto"),
        ("By the way, we live in Porto now, near the river.", "user", "home", "Porto"),
        ("My flat is in Porto.", "user", "home", "Porto"),
        ("I work for Kestrel Labs.", "user", "employer", "Kestrel Labs"),
        ("Anna is my boss.", "user", "manager", "Anna"),
        ("My phone number is 555-0117.", "user", "phone", "555-0117"),
        ("My favorite colour is light blue.", "user", "favourite colour", "light blue"),
        ("The deadline of Falcon is 3 May.", "Falcon", "deadline", "3 May"),
        ("The Falcon deadline is 3 May.", "falcon", "deadline", "3 May"),
        ("Falcon's deadline is 3 May.", "Falcon", "deadline", "3 May"),
        ("The staging server runs Postgres 16.", "staging server", "postgres version", "Postgres 16"),
        ("Heron has a budget of 42,000 euros.", "Heron", "budget", "42,000 euros"),
        ("I'm 34 years old.", "user", "age", "34"),
    ],
)
def test_plain_statements_are_claims(sentence: str, subject: str, attribute: str, value: str):
    claim = read_statement(sentence)
    assert claim is not None
    assert (claim.subject, claim.attribute, claim.value, claim.by) == (subject, attribute, value, "user")


@pytest.mark.parametrize(
    "sentence",
    [
        "Do I live in Porto?", "I might live in Porto.", "I used to live in Porto.", "I want to work for Kestrel Labs.",
        "I will live in Porto.", "I don't live in Porto.", "If I live in Porto, taxes fall.",
        "I think my boss is Anna.",
        "My boss is nice.", "My boss is in Porto.", "My wife is Italian.", "My phone is a Pixel 8.", "I live at home.",
        "I work at night.", "The sister of John is Clara.", "The problem of the day is Postgres 16.", "It is my job.",
        "My sister Clara is a nurse.", "I speak Danish.", "The staging server runs nginx.", "My account is locked.",
        'He wrote: "I live in Porto".', "My job is stressful.", "I live in Porto or Lisbon.",
        "I own a Canon camera.", "We have a house in Spain.",
    ],
)  # fmt: skip
def test_unsure_past_planned_and_other_sentences_are_none(sentence: str):
    assert read_statement(sentence) is None


@pytest.mark.parametrize("sentence", ["The deadline is 3 May.", "Our budget is 5,000 euros.", "My deadline is 3 May."])
def test_an_attribute_of_something_unnamed_is_none(sentence: str):
    """In the next conversation it would be the deadline of something else."""
    assert read_statement(sentence) is None


def test_claims_come_in_the_order_of_the_text_and_a_number_ends_a_sentence():
    text = "The weekly sync is at 9:15. My boss is Anna. The staging server runs Postgres 16. What next?"
    assert [claim.value for claim in read_claims(text, text)] == ["9:15", "Anna", "Postgres 16"]


def test_pasted_material_is_not_read():
    text = "I live in Porto."
    assert read_claims(text + " Lorem ipsum dolor sit amet." * 40, text) == []


def test_wordings_of_one_attribute_share_a_topic():
    sentences = ("I live in Porto.", "Home is Ghent.", "We rent a place in Ghent.", "I am based in Ghent.")
    claims = [claim for sentence in sentences if (claim := read_statement(sentence))]
    assert len(claims) == len(sentences)
    assert {find_topic(claim) for claim in claims} == {"user|home"}
