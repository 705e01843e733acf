"""Words of a question that nobody has said, in the spelling in which somebody has."""

from collections.abc import Sequence

import pytest

from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import RecallOptions
from massmem.memory.retrieval.query import analyse
from massmem.memory.retrieval.spelling import find_spellings
from massmem.memory.words import stem
from tests.support.memories import asks, count, make_episode


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
