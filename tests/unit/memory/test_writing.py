"""Writing: embedders that fail, and writes that were cut off."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import EmbeddingError
from massmem.memory.embedders.embedder import Embedder
from massmem.memory.index.embedded import EmbeddedIndex
from massmem.memory.index.point_ids import session_base
from massmem.memory.index.visible import Point
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import RecallOptions, Selection
from massmem.memory.places import Places
from tests.support.memories import asks, count, fact, indexed, letters, said


def memory_with(folder: Path, encode: Callable[[Sequence[str]], Sequence[Any]]) -> IndexedMemory:
    return IndexedMemory(EmbeddedIndex(folder, 2), Embedder("two", 2, encode), count, str(folder))


def odd_about_kites(vector: Any) -> Callable[[Sequence[str]], Sequence[Any]]:
    return lambda texts: [vector if "kite" in text else [1.0, 0.5] for text in texts]


@pytest.mark.parametrize("vector", [None, [float("nan"), 1.0], [1.0], [0.0, 0.0], "x"], ids=str)
async def test_a_text_that_cannot_be_embedded_is_still_found_by_its_words(tmp_path: Path, vector: Any):
    memory = memory_with(tmp_path / "index", odd_about_kites(vector))
    await memory.record([said("Red kites nest.", 0), said("Oaks are old.", 1)])
    assert await memory.add_facts([fact("Kites are birds.", by="user")]) == 1
    found = await memory.recall("kites", asks(), RecallOptions(1000))
    assert {m.text for m in found.memories} >= {"Red kites nest.", "Kites are birds."}
    assert found.lexical_only
    assert not (await memory.recall("oaks", asks(), RecallOptions(1000))).lexical_only
    await memory.close()


async def test_an_embedder_that_is_away_stores_nothing(tmp_path: Path):
    """It is tried again later: without the vector the memory would be found by words alone for ever."""

    def away(texts: Sequence[str]) -> Sequence[Any]:
        raise EmbeddingError("the embedder is away")

    memory = memory_with(tmp_path / "index", away)
    with pytest.raises(EmbeddingError):
        await memory.record([said("Red kites nest.")])
    with pytest.raises(EmbeddingError):
        await memory.add_facts([fact("Kites are birds.")])
    assert await memory.list(Selection()) == []
    await memory.close()


async def test_a_write_that_was_cut_off_is_made_whole(tmp_path: Path):
    long = "The quick brown fox jumps over the lazy dog and the cat as well today. " * 40
    memory = indexed(tmp_path / "index")
    await memory.record([said(long, 0), said("After it.", 1)])
    whole = [m.text for m in await memory.list(Selection())]
    await memory.close()
    index = EmbeddedIndex(tmp_path / "index", 0)
    index.delete(Selection(ids=tuple(str(session_base("s", 0) + i) for i in range(5, 9))), erase=False)
    index.close()
    memory = indexed(tmp_path / "index")
    await memory.record([said(long, 0), said("After it.", 1)])
    assert sorted(m.text for m in await memory.list(Selection())) == sorted(whole)
    await memory.close()


async def test_a_fact_that_is_found_again_is_seen_from_the_turn_that_was_won(tmp_path: Path):
    """Turn by turn as a session goes: lost, interrupted and then won, lost again."""
    memory = indexed(tmp_path / "index")

    async def seen(turn: int) -> bool:
        return "red" in (await memory.recall("kites", asks("b", turn), RecallOptions(1000))).text

    async def found_in(turn: int, *, won: bool = False) -> int:
        return await memory.add_facts([fact("Kites are red.", turn, sources=(f"m{turn}",), won=won)])

    assert await found_in(1) == 1
    assert not await seen(2)
    assert await found_in(2) == 0  # the turn is interrupted, nobody has won it
    assert [await seen(turn) for turn in (2, 3)] == [False, False]
    await memory.complete_turns([("s", 2, "a")])
    assert [await seen(turn) for turn in (1, 2, 3, 4)] == [False, False, True, True]
    assert await found_in(3) == await found_in(4, won=True) == 0
    assert [await seen(turn) for turn in (1, 2, 3, 4)] == [False, False, True, True]
    (only,) = await memory.list(Selection())
    assert (only.turn, only.message_ids) == (2, ("m1", "m2", "m3", "m4"))
    assert "red" in (await memory.recall("kites", asks("a", 2), RecallOptions(1000))).text
    await memory.close()


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_private_memory_is_never_shared(tmp_path: Path, reopened: bool):
    memory = indexed(tmp_path / "index")
    await memory.record([said("Kites: ballot.", 0, by="a", private=True), said("Kites: answer.", 1, by="a")])
    await memory.complete_turns([("s", 1, "a")])
    await memory.record([said("Kites: answer.", 1, by="a", won=True)])
    if reopened:
        await memory.close()
        memory = indexed(tmp_path / "index")
    for everywhere in (False, True):
        scope = asks("b", 2, all_sessions=everywhere)
        assert [m.text for m in (await memory.recall("kites", scope, RecallOptions(1000))).memories] == [
            "Kites: answer."
        ]
        own = await memory.recall("kites", asks("a", 2, all_sessions=everywhere), RecallOptions(1000))
        assert {m.text for m in own.memories} == {"Kites: ballot.", "Kites: answer."}
    await memory.close()


async def test_sessions_in_one_batch_keep_apart(tmp_path: Path):
    memory = indexed(tmp_path / "index")
    await memory.record([said(f"Kites {i}.", i // 2, session="st"[i % 2]) for i in range(10)])
    for session in "st":
        ids = sorted(int(m.id) for m in await memory.list(Selection(session)))
        assert ids == [session_base(session, 0) + i for i in range(5)]
    await memory.close()


async def test_a_session_whose_place_is_taken_goes_elsewhere_and_overwrites_nothing(tmp_path: Path):
    index = EmbeddedIndex(tmp_path / "index", 0)
    plan = Places(index, lambda _: None).plan("other", [said("Theirs.", session="other")])
    assert plan.passages
    memory = IndexedMemory(index, None, count, "")
    await memory.record([said("Theirs.", session="other")])
    stored = index.payloads(plan.passages)
    index.upsert([Point(session_base("s", 0), None, {}, next(iter(stored.values())))])
    await memory.record([said("Mine.")])
    assert index.payloads([session_base("s", 0)])[session_base("s", 0)]["data"] == "Theirs."
    assert [m.text for m in await memory.list(Selection("s"))] == ["Mine."]
    await memory.close()


class Counting(EmbeddedIndex):
    """Counts the points that are written."""

    written = 0

    def upsert(self, points: Sequence[Point]) -> None:
        self.written += len(points)
        super().upsert(points)


@pytest.mark.parametrize("there", [10, 300])
async def test_adding_one_memory_touches_no_other(tmp_path: Path, there: int):
    """However many there are: one text is embedded, one point is written, and all others stay what they are."""
    embedded: list[str] = []
    by_letters = letters()

    def encode(texts: Sequence[str]) -> Sequence[Any]:
        embedded.extend(texts)
        return by_letters.embed(texts)

    index = Counting(tmp_path / "index", by_letters.dims)
    memory = IndexedMemory(index, Embedder("letters", by_letters.dims, encode), count, "")
    await memory.record([said(f"Kites number {i} are red.", i) for i in range(there)])
    before = dict(point for part in index.everything() for point in part)
    embedded.clear()
    index.written = 0
    await memory.record([said("Kites are red and oaks are old.", there)])
    after = dict(point for part in index.everything() for point in part)
    assert embedded == ["user: Kites are red and oaks are old."]
    assert index.written == len(after) - len(before) == 1
    assert {key: after[key] for key in before} == before
    await memory.close()
