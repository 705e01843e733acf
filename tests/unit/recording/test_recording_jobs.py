"""How rows of the queue are carried out: large results are summarised, and what the user changes of memories comes
from the log into the index, once, and again after a rebuild."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from massmem.config.models import RecordingConfig
from massmem.core.errors import RateLimited
from massmem.core.events import MemoryAction, MemoryChanged
from massmem.core.ids import read_seq
from massmem.core.records import MessageRecord
from massmem.memory import open_memory
from massmem.memory.extraction.facts import cut_middle
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Episode, Memory, Selection
from massmem.recording.forgetting import forget_memories
from massmem.recording.jobs import LARGE, summarize_results
from massmem.recording.worker import Recorder
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin
from tests.unit.recording.test_forgetting import WORDS, NameFinder
from tests.unit.recording.test_rules import message, row

ON = RecordingConfig(record_all_tool_calls=True, summarize_large_results=True, summary_model="small")
BIG = "begin " + "x" * LARGE + " end"
TURN = [
    message(1, "user", "Why?" + BIG, None),
    message(2, "tool_call", '{"read_file": {"path": "a.py"}}'),
    message(3, "tool_result", BIG),
    message(4, "tool_result", "y" * LARGE),
    message(5, "tool_result", "é" * LARGE),
    message(6, "tool_result", BIG, "bob"),
    message(7, "assistant", BIG),
]


class Model:
    """Answers with a number, or fails from the n-th request on."""

    def __init__(self, fails_from: int = 99) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self._fails_from = fails_from

    async def __call__(self, text: str, model: str | None) -> str:
        self.asked.append((text, model))
        if len(self.asked) >= self._fails_from:
            raise RateLimited("slow down: sk-verysecretkey0123456789abc")
        return f"summary {len(self.asked)}"


def contents(messages: list[MessageRecord]) -> list[str]:
    return [m.content for m in messages]


async def test_large_results_of_the_agent_and_nothing_else_are_summarised() -> None:
    model = Model()
    messages, problem = await summarize_results(TURN, row(9, "extract"), ON, model, {})
    assert model.asked == [(BIG, "small"), ("é" * LARGE, "small")]
    assert [m.id for m in messages] == [m.id for m in TURN]
    assert [a == b for a, b in zip(messages, TURN, strict=True)] == [True, True, False, True, False, True, True]
    assert contents(messages)[2] == f"[Summary of a result of {len(BIG):,} characters]\nsummary 1"
    assert problem == ""


async def test_only_when_it_is_asked_for_and_recorded_at_all() -> None:
    for settings in (RecordingConfig(record_all_tool_calls=True), RecordingConfig(summarize_large_results=True)):
        model = Model()
        assert await summarize_results(TURN, row(9, "extract"), settings, model, {}) == (TURN, "")
        assert model.asked == []


async def test_failed_summary_keeps_the_ends_of_the_text_and_says_why() -> None:
    model = Model(fails_from=1)
    messages, problem = await summarize_results(TURN, row(9, "extract"), ON, model, {})
    assert len(model.asked) == 1, "after one failure nothing more is asked for"
    assert contents(messages)[2] == cut_middle(BIG, 3_000, ", not summarised: slow down: [redacted]")
    assert contents(messages)[2].startswith("begin ")
    assert contents(messages)[2].endswith(" end")
    assert len(contents(messages)[2]) < LARGE
    assert problem == "a tool result was cut and not summarised: slow down: [redacted]"


async def test_a_summary_is_paid_for_once() -> None:
    known: dict[str, str] = {}
    await summarize_results(TURN, row(9, "extract"), ON, Model(fails_from=2), known)
    assert known == {"m3": "summary 1"}
    model = Model()
    messages, problem = await summarize_results(TURN, row(9, "extract"), ON, model, known)
    assert [text for text, _ in model.asked] == ["é" * LARGE]
    assert contents(messages)[2].endswith("\nsummary 1")
    assert problem == ""


# Changes


LONG = " ".join(f"Kite number {n} nests in the old mill near the river." for n in range(60))
QUESTION = "Who is Greta then?"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    await store.create_session(session("a"))
    events = [begin("ann", question=QUESTION), answer(1, "ann", LONG), done(5, "It is Greta, as ever.")]
    await store.append("a", 1, events)
    yield store
    await store.close()


@pytest.fixture
async def memory(store: SessionStore, tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    memory = await open_memory(WORDS, tmp_path, {})
    await record(store, memory)
    yield memory
    await memory.close()


async def record(store: SessionStore, memory: IndexedMemory) -> None:
    counts = await Recorder(store, memory, NameFinder().port).drain()
    assert (counts.failed, counts.problems) == (0, [])


async def rebuild(store: SessionStore, memory: IndexedMemory) -> None:
    await store.requeue_recordings(done=True)
    await memory.forget(Selection("a"))
    await record(store, memory)


async def note(store: SessionStore, memory: Memory, action: MemoryAction, text: str = "") -> None:
    """Note a change in the log, as a process that is killed right afterwards."""
    event = MemoryChanged(
        action=action,
        kind=memory.kind,
        agent_id=memory.agent_id,
        turn=memory.turn,
        sources=tuple(map(read_seq, memory.message_ids)),
        old=memory.text,
        text=text or memory.text,
        by="user",
    )
    await store.append("a", 0, [event])


async def texts(memory: IndexedMemory) -> list[str]:
    return sorted(one.text for one in await memory.list(Selection(), 1000))


async def test_one_passage_of_a_message_is_edited_and_the_others_stay(store: SessionStore, memory: IndexedMemory):
    passages = await memory.list(Selection(kind="episode", agent_id="ann"), 1000)
    second = next(one for one in passages if "Kite number 20 " in one.text)
    before = await texts(memory)
    await note(store, second, "edit", "Kite number 20 has left.")
    assert await texts(memory) == before, "it was noted, and not carried out yet"
    await record(store, memory)
    edited = sorted([*(text for text in before if text != second.text), "Kite number 20 has left."])
    assert await texts(memory) == edited
    await rebuild(store, memory)
    assert await texts(memory) == edited


async def test_edits_and_pins_come_back_in_order_after_a_rebuild(store: SessionStore, memory: IndexedMemory):
    (question,) = await memory.list(Selection(agent_id="user"))
    await note(store, question, "edit", "Who is Hanna then?")
    await record(store, memory)
    (question,) = await memory.list(Selection(agent_id="user"))
    await note(store, question, "pin")
    await note(store, question, "edit", "Who is Ida then?")
    await rebuild(store, memory)
    (question,) = await memory.list(Selection(agent_id="user"))
    assert (question.text, question.is_pinned, len(question.changes)) == ("Who is Ida then?", True, 3)


async def test_fact_keeps_the_users_words_when_a_model_reads_its_messages_again(
    store: SessionStore, memory: IndexedMemory
):
    (fact,) = await memory.list(Selection(kind="fact"))
    await note(store, fact, "edit", "Greta moved to Oslo.")
    await record(store, memory)
    assert [one.text for one in await memory.list(Selection(kind="fact"))] == ["Greta moved to Oslo."]
    await rebuild(store, memory)
    assert [one.text for one in await memory.list(Selection(kind="fact"))] == ["Greta moved to Oslo."]


@pytest.mark.parametrize("kind", ["episode", "fact"])
async def test_forgotten_memory_takes_its_changes_along(
    kind: str, store: SessionStore, memory: IndexedMemory, tmp_path: Path
):
    agent = "user" if kind == "episode" else "ann"
    (one,) = [m for m in await memory.list(Selection(agent_id=agent), 1000) if m.kind == kind]
    await note(store, one, "edit", "Greta moved to Oslo.")
    await record(store, memory)
    await forget_memories(store, memory, Selection(ids=(one.id,)), WORDS, tmp_path)
    await rebuild(store, memory)
    assert not {one.text, "Greta moved to Oslo."} & {*await texts(memory)}


class MemoryOfTwoProcesses:
    """Another process forgets the question while this one records it."""

    def __init__(self, memory: IndexedMemory, store: SessionStore) -> None:
        self._memory, self._store = memory, store

    async def record(self, episodes: Sequence[Episode]) -> None:
        ids = [episode.message_id for episode in episodes if episode.text == QUESTION]
        await self._store.forget_recordings(Selection(), ids)
        await self._memory.forget(Selection(message_ids=tuple(ids)))
        await self._memory.record(episodes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


async def test_message_that_is_forgotten_while_it_is_recorded_is_taken_back(store: SessionStore, tmp_path: Path):
    memory = await open_memory(WORDS, tmp_path, {})
    await Recorder(store, cast("IndexedMemory", MemoryOfTwoProcesses(memory, store))).drain()
    assert QUESTION not in await texts(memory)
    assert any("Greta" in text for text in await texts(memory))
    await memory.close()


async def test_change_waits_for_a_memory_that_is_not_recorded_yet(tmp_path: Path, store: SessionStore):
    memory = await open_memory(WORDS, tmp_path, {})
    messages = await store.read_messages("a")
    one = Memory("0", "episode", "a", 1, "user", "Something else.", (messages[0].id,), messages[0].created_at)
    await note(store, one, "edit", "Who is Hanna then?")
    counts = await Recorder(store, memory).drain()
    assert counts.retried == 1
    assert QUESTION in await texts(memory)
    await memory.close()


class MemoryAsItIsRecorded:
    """Another process lists the memories whenever this one has recorded messages."""

    def __init__(self, memory: IndexedMemory) -> None:
        self._memory = memory
        self.seen: list[str] = []

    async def record(self, episodes: Sequence[Episode]) -> None:
        await self._memory.record(episodes)
        self.seen += await texts(self._memory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


async def test_corrected_memory_that_is_recorded_again_is_never_seen_as_it_was(
    store: SessionStore, memory: IndexedMemory
):
    (question,) = [one for one in await memory.list(Selection(), 1000) if one.text == QUESTION]
    await note(store, question, "edit", "Who is Hilde then?")
    await record(store, memory)
    await store.requeue_recordings(done=True)
    await memory.forget(Selection("a"))
    again = MemoryAsItIsRecorded(memory)
    await Recorder(store, cast("IndexedMemory", again)).drain()
    assert "Who is Hilde then?" in again.seen
    assert QUESTION not in again.seen
    (changed,) = [one for one in await memory.list(Selection(), 1000) if one.text == "Who is Hilde then?"]
    assert (changed.edited_at is not None, len(changed.changes)) == (True, 1)
