"""What agents are shown stands in blocks: wishes for every answer, what changed, and what was said."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Episode, MemoryChange, RecallOptions, Selection
from massmem.memory.quoting import HOLDS, PASSAGES, WISHES
from tests.support.memories import START, asks, letters, make_episode, open_disk_memory

ROOM = RecallOptions(1000)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    memory = open_disk_memory(tmp_path / "index", letters())
    yield memory
    await memory.close()


def say(text: str, day: int = 0, by: str = "user", origin: str = "") -> Episode:
    episode = make_episode(text, 0, by=by, session=f"day {day} {by}", won=True, origin=origin)
    return replace(episode, created_at=START + timedelta(days=day))


async def recall(memory: IndexedMemory, question: str) -> str:
    return (await memory.recall(question, asks("a", session="now", all_sessions=True), ROOM)).text


async def test_a_wish_is_shown_with_every_question_and_alone(memory: IndexedMemory):
    await memory.record([say("We run a bakery in Leeds. Two sentences at most, always.")])
    wish = f"{WISHES}\n[8 May 2026]\nUser (standing wish): Two sentences at most, always."
    assert (await recall(memory, "Why is the sky blue?")).partition(f"\n{PASSAGES}")[0] == wish


async def test_a_wish_ends_when_it_is_unpinned_or_forgotten(memory: IndexedMemory):
    await memory.record([say("Two sentences at most, always."), say("Never use emojis in your answers.", 1)])
    emojis, sentences = await memory.list(Selection(is_pinned=True))
    assert emojis.note == "standing wish"
    place = (emojis.session_id, "episode", "user", 1, emojis.message_ids)
    await memory.change(emojis.id, MemoryChange("c1", "unpin", *place, emojis.text, "", "user", START))
    await memory.forget(Selection(ids=(sentences.id,)))
    text = await recall(memory, "Why is the sky blue?")
    assert WISHES not in text
    assert "standing wish" not in text


@pytest.mark.parametrize("origin", ["import", "agent"])
async def test_only_the_users_own_words_are_a_wish(memory: IndexedMemory, origin: str):
    await memory.record([say("Two sentences at most, always.", origin=origin)])
    assert not await memory.list(Selection(is_pinned=True))


async def test_changes_stand_before_what_was_said(memory: IndexedMemory):
    await memory.record([
        say("Karin loves the oven of the bakery.", 0, "a"), say("Delivery of the oven is on 12 March.", 1),
        say("Brandt called: the oven comes on 19 March instead of 12 March.", 2),
    ])  # fmt: skip
    lines = (await recall(memory, "When is the delivery of the oven?")).splitlines()
    assert lines[0] == HOLDS
    assert lines[2] == "09:00 User (held until 10 May 2026): Delivery of the oven is on 12 March."
    assert lines[4].startswith("09:00 User (holds since 10 May 2026): Brandt called")
    assert lines[5:6] in ([], [PASSAGES])


async def test_questions_copies_and_ignorance_are_not_shown(memory: IndexedMemory):
    await memory.record([
        say("Please draft a letter on the delivery of the oven."), say("When does the oven come?", 1),
        say("I do not know when the oven comes.", 2, "a"), say("The oven comes from Brandt.", 3),
    ])  # fmt: skip
    text = await recall(memory, "Please draft a letter on the oven's delivery")
    assert "comes from Brandt" in text
    assert not any(other in text for other in ("draft", "When does", "do not know"))
