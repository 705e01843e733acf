"""IndexedMemory at work: what is specific to it beyond the contract of PersistentMemory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Claim, CompletedTurn, RecallOptions, Selection
from tests.support.memories import asks, count, fact, letters, make_episode, open_disk_memory

ROOM = RecallOptions(1000, abstain=False)
EVERYTHING = Selection(session_id="s")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    memory = open_disk_memory(tmp_path / "index", letters())
    yield memory
    await memory.close()


@pytest.fixture
async def by_words(tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    memory = open_disk_memory(tmp_path / "words")
    yield memory
    await memory.close()


async def test_the_shown_text_is_dated_labelled_and_in_time_order(memory: IndexedMemory):
    await memory.record([
        make_episode("Where do the kites fly?", 0),
        make_episode("The kites fly over Cobham.", 1, by="b", won=True),
        make_episode("I noted that kites fly north.", 2, by="a"),
    ])  # fmt: skip
    result = await memory.recall("kites", asks("a", 2), ROOM)
    assert result.text.splitlines() == [
        "[8 May 2026, this conversation]",
        "09:00 User: Where do the kites fly?",
        "09:01 [From b Turn 1] The kites fly over Cobham.",
        "09:02 You: I noted that kites fly north.",
    ]
    assert count(result.text) <= result.tokens + 2
    assert {m.agent_id for m in result.memories} == {"user", "a", "b"}
    assert not result.lexical_only


async def test_labels_have_display_names_and_say_which_answer_was_not_chosen(memory: IndexedMemory):
    await memory.record([
        make_episode("The kites fly over Cobham.", 1, by="b"),
        make_episode("Kites fly over Marlow, I would say.", 2, by="a"),
        make_episode("Kites are birds of the city.", 9, turn=2, by="a", lost=True),
    ])  # fmt: skip
    before = await memory.recall("kites", asks("a", 2), ROOM)
    assert "You: Kites fly over Marlow" in before.text, "nobody has won yet"
    await memory.complete_turns([CompletedTurn("s", 1, "b")])
    result = await memory.recall("kites", asks("a", names={"b": "Dr. [Bob]", "a": "Ann"}), ROOM)
    assert result.text.splitlines()[1:] == [
        "09:01 [From Dr. (Bob) Turn 1] The kites fly over Cobham.",
        "09:02 You (not chosen): Kites fly over Marlow, I would say.",
        "09:09 You (not chosen): Kites are birds of the city.",
    ]
    assert count(result.text) <= result.tokens + 2


async def test_stats_say_which_facts_were_used_and_which_no_longer_hold(memory: IndexedMemory):
    towns = [fact(f"The user lives in {town}.", turn, sources=(town,), claim=Claim("user", "home", town, "user"))
             for turn, town in enumerate(("Porto", "Ghent"), 1)]  # fmt: skip
    later = replace(towns[1], created_at=towns[1].created_at + timedelta(days=1))
    await memory.add_facts([towns[0], later, fact("Kites fly over Cobham.")])
    result = await memory.recall("Where does the user live?", asks("a"), ROOM)
    await memory.note_use(result.memories)
    await memory.add_facts([later])
    stats = await memory.stats()
    assert (stats.facts, stats.facts_contradicted) == (3, 1)
    assert stats.facts_used == sum(m.kind == "fact" for m in result.memories) > 0


async def test_words_alone_find_too_and_say_so(by_words: IndexedMemory):
    await by_words.record([make_episode("The kites fly over Cobham.")])
    found = await by_words.recall("Where are the kites?", asks(), ROOM)
    assert "Cobham" in found.text
    assert found.lexical_only


async def test_meaning_finds_what_shares_no_word(memory: IndexedMemory):
    await memory.record([make_episode("aaa aaaaa"), make_episode("zzz zzzz", 1)])
    assert "aaa" in (await memory.recall("aaaa", asks(), RecallOptions(20, 1))).text


async def test_neighbours_of_a_match_are_found(by_words: IndexedMemory):
    await by_words.record(
        [make_episode("Which kites do you like?", 0), make_episode("The red ones.", 1, by="b", won=True)]
    )
    assert "The red ones." in (await by_words.recall("kites", asks(turn=2), ROOM)).text


async def test_neighbours_that_must_not_be_seen_are_not_found(by_words: IndexedMemory):
    await by_words.record([make_episode("Which kites do you like?", 0), make_episode("The red ones.", 1, by="b")])
    assert "red" not in (await by_words.recall("kites", asks(turn=2), ROOM)).text


async def test_names_of_those_who_spoke_lead_to_what_they_said(by_words: IndexedMemory):
    await by_words.record([
        make_episode("I like the red kites.", 0, by="maria", won=True),
        make_episode("I like the blue kites.", 1, turn=2, by="john", won=True),
    ])  # fmt: skip
    found = await by_words.recall("Which kites does Maria like?", asks(turn=5), RecallOptions(40, 1))
    assert "red" in found.text


async def test_a_date_finds_what_was_told_then_whatever_its_words(by_words: IndexedMemory):
    await by_words.record([make_episode("We planted oaks.", 0)])
    assert "oaks" in (await by_words.recall("What happened on 8 May 2026?", asks(), ROOM)).text


async def test_a_fact_that_repeats_a_passage_makes_room(memory: IndexedMemory):
    await memory.record([make_episode("The kites nest in Cobham.", 0, by="a")])
    await memory.add_facts([
        fact("Kites nest in Cobham", sources=("s-0",)),
        fact("Kites eat voles, mice and worms", sources=("s-0",)),
        fact("Kites eat worms, mice and voles.", by="user"),
    ])  # fmt: skip
    text = (await memory.recall("kites", asks(turn=3), ROOM)).text
    assert text.count("nest") == 1
    assert text.count("voles") == 1


async def test_a_fact_whose_messages_are_all_shown_is_left_out(memory: IndexedMemory):
    await memory.add_facts([fact("Kites eat voles.", sources=("m1", "m2"))])
    assert "voles" in (await memory.recall("kites", asks(), RecallOptions(500, exclude=frozenset({"m1"})))).text
    assert (await memory.recall("kites", asks(), RecallOptions(500, exclude=frozenset({"m1", "m2"})))).text == ""


async def test_facts_are_the_same_in_other_case_and_spacing(memory: IndexedMemory):
    assert await memory.add_facts([fact("Kites eat voles."), fact("kites  eat voles")]) == 1
    assert await memory.add_facts([fact("KITES EAT VOLES")]) == 0
    assert await memory.add_facts([fact("Kites eat voles.", by="b"), fact("Kites eat voles.", session="t")]) == 2


async def test_a_replay_that_knows_of_the_winner_tells_the_index(memory: IndexedMemory):
    one, other = make_episode("The kites fly.", 0, by="b"), fact("Kites are birds.", by="b")
    await memory.record([one])
    await memory.add_facts([other])
    assert (await memory.recall("kites", asks(turn=2), ROOM)).text == ""
    await memory.record([make_episode("The kites fly.", 0, by="b", won=True)])
    await memory.add_facts([fact("Kites are birds.", by="b", won=True)])
    assert len((await memory.recall("kites", asks(turn=2), ROOM)).memories) == 2
    assert (await memory.stats()).passages == 1


async def test_long_batches_are_stored_in_parts(memory: IndexedMemory):
    await memory.record([make_episode(f"Message number {i} about kites.", i) for i in range(1200)])
    assert (await memory.stats()).episodes == 1200


async def test_a_new_process_ranks_as_the_one_that_wrote(tmp_path: Path):
    query, folder = "Which kites does Maria like?", tmp_path / "index"
    first = open_disk_memory(folder)
    await first.record([make_episode(f"Kites are {i} and red.", i, by="maria", won=True) for i in range(50)])
    before = await first.recall(query, asks(turn=5), ROOM)
    await first.close()
    second = open_disk_memory(folder)
    assert await second.recall(query, asks(turn=5), ROOM) == before
    await second.close()


async def test_many_tasks_at_once(memory: IndexedMemory):
    """8 writers and as many readers: nothing lost, nothing twice, nothing that must not be seen."""

    async def write(agent: int) -> None:
        for i in range(20):
            await memory.record([make_episode(f"Kites {i} of {agent}.", 20 * agent + i, by=f"a{agent}")])

    async def read(agent: int) -> Sequence[str]:
        return [m.agent_id for _ in range(20) for m in (await memory.recall("kites", asks(f"a{agent}"), ROOM)).memories]

    _, results = await asyncio.gather(
        asyncio.gather(*(write(i) for i in range(8))), asyncio.gather(*(read(i) for i in range(8)))
    )
    assert all(set(result) <= {f"a{agent}"} for agent, result in enumerate(results))
    stats = await memory.stats()
    assert (stats.episodes, stats.passages) == (160, 160)


async def test_after_forgetting_the_next_message_finds_its_place(memory: IndexedMemory):
    await memory.record([make_episode(f"Kites {i}.", i) for i in range(3)])
    await memory.recall("kites", asks(), ROOM)
    assert await memory.forget(EVERYTHING) == 3
    assert (await memory.recall("kites", asks(), ROOM)).memories == ()
    await memory.record([make_episode("Kites again.", 3)])
    assert "again" in (await memory.recall("kites", asks(), ROOM)).text


async def test_forgotten_text_is_in_no_file(tmp_path: Path):
    """Looked for as text and as the words of the index's own files, while it is open and after it was closed."""
    memory = open_disk_memory(tmp_path / "index", letters())
    await memory.record(
        [make_episode("The passphrase is xylophone42.", 0), make_episode("The weather is fine.", 1, turn=2)]
    )
    await memory.add_facts([fact("xylophone42 is the passphrase.")])
    assert _files_with(tmp_path, b"xylophone42")
    assert await memory.forget(Selection("s", turn=1)) == 2
    assert _files_with(tmp_path, b"xylophone42") == []
    await memory.close()
    assert _files_with(tmp_path, b"xylophone42") == []
    memory = open_disk_memory(tmp_path / "index", letters())
    assert "fine" in (await memory.recall("weather", asks(), ROOM)).text
    await memory.close()


def _files_with(folder: Path, secret: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


async def test_same_messages_give_the_same_recall_however_often_they_are_recorded(tmp_path: Path):
    """Equal scores are frequent: the texts differ in a number that the question does not name."""
    texts = [f"Kite {number} flies over the hill near Cobham." for number in (3, 1, 2, 5, 4) for _ in range(8)]
    messages = [make_episode(text, number, turn=1 + number // 4) for number, text in enumerate(texts)]
    recalls: set[tuple[str, tuple[str, ...]]] = set()
    for run, batch in enumerate((1, 3, 7, 40, 40)):
        memory = open_disk_memory(tmp_path / str(run), letters())
        for start in range(0, len(messages), batch):
            await memory.record(messages[start : start + batch])
        result = await memory.recall("Which kite flies near Cobham?", asks(turn=20), RecallOptions(200, 5))
        recalls.add((result.text, tuple(memory.id for memory in result.memories)))
        await memory.close()
    assert len(recalls) == 1
