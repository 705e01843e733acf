"""What the wording of a question tells."""

from collections.abc import Sequence
from datetime import date

import pytest

from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import RecallOptions
from massmem.memory.retrieval.query import (
    TOLD_WITHIN,
    analyse,
    find_days,
    find_names,
    find_spellings,
    search_forms,
    split_asks,
)
from massmem.memory.words import stem
from tests.support.memories import asks, count, make_episode


@pytest.mark.parametrize(
    ("question", "user"),
    [("What is my plan?", True), ("What did the user want?", True), ("When did we start?", True), ("Who won?", False)],
)
def test_it_knows_when_the_user_is_meant(question: str, user: bool):
    assert analyse(question).about_user is user


@pytest.mark.parametrize(
    ("question", "time"), [("When was it?", True), ("How many days did it take?", True), ("Where was it?", False)]
)
def test_it_knows_when_a_time_is_asked_for(question: str, time: bool):
    assert analyse(question).asks_time is time


@pytest.mark.parametrize(
    ("question", "order", "overview"),
    [
        ("In what order did I bring up my plans?", True, True),
        ("Can you list the order in which we did it?", True, True),
        ("Summarize how I got on.", False, True),
        ("What have we decided so far?", False, True),
        ("How has my garden changed?", False, True),
        ("How many plants did I name across my messages?", False, True),
        ("How many cupcakes did I order?", False, False),
        ("How did Ana feel about her work?", False, False),
        ("What changed?", False, False),
    ],
)
def test_it_knows_when_a_whole_course_is_asked_for(question: str, order: bool, overview: bool):
    asked = analyse(question)
    assert (asked.asks_order, asked.asks_overview) == (order, overview)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("on 13 March, 2023", date(2023, 3, 13), date(2023, 3, 13)),
        ("on May 3rd, 2023", date(2023, 5, 3), date(2023, 5, 3)),
        ("in June 2023", date(2023, 6, 1), date(2023, 6, 30)),
        ("on 2023-06-09", date(2023, 6, 9), date(2023, 6, 9)),
    ],
)
def test_dates_with_a_year_are_ranges(text: str, first: date, last: date):
    assert find_days(text) == ((first.toordinal(), last.toordinal() + TOLD_WITHIN),)


@pytest.mark.parametrize("text", ["31 February 2023", "May 0000", "2023-13-01", "2023-02-30", "in May", "9999-12-31"])
def test_text_without_a_date_gives_none(text: str):
    assert find_days(text) == ()


def test_speakers_are_named_by_all_parts_of_their_name_and_roles_are_no_names():
    speakers = ["Maria", "agent_b", "user", "assistant"]
    assert find_names(analyse("What did Maria's dog eat?"), speakers) == {"Maria"}
    assert find_names(analyse("What did agent b and the assistant find?"), speakers) == {"agent_b"}
    assert find_names(analyse("What did b find?"), speakers) == frozenset()


def test_names_are_no_words_to_look_for_unless_nothing_else_is_left():
    question = analyse("What did Maria paint?")
    assert [*search_forms(question, ["Maria"])] == [("paint",)]
    assert [*search_forms(question, [])] == [("maria",), ("paint",)]
    assert [*search_forms(analyse("Maria?"), ["Maria"])] == [("maria",)]


@pytest.fixture
async def memory(index: EdgeIndex) -> IndexedMemory:
    memory = IndexedMemory(index, None, count, "")
    texts = ["The recipe needs cardamom.", "Kites nest in Lisbon.", "Room 4410 is locked.", "Собака спит."]
    await memory.record([make_episode(text, i) for i, text in enumerate(texts)])
    return memory


def spellings(index: EdgeIndex, question: str, agent: str = "a", read: Sequence[str] = ()) -> list[str]:
    return find_spellings(index, analyse(question), asks(agent), read, lambda text: text == question)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("the recpie", "recipe"),
        ("the recipi", "recipe"),
        ("the Recie", "recipe"),
        ("in Lisbonn", "lisbon"),
        ("in Lísbn", "lisbon"),
        ("сабака", "собака"),
    ],
)
async def test_a_typo_is_looked_for_as_it_was_meant(index: EdgeIndex, memory: IndexedMemory, question: str, word: str):
    assert spellings(index, question) == [stem(word)]


@pytest.mark.parametrize("question", ["the recipe in Lisbon", "room 4411", "room 4401", "a kit", "zeppelin", ""])
async def test_known_words_numbers_and_short_words_stay(index: EdgeIndex, memory: IndexedMemory, question: str):
    assert spellings(index, question) == []


async def test_data_is_not_looked_for_in_other_spellings(index: EdgeIndex, memory: IndexedMemory):
    assert spellings(index, f"the recpie {'x' * 500_000}") == [stem("recipe")]


async def test_words_of_a_long_question_are_taken_as_they_are(index: EdgeIndex, memory: IndexedMemory):
    assert (
        spellings(
            index, "the recpie " + " ".join("zeppelin"[:5] + letter * 3 for letter in "abcdefghijklmnopqrstuvwxyzäöüéè")
        )
        == []
    )


async def test_a_word_that_only_the_question_itself_has_is_not_known(index: EdgeIndex, memory: IndexedMemory):
    await memory.record([make_episode("What is in the recpie?", 10 + i, turn=2) for i in range(3)])
    assert spellings(index, "What is in the recpie?") == [stem("recipe")]
    await memory.record([make_episode("Recpie is a town in Poland.", 20, turn=3)])
    assert spellings(index, "What is in the recpie?") == []


async def test_a_word_of_a_text_that_was_read_is_not_looked_up(index: EdgeIndex, memory: IndexedMemory):
    assert spellings(index, "the recpie", read=["Recpie, the town"]) == []
    assert spellings(index, "the recpie", read=["Two Recpies."]) == []
    assert spellings(index, "the recpie", read=["the recpie", "my_recpie"]) == [stem("recipe")]


async def test_words_that_the_reader_may_not_see_are_not_guessed(index: EdgeIndex, memory: IndexedMemory):
    await memory.record([make_episode("The zeppelin is on fire.", 10, by="b")])
    assert spellings(index, "the zepelin", agent="a") == []
    assert spellings(index, "the zepelin", agent="b") == [stem("zeppelin")]


async def test_a_question_with_a_typo_is_answered(memory: IndexedMemory):
    result = await memory.recall("What goes into the recpie?", asks(), RecallOptions(1000))
    assert "cardamom" in result.text


def test_a_question_for_several_things_is_split_with_the_words_that_they_share():
    assert split_asks("Confirm to the oven supplier: model, price, date") == [
        "Confirm to the oven supplier: model", "Confirm to the oven supplier: price",
        "Confirm to the oven supplier: date",
    ]  # fmt: skip
    assert split_asks("What are the price, model and date of the oven?")[1] == "What are the model of the oven"
    assert split_asks("When does it open? Who signs?") == ["When does it open?", "Who signs?"]
    assert split_asks("Where do I live, in fact?") == split_asks("") == []
