"""Recall from an index that other processes write to, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import CompletedTurn, RecallOptions, Selection
from tests.support.memories import asks, count, fact, said

ROOM = RecallOptions(1000)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EdgeIndex]:
    index = EdgeIndex(tmp_path / "index", 0)
    yield index
    index.close()


@pytest.fixture
def memory(index: EdgeIndex) -> IndexedMemory:
    return IndexedMemory(index, None, count, "")


async def test_a_turn_that_another_process_completes_is_seen(index: EdgeIndex, memory: IndexedMemory):
    await memory.record([said("Red kites nest.", 0, by="b")])
    assert (await memory.recall("kites", asks(), ROOM)).memories == ()
    await IndexedMemory(index, None, count, "").complete_turns([CompletedTurn("s", 1, "b")])
    assert len((await memory.recall("kites", asks(), ROOM)).memories) == 1


async def test_what_another_process_deletes_is_not_shown(index: EdgeIndex, memory: IndexedMemory):
    await memory.record([said("Red kites nest.", 0), said("They are red.", 1)])
    assert "They" in (await memory.recall("kites", asks(), ROOM)).text
    index.delete(Selection(turn=1))
    assert (await memory.recall("kites", asks(), ROOM)).text == ""
    await memory.record([said("Kites fly.", 2, turn=2)])
    assert (await memory.recall("kites", asks(), ROOM)).text.splitlines()[1:] == ["User: Kites fly."]


async def test_what_another_process_writes_is_found(index: EdgeIndex, memory: IndexedMemory):
    await memory.record([said("Red kites nest.", 0)])
    await memory.recall("kites", asks(), ROOM)
    await IndexedMemory(index, None, count, "").record([said("Blue kites fly.", 1)])
    assert "Blue" in (await memory.recall("kites", asks(), ROOM)).text
    await memory.record([said("Green kites fly.", 2)])
    assert len(await memory.list(Selection())) == 3


async def test_the_best_come_first(memory: IndexedMemory):
    await memory.record(
        [said("Some kites.", 0), said("Red kites nest in Cobham.", 1, turn=2), said("Oaks.", 9, turn=3)]
    )
    await memory.add_facts([fact("Kites eat voles in winter and worms in spring.", by="user")])
    found = await memory.recall("Where do red kites nest in Cobham?", asks(), ROOM)
    assert found.memories[0].text == "Red kites nest in Cobham."
    assert [m.score for m in found.memories] == sorted((m.score for m in found.memories), reverse=True)


async def test_a_repeated_question_is_answered_alike(memory: IndexedMemory):
    await memory.record([said(f"Kites {i} fly over hill {i}.", i) for i in range(300)])
    first = await memory.recall("Which kites fly over hill 17?", asks(), ROOM)
    assert first == await memory.recall("Which kites fly over hill 17?", asks(), ROOM)
    assert "hill 17." in first.text
