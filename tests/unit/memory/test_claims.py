"""Topics and values told apart; sentences that are claims, or only look like one; which value holds when."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.claims import (
    LONGEST_VALUE,
    Chain,
    build_chains,
    find_asked_topics,
    find_topic,
    is_distinctive,
    is_same_value,
    make_claim,
    read_claims,
    read_statement,
    says_value,
)
from massmem.memory.persistent import USER, Claim, Memory


def test_names_of_the_user_are_one_subject():
    claims = [make_claim(name, "home", "Porto.", USER) for name in ("user", "I", "my", "the user's")]
    assert claims == [Claim("user", "home", "Porto", USER)] * 4


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
        ("What is my favorite colour?", ["user|favourit", "user|colour favourit"]), ("What should I cook?", []),
        ("What is my shoe size?", ["user|size", "user|shoe", "user|shoe size"]),
    ],
)  # fmt: skip
def test_questions_about_the_user_name_topics(question: str, topics: list[str]):
    assert find_asked_topics(question) == topics


@pytest.mark.parametrize(
    ("sentence", "subject", "attribute", "value"),
    [
        ("My home is Porto.", "user", "home", "Porto"),
        ("By the way, my home is Porto now, near the river.", "user", "home", "Porto"),
        ("Our city is Porto.", "user", "home", "Porto"),
        ("Anna is my boss.", "user", "manager", "Anna"),
        ("My phone number is 555-0117.", "user", "phone", "555-0117"),
        ("My favorite colour is light blue.", "user", "favorite colour", "light blue"),
        ("My shoe size is 42!", "user", "shoe size", "42"),
        ("Falcon’s code is 4471.", "Falcon", "code", "4471"),
        ("The deadline of Falcon is 3 May.", "Falcon", "deadline", "3 May"),
        ("The Falcon deadline is 3 May.", "Falcon", "deadline", "3 May"),
        ("Falcon's deadline is 3 May.", "Falcon", "deadline", "3 May"),
        ("3 May is the deadline of Falcon.", "Falcon", "deadline", "3 May"),
        ("My job is Staff Engineer.", "user", "job", "Staff Engineer"),
        ("The region for production is eu-west-1.", "production", "region", "eu-west-1"),
        ("The gate of Falcon is B17.", "Falcon", "gate", "B17"),
    ],
)
def test_plain_statements_are_claims(sentence: str, subject: str, attribute: str, value: str):
    claim = read_statement(sentence)
    assert claim is not None
    assert (claim.subject, claim.attribute, claim.value, claim.by) == (subject, attribute, value, "user")


@pytest.mark.parametrize(
    "sentence",
    [
        "Is my home Porto?", "My home might be Porto.", "My home was Porto.", "I want my home to be Porto.",
        "My home will be Porto.", "My home is not Porto.", "If my home is Porto, taxes fall.",
        "I think my boss is Anna.", "My boss is nice.", "My boss is in Porto.", "My wife is Italian.",
        "My phone is a Pixel 8.", "My home is Porto?", "The sister of John is Clara.",
        "The problem of the day is Postgres 16.", "It is my job.", "I live in Porto.", "My sister Clara is a nurse.",
        "I speak Danish.", "The staging server runs nginx.", "My account is locked.", 'He wrote: "My home is Porto".',
        "My job is stressful.", "My home is Porto or Lisbon.", "My home is .", "The gate of Falcon is closed.",
    ],
)  # fmt: skip
def test_unsure_past_planned_and_other_sentences_are_none(sentence: str):
    assert read_statement(sentence) is None


@pytest.mark.parametrize("sentence", ["The deadline is 3 May.", "Our budget is 5,000 euros.", "My deadline is 3 May."])
def test_an_attribute_of_something_unnamed_is_none(sentence: str):
    """In the next conversation it would be the deadline of something else."""
    assert read_statement(sentence) is None


def test_claims_come_in_the_order_of_the_text_and_a_number_ends_a_sentence():
    text = "The time of the weekly sync is 9:15. My boss is Anna. The gate of Falcon is B17. What next?"
    assert [claim.value for claim in read_claims(text, text)] == ["9:15", "Anna", "B17"]


def test_pasted_material_is_not_read():
    text = "My home is Porto."
    assert read_claims(text, text)
    assert read_claims(text + " Lorem ipsum dolor sit amet." * 40, text) == []


def test_names_of_one_attribute_share_a_topic():
    sentences = ("My home is Porto.", "My home city is Ghent.", "Ghent is my place of residence.")
    claims = [claim for sentence in sentences if (claim := read_statement(sentence))]
    assert len(claims) == len(sentences)
    assert {find_topic(claim) for claim in claims} == {"user|home"}


def test_a_frame_makes_no_claims():
    text = "Suppose my home is Porto. My boss is Anna."
    assert read_claims(text, text) == []
    text = "My boss is Anna. My salary is 1 billion, ha ha."
    assert read_claims(text, "My salary is 1 billion, ha ha.") == []


START = datetime(2026, 5, 8, 9, tzinfo=UTC)


def note(number: int, day: float, value: str, by: str = USER) -> Memory:
    claim = Claim("user", "home", value, by)
    time = START + timedelta(days=day)
    return Memory(str(number), "fact", "s", 1, "a", f"Home is {value}.", (f"m{number}",), time, claims=(claim,))


def chain(*memories: Memory) -> Chain:
    (one,) = build_chains(memories).values()
    return one


def spans(*memories: Memory) -> list[tuple[str, int, int | None]]:
    """Each value with the first day and the day when it ended."""
    return [
        (e.claim.value, (e.since - START).days, None if e.until is None else (e.until - START).days)
        for e in chain(*memories).entries
    ]


def test_a_later_value_takes_the_place_of_an_earlier_one_whatever_the_order_of_recording():
    assert spans(note(2, 5, "Ghent"), note(1, 0, "Porto")) == [("Porto", 0, 5), ("Ghent", 5, None)]


def test_a_value_that_is_said_again_holds_from_the_first_time():
    assert spans(note(1, 0, "Porto"), note(2, 5, "porto"), note(3, 9, "Ghent")) == [("Porto", 0, 9), ("Ghent", 9, None)]


def test_a_value_that_comes_back_holds_again():
    memories = note(1, 0, "Porto"), note(2, 5, "Ghent"), note(3, 9, "Porto")
    assert spans(*memories) == [("Porto", 0, 5), ("Ghent", 5, 9), ("Porto", 9, None)]


def test_agents_who_disagree_are_both_shown_and_named():
    one = chain(note(1, 0, "Porto", "a"), note(2, 5, "Ghent", "b"))
    assert [(e.claim.value, e.authors, e.disputed_by) for e in one.holding] == [
        ("Porto", ["a"], ("b",)), ("Ghent", ["b"], ("a",)),
    ]  # fmt: skip


def test_an_agent_corrects_itself_and_nobody_else():
    memories = note(1, 0, "Porto", "a"), note(2, 1, "Porto", "b"), note(3, 5, "Ghent", "a")
    assert [(e.claim.value, e.authors) for e in chain(*memories).holding] == [("Porto", ["b"]), ("Ghent", ["a"])]


def test_the_user_settles_what_agents_said_before_but_not_what_they_say_later():
    settled = note(1, 0, "Porto", "a"), note(2, 1, "Ghent", "b"), note(3, 5, "Turku")
    assert [e.claim.value for e in chain(*settled).holding] == ["Turku"]
    disputed = chain(*settled, note(4, 9, "Ghent", "b"))
    assert [(e.claim.value, e.disputed_by) for e in disputed.holding] == [("Turku", ("b",)), ("Ghent", (USER,))]


def test_of_two_values_of_one_moment_none_is_newer():
    assert [e.claim.value for e in chain(note(1, 0, "Porto"), note(2, 0, "Ghent")).holding] == ["Porto", "Ghent"]


def test_of_two_passages_of_one_message_the_later_one_holds():
    first, second = note(1, 0, "Porto"), note(2, 0, "Ghent")
    passages = [
        Memory(m.id, "episode", "s", 1, USER, m.text, ("m",), m.created_at, claims=m.claims) for m in (first, second)
    ]
    assert [e.claim.value for e in chain(*passages).holding] == ["Ghent"]


def test_topics_are_apart():
    other = Memory("9", "fact", "s", 1, "a", "x", ("m9",), START, claims=(Claim("user", "car", "Zoe", USER),))
    assert {t: [e.claim.value for e in c.holding] for t, c in build_chains([note(1, 0, "Porto"), other]).items()} == {
        "user|home": ["Porto"], "user|car": ["Zoe"],
    }  # fmt: skip


@given(st.permutations([(1, 0, "Porto"), (2, 3, "Ghent"), (3, 5, "Porto"), (4, 9, "Turku"), (5, 9.5, "Turku")]))
def test_the_order_in_which_memories_are_read_makes_no_difference(rows: list[tuple[int, float, str]]):
    assert spans(*(note(*row) for row in rows)) == [
        ("Porto", 0, 3), ("Ghent", 3, 5), ("Porto", 5, 9), ("Turku", 9, None),
    ]  # fmt: skip


def test_without_a_memory_the_rest_is_as_if_it_had_never_been_said():
    assert spans(note(1, 0, "Porto"), note(3, 9, "Porto")) == [("Porto", 0, None)]
