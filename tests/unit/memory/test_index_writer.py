"""Writing: ids of passages, facts that are stated again, embedders that fail, and writes that were cut off."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.errors import EmbeddingError, MemoryUnavailable
from massmem.core.messages import add_text
from massmem.memory.embedders import Embedder
from massmem.memory.index import Point
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.index_writer import PassageIds, WritePlan, merge_facts
from massmem.memory.indexed import IndexedMemory
from massmem.memory.origins import ToolText, ToolWords
from massmem.memory.persistent import CompletedTurn, Episode, Fact, Memory, RecallOptions, Selection
from massmem.memory.points import MOST_PASSAGES, base_of, passage_payload, session_base
from tests.support.memories import asks, count, fact, letters, make_episode, open_disk_memory

TWO = "The quick brown fox jumps over the lazy dog and the cat as well today. " * 3
"""A message of two passages."""


def write(index: EdgeIndex, plan: WritePlan) -> None:
    index.upsert([
        Point(i, None, {}, passage_payload(p.episode, p.text, 0, p.position, count))
        for i, p in plan.passages.items()
    ])  # fmt: skip


def taken(index: EdgeIndex, session: str, point_id: int) -> None:
    """Another session stands at this place."""
    index.upsert([Point(point_id, None, {}, passage_payload(make_episode("x", session=session), "x", 0, 0, count))])


def test_passages_follow_each_other(index: EdgeIndex):
    here = PassageIds(index)
    plan = here.plan("s", [make_episode(TWO, 0), make_episode("Short one.", 1)])
    base = session_base("s", 0)
    assert [*plan.passages] == [base, base + 1, base + 2]
    assert [p.position for p in plan.passages.values()] == [0, 1, 2]
    write(index, plan)
    here.note("s", plan)
    assert [*here.plan("s", [make_episode("Next.", 2)]).passages] == [base + 3]
    assert [*PassageIds(index).plan("s", [make_episode("Next.", 2)]).passages] == [base + 3], "as the index has it"


def test_more_sessions_than_are_remembered_are_written_at_once(index: EdgeIndex):
    memory = IndexedMemory(index, None, count, "")
    sessions = [f"s{i}" for i in range(150)]
    for _ in range(2):
        asyncio.run(memory.record([make_episode("Kites fly.", session=session) for session in sessions]))
    assert index.count_values("run_id") == dict.fromkeys(sessions, 1)


def test_each_passage_of_a_file_names_it(index: EdgeIndex):
    plan = PassageIds(index).plan("s", [make_episode(add_text("What is this?", "notes.txt", TWO), 0)])
    question, *passages = [passage.text for passage in plan.passages.values()]
    assert question == "What is this?"
    assert len(passages) == 2
    assert all(passage.startswith("[notes.txt] The quick") for passage in passages)


async def test_id_that_was_named_to_be_forgotten_is_never_that_of_another_message(tmp_path: Path):
    memory = open_disk_memory(tmp_path)
    await memory.record([make_episode("Kites fly.", 0), make_episode("Gulls swim.", 1)])
    (forgotten,) = [m.id for m in await memory.list(Selection(), 9) if m.text == "Gulls swim."]
    assert await memory.forget(Selection(ids=(forgotten,))) == 1
    await memory.record([make_episode("Owls hoot.", 2)])
    assert await memory.list(Selection(ids=(forgotten,)), 9) == []
    assert await memory.forget(Selection(ids=(forgotten,))) == 0
    assert [m.text for m in await memory.list(Selection(), 9)] == ["Owls hoot.", "Kites fly."]
    await memory.close()


def test_stored_point_is_not_planned_again(index: EdgeIndex):
    here = PassageIds(index)
    plan = here.plan("s", [make_episode(TWO, 0), make_episode(TWO, 0)])
    assert len(plan.passages) == 2
    write(index, plan)
    assert here.plan("s", [make_episode(TWO, 0)]).passages == {}, "even when it was not said that it is there"
    assert PassageIds(index).plan("s", [make_episode(TWO, 0)]).passages == {}


def test_a_message_of_which_a_part_is_there_is_written_anew(index: EdgeIndex):
    plan = PassageIds(index).plan("s", [make_episode(TWO, 0), make_episode("Another one.", 1)])
    write(index, plan)
    index.delete(Selection(ids=(str(min(plan.passages)),)))
    again = PassageIds(index).plan("s", [make_episode(TWO, 0), make_episode("Another one.", 1)])
    assert [*again.passages] == [max(plan.passages) + 1, max(plan.passages) + 2]
    assert again.outdated == [min(plan.passages) + 1]


def test_a_gap_is_not_filled_over_what_follows(index: EdgeIndex):
    write(index, PassageIds(index).plan("s", [make_episode(f"Message {i}.", i) for i in range(5)]))
    index.delete(Selection(ids=tuple(str(session_base("s", 0) + i) for i in (1, 2))))
    assert min(PassageIds(index).plan("s", [make_episode("New.", 9)]).passages) == session_base("s", 0) + 5


def test_another_session_in_the_same_place_is_left_alone(index: EdgeIndex):
    taken(index, "other", session_base("s", 0))
    here = PassageIds(index)
    plan = here.plan("s", [make_episode("Mine.", 0)])
    assert [*plan.passages] == [session_base("s", 1)]
    write(index, plan)
    here.note("s", plan)
    for known in (here, PassageIds(index)):
        assert [*known.plan("s", [make_episode("More.", 1)]).passages] == [session_base("s", 1) + 1]


def test_points_that_another_process_writes_are_seen(index: EdgeIndex):
    here, there = PassageIds(index), PassageIds(index)
    first = here.plan("s", [make_episode("One.", 0)])
    write(index, first)
    here.note("s", first)
    second = there.plan("s", [make_episode("Two.", 1)])
    write(index, second)
    plan = here.plan("s", [make_episode("Three.", 2)])
    assert [*plan.passages] == [session_base("s", 0) + 2]


def test_a_session_that_is_full_goes_on_elsewhere(index: EdgeIndex):
    last = session_base("s", 0) + MOST_PASSAGES - 1
    write(
        index, WritePlan({last: next(iter(PassageIds(index).plan("s", [make_episode("Last.", 0)]).passages.values()))})
    )
    plan = PassageIds(index).plan("s", [make_episode("One more.", 1)])
    assert base_of(next(iter(plan.passages))) == session_base("s", 1)


def test_a_session_without_room_anywhere_says_so(index: EdgeIndex):
    for attempt in range(16):
        taken(index, "other", session_base("s", attempt))
    with pytest.raises(MemoryUnavailable, match="no room"):
        PassageIds(index).plan("s", [make_episode("Mine.", 0)])


def make_fact(turn: int, *, won: bool = False, source: str = "") -> Fact:
    return fact("Kites are red.", turn, sources=(source or f"m{turn}",), won=won)


def merge_all(facts: Sequence[Fact]) -> Fact:
    """What stands in the index after all of these."""
    first, *rest = facts
    for other in rest:
        first = merge_facts(first, other) or first
    return first


def test_won_later_it_moves_there_and_keeps_both_origins():
    now = merge_facts(make_fact(1), make_fact(3, won=True))
    assert now is not None
    assert (now.turn, now.won, now.message_ids) == (3, True, ("m1", "m3"))


def test_fact_that_won_keeps_its_first_turn():
    now = merge_facts(make_fact(1, won=True), make_fact(3, won=True))
    assert now is not None
    assert (now.turn, now.message_ids) == (1, ("m1", "m3"))
    lost = merge_facts(make_fact(1, won=True), make_fact(3))
    assert lost is not None
    assert (lost.turn, lost.won) == (1, True)


def test_not_yet_won_it_waits_in_the_last_turn():
    now = merge_facts(make_fact(1), make_fact(2))
    assert now is not None
    assert (now.turn, now.won) == (2, False)


def test_the_same_again_changes_nothing():
    for each in (make_fact(1), make_fact(2, won=True)):
        assert merge_facts(each, each) is None
    both = merge_all([make_fact(1), make_fact(3, won=True)])
    assert merge_facts(both, make_fact(1)) is None
    assert merge_facts(both, make_fact(3, won=True)) is None


@given(won=st.lists(st.booleans(), min_size=1, max_size=4))
def test_the_order_of_recording_makes_no_difference(won: list[bool]):
    facts = [make_fact(turn, won=is_won) for turn, is_won in enumerate(won, 1)]
    results = {merge_all(order) for order in permutations(facts)}
    (one,) = results
    turns = [each.turn for each in facts if each.won]
    assert (one.won, one.turn) == (bool(turns), min(turns) if turns else len(facts))
    assert set(one.message_ids) == {f"m{turn}" for turn in range(1, len(won) + 1)}


def memory_with(folder: Path, encode: Callable[[Sequence[str]], Sequence[Any]]) -> IndexedMemory:
    return IndexedMemory(EdgeIndex(folder, 2), Embedder("two", 2, encode), count, str(folder))


def odd_about_kites(vector: Any) -> Callable[[Sequence[str]], Sequence[Any]]:
    return lambda texts: [vector if "kite" in text else [1.0, 0.5] for text in texts]


@pytest.mark.parametrize("vector", [None, [float("nan"), 1.0], [1.0], [0.0, 0.0], "x"], ids=str)
async def test_a_text_that_cannot_be_embedded_is_still_found_by_its_words(tmp_path: Path, vector: Any):
    memory = memory_with(tmp_path / "index", odd_about_kites(vector))
    await memory.record([make_episode("Red kites nest.", 0), make_episode("Oaks are old.", 1)])
    assert await memory.add_facts([fact("Kites are birds.", by="user")]) == 1
    result = await memory.recall("kites", asks(), RecallOptions(1000))
    assert {m.text for m in result.memories} >= {"Red kites nest.", "Kites are birds."}
    assert result.lexical_only
    assert not (await memory.recall("oaks", asks(), RecallOptions(1000))).lexical_only
    await memory.close()


async def test_an_embedder_that_is_away_stores_nothing(tmp_path: Path):
    """It is tried again later: without the vector the memory would be found by words alone for ever."""

    def away(texts: Sequence[str]) -> Sequence[Any]:
        raise EmbeddingError("the embedder is away")

    memory = memory_with(tmp_path / "index", away)
    with pytest.raises(EmbeddingError):
        await memory.record([make_episode("Red kites nest.")])
    with pytest.raises(EmbeddingError):
        await memory.add_facts([fact("Kites are birds.")])
    assert await memory.list(Selection()) == []
    await memory.close()


async def test_a_write_that_was_cut_off_is_made_whole(tmp_path: Path):
    long = "The quick brown fox jumps over the lazy dog and the cat as well today. " * 40
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode(long, 0), make_episode("After it.", 1)])
    whole = [m.text for m in await memory.list(Selection())]
    await memory.close()
    index = EdgeIndex(tmp_path / "index", 0)
    index.delete(Selection(ids=tuple(str(session_base("s", 0) + i) for i in range(5, 9))), erase=False)
    index.close()
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode(long, 0), make_episode("After it.", 1)])
    assert sorted(m.text for m in await memory.list(Selection())) == sorted(whole)
    await memory.close()


async def test_a_fact_that_is_found_again_is_seen_from_the_turn_that_was_won(tmp_path: Path):
    """Turn by turn as a session goes: lost, interrupted and then won, lost again."""
    memory = open_disk_memory(tmp_path / "index")

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


async def test_sessions_in_one_batch_keep_apart(tmp_path: Path):
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode(f"Kites {i}.", i // 2, session="st"[i % 2]) for i in range(10)])
    for session in "st":
        ids = sorted(int(m.id) for m in await memory.list(Selection(session)))
        assert ids == [session_base(session, 0) + i for i in range(5)]
    await memory.close()


async def test_a_session_whose_place_is_taken_goes_elsewhere_and_overwrites_nothing(tmp_path: Path):
    index = EdgeIndex(tmp_path / "index", 0)
    plan = PassageIds(index).plan("other", [make_episode("Theirs.", session="other")])
    assert plan.passages
    memory = IndexedMemory(index, None, count, "")
    await memory.record([make_episode("Theirs.", session="other")])
    stored = index.read_payloads(plan.passages)
    index.upsert([Point(session_base("s", 0), None, {}, next(iter(stored.values())))])
    await memory.record([make_episode("Mine.")])
    assert index.read_payloads([session_base("s", 0)])[session_base("s", 0)]["data"] == "Theirs."
    assert [m.text for m in await memory.list(Selection("s"))] == ["Mine."]
    await memory.close()


class Counting(EdgeIndex):
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
    await memory.record([make_episode(f"Kites number {i} are red.", i) for i in range(there)])
    before = dict(point for part in index.read_pages() for point in part)
    embedded.clear()
    index.written = 0
    await memory.record([make_episode("Kites are red and oaks are old.", there)])
    after = dict(point for part in index.read_pages() for point in part)
    assert embedded == ["user: Kites are red and oaks are old."]
    assert index.written == len(after) - len(before) == 1
    assert {key: after[key] for key in before} == before
    await memory.close()


PAGE = ToolWords([ToolText("fetch", "The vault of the Lisbon branch opens with REED-4410.")])
SECRET = "The Lisbon vault opens with REED-4410."


async def list_origins(folder: Path, *batches: list[Any]) -> dict[str, str]:
    """Record the batches; return by text the tool that it rests on, else who said it."""
    memory = open_disk_memory(folder)
    try:
        for batch in batches:
            if hasattr(batch[0], "message_id"):
                await memory.record(batch)
            else:
                await memory.add_facts(batch)
        return {m.text: m.rests_on or m.origin for m in await memory.list(Selection())}
    finally:
        await memory.close()


async def test_each_memory_knows_where_it_is_from(tmp_path: Path):
    batch = [
        make_episode("Where is the key?", 0),
        make_episode(SECRET, 1, by="a", tool_words=PAGE),
        make_episode("I would ask the janitor.", 2, by="a", tool_words=PAGE),
        make_episode("Raw text of a page", 3, by="a", origin="tool:fetch"),
        make_episode("Once upon a time", 4, origin="import"),
    ]
    assert [*(await list_origins(tmp_path, batch)).values()][::-1] == [
        "user",
        "tool:fetch",
        "agent",
        "tool:fetch",
        "import",
    ]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("session", ["s", "another"])
async def test_words_that_an_agent_repeats_later_keep_the_origin(tmp_path: Path, together: bool, session: str):
    first = [make_episode(SECRET, 1, by="a", tool_words=PAGE)]
    later = [make_episode("As I know, REED-4410 opens the vault.", 9, turn=2, by="a", session=session)]
    batches = [[*first, *later]] if together else [first, later]
    assert (await list_origins(tmp_path, *batches))[later[0].text] == "tool:fetch"


async def test_look_alikes_are_recognised_among_many_memories_from_tools(tmp_path: Path):
    pages = [
        make_episode(f"The vault {n} opens with REED-{n}.", n, by="a", origin="tool:fetch") for n in range(100, 160)
    ]
    again = [make_episode("Ιt іs RЕЕD-131, I thіnk: the vаult opens.", 200, turn=2, by="a")]
    assert (await list_origins(tmp_path, pages, again))[again[0].text] == "tool:fetch"


async def test_memories_that_others_may_not_see_do_not_mark_their_words(tmp_path: Path):
    first = [make_episode(SECRET, 1, by="a", tool_words=PAGE, group="0" * 24 + ":")]
    later = [make_episode("REED-4410 opens my own vault.", 9, turn=2, by="b", session="t", group="1" * 24 + ":")]
    assert (await list_origins(tmp_path, first, later))[later[0].text] == "agent"


async def test_facts_have_the_origin_of_their_words(tmp_path: Path):
    words = ToolWords(PAGE.results, ["I live in Porto."])
    facts = [
        fact("The user lives in Porto.", origin="user", tool_words=words),
        fact("Vault: REED-4410.", origin="user", tool_words=words),
        fact("The vault of Lisbon opens with REED-4410.", tool_words=words),
        fact("Janitors are worth asking.", tool_words=words),
    ]
    origins = await list_origins(tmp_path, facts)
    assert [origins[f.text] for f in facts] == ["user", "tool:fetch", "tool:fetch", "agent"]


async def test_a_fact_that_is_stated_again_keeps_the_tool_unless_the_user_states_it(tmp_path: Path):
    text = "The vault opens with REED-4410."
    again = [fact(text, turn=2, sources=("m2",))]
    assert (await list_origins(tmp_path / "a", [fact(text, tool_words=PAGE)], again))[text] == "tool:fetch"
    users = [fact(text, turn=2, sources=("u",), origin="user", tool_words=ToolWords([], [text]))]
    assert (await list_origins(tmp_path / "b", [fact(text, tool_words=PAGE)], users))[text] == "user"


async def test_a_recall_names_the_tool_and_a_filter_asks_for_it(tmp_path: Path):
    memory = open_disk_memory(tmp_path)
    try:
        padding = "It took me a while, and I had to look twice before I could believe what stood there in plain sight."
        own = "I would ask the janitor first, who is on duty until six, then whoever else has had breakfast in Lisbon."
        batch = [
            make_episode("Is there a vault?", 0),
            make_episode(f"{SECRET} {padding} {own}", 1, by="a", tool_words=PAGE),
        ]
        await memory.record(batch)
        options = RecallOptions(1_000)
        recalled = await memory.recall("Lisbon vault", asks("a"), options)
        assert f"You (quoting fetch): {SECRET} {padding}" in recalled.text
        assert " You: I would ask the janitor" in recalled.text
        for origin, texts in {
            "tool": [f"{SECRET} {padding}"],
            "tool:fetch": [f"{SECRET} {padding}"],
            "tool:x": [],
            "user": ["Is there a vault?"],
        }.items():
            hits = await memory.recall("Lisbon vault", asks("a", origin=origin), options)
            assert [m.text for m in hits.memories] == texts, origin
            assert [m.text for m in await memory.list(Selection(origin=origin))] == texts
    finally:
        await memory.close()


RESULT = "The adapter opens the vault with REED-4410."
CALL = "read_file src/app.py"


def read(number: int, by: str = "a", turn: int = 1, call: str = CALL, **more: object) -> Episode:
    return make_episode(RESULT, number, turn, by, origin="tool:read_file", call=call, **more)


async def list_results(memory: IndexedMemory) -> list[Memory]:
    return [m for m in await memory.list(Selection()) if m.call]


async def recall(memory: IndexedMemory, agent: str, turn: int = 9, query: str = "src/app.py") -> str:
    text = (await memory.recall(query, asks(agent, turn), RecallOptions(400))).text
    return "\n".join(line.split(" ", 1)[1] for line in text.splitlines() if CALL in line)


@pytest.mark.parametrize("together", [True, False])
async def test_all_who_got_a_result_in_a_turn_share_it_until_one_wins(tmp_path: Path, together: bool):
    reads = [read(0), read(1, "b"), read(2), read(3, call="read_file src/b.py")]
    memory = open_disk_memory(tmp_path)
    try:
        for batch in [reads] if together else [[one] for one in reads]:
            await memory.record(batch)
            await memory.record(batch)
        first = next(m for m in await list_results(memory) if m.call == CALL)
        assert len(await list_results(memory)) == 2, "one for each call"
        assert (first.agent_id, first.callers, first.message_ids) == ("a", ("b",), ("s-0", "s-1", "s-2"))
        assert await recall(memory, "a", 1) == await recall(memory, "b") == f"You (tool {CALL}): {RESULT}"
        assert await recall(memory, "c") == "", "nobody has won"
        await memory.complete_turns([CompletedTurn("s", 1, "b")])
        assert await recall(memory, "c") == f"[From b Turn 1, tool {CALL}] {RESULT}"
        assert await recall(memory, "a") == f"You (tool {CALL}): {RESULT}"
        await memory.record([read(7, "c", turn=2)])
        assert len(await list_results(memory)) == 2, "everybody may see what the winner got"
        assert await memory.forget(Selection(message_ids=("s-7",))) == 1
    finally:
        await memory.close()


async def test_a_result_of_a_loser_is_stored_again_when_a_later_turn_may_show_it(tmp_path: Path):
    memory = open_disk_memory(tmp_path)
    try:
        await memory.record([read(0), read(1, turn=2), read(2, "b", turn=2, won=True)])
        assert [(m.agent_id, m.turn, m.callers) for m in await list_results(memory)] == [("b", 2, ("a",)), ("a", 1, ())]
        assert await recall(memory, "a") == f"You (tool {CALL}): {RESULT}", "shown once"
        assert await recall(memory, "c") == f"[From b Turn 2, tool {CALL}] {RESULT}"
    finally:
        await memory.close()
