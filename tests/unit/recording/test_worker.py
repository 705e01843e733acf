import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from massmem.config.models import RecordingConfig
from massmem.core.errors import EmbeddingError, MalformedResponse, RateLimited
from massmem.core.events import now
from massmem.core.records import RecordingCounts
from massmem.memory.extraction.extractor import Extractor as MemoryExtractor
from massmem.memory.extraction.prompts import Extraction, Origin, RecordedMessage
from massmem.memory.persistent import Fact, Selection
from massmem.recording import jobs
from massmem.recording.forgetting import fingerprint_fact
from massmem.recording.jobs import MAX_ATTEMPTS, DrainCounts, retry_delay
from massmem.recording.rules import is_ballot, write_out
from massmem.recording.worker import Recorder
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import everything, queue, session
from tests.support.plain_memory import PlainMemory
from tests.support.sample_turn import START, answer, begin, event, turn_without_restart


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    await opened.create_session(session().model_copy(update={"memory_group": "project"}))
    yield opened
    await opened.close()


class Extractor:
    """Finds one fact per message, or fails with what `problems` holds next."""

    def __init__(self, *problems: Exception | Extraction, seconds: float = 0) -> None:
        self.problems = list(problems)
        self.seconds = seconds
        self.asked: list[tuple[Origin, list[str]]] = []

    async def extract(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        self.asked.append((origin, [m.message_id for m in messages]))
        await asyncio.sleep(self.seconds)
        match self.problems.pop(0) if self.problems else None:
            case Extraction() as found:
                return found
            case Exception() as e:
                raise e
            case None:
                return Extraction(tuple(fact(origin, m.text, m.message_id) for m in messages))

    @property
    def port(self) -> MemoryExtractor:
        return MemoryExtractor(self.extract, self.summarize)

    async def summarize(self, text: str, model: str | None) -> str:
        raise AssertionError("no summary is asked for")


def fact(origin: Origin, text: str, message_id: str) -> Fact:
    o = origin
    return Fact(o.session_id, o.turn, o.agent_id, f"fact: {text}", (message_id,), START, o.won, o.group)


async def test_everything_that_was_said_becomes_a_memory(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory, extract = PlainMemory(), Extractor()
    counts = await Recorder(store, memory, extract.port).drain()
    assert counts == DrainCounts(
        episodes=5, turns=1, extractions=2, facts=len(await memory.list(Selection(kind="fact")))
    )
    said = {m.id: m for m in await everything(store) if not is_ballot(m)}
    episodes = await memory.list(Selection(kind="episode"))
    assert {m.id for m in episodes} == set(said)
    assert sorted(memory.positions[i] for i in said) == list(range(5))
    assert memory.won == {("session_a", 1, "ann")}
    assert {m.group for m in memory.found.values()} == {"project"}
    assert {(o.agent_id, o.won) for o, _ in extract.asked} == {("ann", True), ("bob", False)}
    assert await store.count_recordings() == RecordingCounts(done=8)
    assert await Recorder(store, memory, extract.port).drain() == DrainCounts()


async def test_recording_again_changes_nothing(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory, extract = PlainMemory(), Extractor()
    await Recorder(store, memory, extract.port).drain()
    before = dict(memory.found), dict(memory.positions)
    await store.requeue_recordings(done=True)
    assert (await Recorder(store, memory, extract.port).drain()).episodes == 5
    assert (memory.found, memory.positions) == before


async def test_without_a_model_there_are_episodes_and_that_is_said(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory()
    counts = await Recorder(store, memory).drain()
    assert (counts.episodes, counts.extractions) == (5, 0)
    assert await queue(store) == []
    assert {m.kind for m in memory.found.values()} == {"episode"}


async def test_an_unavailable_memory_leaves_the_queue_as_it_is(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    before, memory = await queue(store), PlainMemory(away=True)
    counts = await Recorder(store, memory).drain()
    assert counts == DrainCounts(unavailable="the memory is away")
    assert await queue(store) == before
    memory.away = False
    assert (await Recorder(store, memory).drain()).episodes == 5


async def test_one_bad_row_does_not_hold_up_the_others(store: SessionStore, caplog: pytest.LogCaptureFixture) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory(bad=frozenset({"Blue light scatters more."}))
    with caplog.at_level(logging.WARNING):
        counts = await Recorder(store, memory).drain()
    assert (counts.episodes, counts.retried, counts.failed) == (4, 1, 0)
    (line,) = [r.getMessage() for r in caplog.records]
    assert "cannot be embedded" in line
    state = await store.count_recordings()
    assert (state.pending, state.failed) == (1, 0)
    assert state.reason == "ValueError: the text cannot be embedded"
    assert await queue(store) == []  # its time has not come


async def test_a_text_without_a_vector_does_not_hold_up_the_queue(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory(bad=frozenset({"Why is the sky blue?"}), error=EmbeddingError)
    counts = await Recorder(store, memory).drain()
    assert (counts.episodes, counts.turns, counts.retried, counts.unavailable) == (4, 1, 1, "")
    assert (await store.count_recordings()).pending == 1


async def test_an_embedder_that_is_away_fails_no_row_for_good(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    texts = frozenset(write_out(m) for m in await everything(store))
    memory = PlainMemory(bad=texts, error=EmbeddingError)
    for _ in range(MAX_ATTEMPTS + 2):
        await store.append("session_a", 1, [answer(9, "ann", "Rayleigh scattering.")])
        counts = await Recorder(store, memory).drain()
        assert counts.unavailable == "the text cannot be embedded"
        assert memory.batches[-1] == 1
        assert len(memory.batches) <= 4
        memory.batches.clear()
    state = await store.count_recordings()
    assert (state.failed, state.done) == (0, 0)
    memory.bad = frozenset()
    await store.requeue_recordings(done=False)
    assert (await Recorder(store, memory).drain()).episodes == 5 + MAX_ATTEMPTS + 2


async def test_a_model_is_not_paid_twice_when_the_memory_fails(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory, extract = PlainMemory(full=True), Extractor()
    recorder = Recorder(store, memory, extract.port)
    for _ in range(3):
        assert (await recorder.drain()).unavailable == "the disk is full"
    assert len(extract.asked) == 1
    memory.full = False
    assert (await recorder.drain()).extractions == 2
    assert len(extract.asked) == 2
    assert (await store.count_recordings()).pending == 0


async def test_a_row_is_given_up_after_eight_attempts(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    (_, _, bad, *_) = await store.list_due_recordings("episode", 99)
    for _ in range(MAX_ATTEMPTS - 2):
        await store.fail_recording(bad, "as before", START)
    recorder = Recorder(store, PlainMemory(bad=frozenset({"Blue light scatters more."})))
    counts = await recorder.drain()
    assert (counts.retried, counts.failed) == (1, 0)
    await store.fail_recording(bad, "as before", START)
    await store.requeue_recordings(done=False)
    for _ in range(MAX_ATTEMPTS - 1):
        await store.fail_recording(bad, "as before", START)
    counts = await recorder.drain()
    assert (counts.retried, counts.failed) == (0, 1)
    assert (await store.count_recordings()).failed == 1


def test_the_waits_grow_up_to_an_hour() -> None:
    waits = [retry_delay(n) for n in range(1, 12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (timedelta(seconds=30), timedelta(hours=1))


async def test_unread_messages_are_read_the_next_time(store: SessionStore) -> None:
    await store.append("session_a", 1, [begin("ann"), answer(1, "ann", "The first answer.")])
    await store.append(
        "session_a", 1, [answer(2, "ann", "The second answer."), event(3, "turn_interrupted", by="user")]
    )
    ids = [m.id for m in await everything(store)]
    origin = Origin("session_a", "ann", 1)
    cut = Extraction((fact(origin, "known", ids[1]),), problem=MalformedResponse("cut off"), unread=(ids[2],))
    memory, extract = PlainMemory(), Extractor(cut)
    recorder = Recorder(store, memory, extract.port)
    counts = await recorder.drain()
    assert (counts.facts, counts.retried, counts.extractions) == (1, 1, 0)
    await store.requeue_recordings(done=False)
    counts = await recorder.drain()
    assert (counts.facts, counts.extractions) == (1, 1)
    assert [asked for _, asked in extract.asked] == [ids, [ids[2]]]


async def test_a_provider_that_is_away_is_not_asked_again_and_again(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    extract = Extractor(RateLimited("slow down: sk-verysecretkey0123456789abc"), RateLimited("slow down"))
    memory = PlainMemory()
    counts = await Recorder(store, memory, extract.port).drain()
    assert (len(extract.asked), counts.retried, counts.episodes) == (1, 1, 5)
    assert (await store.count_recordings()).reason == "slow down: [redacted]"


async def test_one_session_only(store: SessionStore) -> None:
    await store.create_session(session("session_b"))
    for name in ("session_a", "session_b"):
        await store.append(name, 1, turn_without_restart())
    memory = PlainMemory()
    await Recorder(store, memory, session_id="session_b").drain()
    assert {m.session_id for m in memory.found.values()} == {"session_b"}
    assert len(await queue(store)) == 8


async def until(store: SessionStore, pending: int, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while (await store.count_recordings()).pending != pending:
            await asyncio.sleep(0.01)


class Watching:
    """The store, and whether everything that is marked as done was on the disk then."""

    def __init__(self, store: SessionStore, memory: PlainMemory) -> None:
        self._store = store
        self._memory = memory
        self.unsynced: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def finish_recordings(self, *rows: Any, **more: Any) -> None:
        self.unsynced |= self._memory.unsynced
        await self._store.finish_recordings(*rows, **more)


async def test_recording_marked_as_done_is_on_the_disk(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory()
    watching = Watching(store, memory)
    await Recorder(cast("SessionStore", watching), memory, Extractor().port).drain()
    assert (await store.count_recordings()).pending == 0
    assert watching.unsynced == memory.unsynced == set()
    assert memory.synced == 3, "one for all episodes and ends of turns, one for each extraction"


async def test_a_memory_of_one_run_leaves_everything_for_one_that_lasts(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory, extract = PlainMemory(temporary=True), Extractor()
    recorder = Recorder(store, memory, extract.port)
    counts = await recorder.drain()
    assert (counts.episodes, counts.turns, counts.extractions) == (5, 1, 2)
    assert await recorder.drain() == DrainCounts(), "once in this run"
    assert await Recorder(store, PlainMemory(temporary=True), extract.port).drain() == DrainCounts(), (
        "nor paid for in the next"
    )
    state = await store.count_recordings()
    assert (state.pending, state.done) == (8, 0)
    assert "on_disk is false" in (state.reason or "")
    lasting = PlainMemory()
    assert (await Recorder(store, lasting, extract.port).drain()).episodes == 5
    assert lasting.found.keys() == memory.found.keys()
    assert (await store.count_recordings()).pending == 0


async def test_two_processes_ask_a_model_once(store: SessionStore, tmp_path: Path) -> None:
    await store.append("session_a", 1, turn_without_restart())
    others = [await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path) for _ in range(3)]
    memory, extract = PlainMemory(), Extractor(seconds=0.1)
    await asyncio.gather(*(Recorder(each, memory, extract.port).drain() for each in (store, *others)))
    assert sorted(origin.agent_id for origin, _ in extract.asked) == ["ann", "bob"]
    assert (await store.count_recordings()).pending == 0
    for each in others:
        await each.close()


async def test_whoever_gives_up_lets_go_of_its_row(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory(full=True)
    await Recorder(store, memory, Extractor().port).drain()
    assert len(await store.list_due_recordings("extract", 9)) == 2
    task = asyncio.create_task(Recorder(store, PlainMemory(), Extractor(seconds=30).port).drain())
    async with asyncio.timeout(5):
        while len(await store.list_due_recordings("extract", 9)) != 1:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await store.list_due_recordings("extract", 9)) == 2


async def test_claim_lasts_a_minute_and_is_renewed_while_its_process_lives(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_RENEWAL", 0.01)
    await store.append("session_a", 1, turn_without_restart())

    def list_claims() -> set[datetime]:
        with closing(sqlite3.connect(tmp_path / "m.db")) as database:
            rows = database.execute(
                "SELECT next_attempt_at FROM recordings WHERE next_attempt_at IS NOT NULL"
            ).fetchall()
        return {datetime.fromisoformat(end).replace(tzinfo=UTC) for (end,) in rows}

    task = asyncio.create_task(Recorder(store, PlainMemory(), Extractor(seconds=300).port).drain())
    ends: set[datetime] = set()
    try:
        async with asyncio.timeout(60):
            while len(ends) < 3:
                await asyncio.sleep(0.01)
                ends |= list_claims()
        assert all(end <= now() + timedelta(minutes=1) for end in ends)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert list_claims() == set(), "no renewal comes after the end"


async def test_a_forgotten_fact_does_not_come_back_and_the_others_do(store: SessionStore) -> None:
    await store.append("session_a", 1, [begin("ann"), answer(1, "ann", "My daughter is Xenia. Oaks grow in Cobham.")])
    await store.append("session_a", 1, [event(3, "turn_interrupted", by="user")])
    _, said = await everything(store)
    ann = Origin("session_a", "ann", 1)

    def again(*texts: str) -> Extractor:
        return Extractor(Extraction(tuple(fact(ann, text, said.id) for text in texts)))

    memory = PlainMemory()
    await Recorder(store, memory, again("The daughter is called Xenia.", "Oaks grow in Cobham.").port).drain()
    (gone,) = [m for m in await memory.list(Selection(kind="fact")) if "Xenia" in m.text]
    await store.forget_fact("session_a", "ann", gone.message_ids, fingerprint_fact(gone.text))
    await store.requeue_recordings(done=True)
    memory = PlainMemory()
    await Recorder(store, memory, again("Xenia is the called daughter.", "Oaks grow in Cobham.").port).drain()
    assert [m.text for m in await memory.list(Selection(kind="fact"))] == ["fact: Oaks grow in Cobham."]


BIG = "a tree of files " * 500


async def test_a_large_tool_result_is_summarised_before_facts_are_looked_for(store: SessionStore) -> None:
    result = event(1, "tool_returned", agent_id="ann", round=1, name="list", content=BIG)
    await store.append("session_a", 1, [begin("ann"), result, answer(2, "ann", "The first answer.")])
    await store.append("session_a", 1, [event(3, "turn_interrupted", by="user")])
    settings = {"ann": RecordingConfig(record_all_tool_calls=True, summarize_large_results=True, summary_model="tiny")}
    asked: list[str | None] = []
    told: list[list[str]] = []

    async def summarize(text: str, model: str | None) -> str:
        assert text == BIG
        asked.append(model)
        if len(asked) == 1:
            raise RateLimited("slow down")
        return "Eight files."

    async def extract(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        told.append([m.text for m in messages])
        return Extraction()

    memory = PlainMemory()
    for _ in range(2):
        counts = await Recorder(store, memory, MemoryExtractor(extract, summarize), settings).drain()
        assert counts.extractions == 1
        await store.requeue_recordings(done=True)
    first, second = (texts[1] for texts in told)
    assert asked == ["tiny", "tiny"]
    assert "not summarised: slow down" in first
    assert len(first) < len(BIG) / 2
    assert second == f"[Tool Usage]\nResult: [Summary of a result of {len(BIG):,} characters]\nEight files."
    assert BIG in {m.text for m in memory.found.values()}, "word for word it is remembered all the same"


async def test_in_the_background_it_records_when_it_is_woken(store: SessionStore) -> None:
    memory = PlainMemory()
    recorder = Recorder(store, memory)
    recorder.start()
    await asyncio.sleep(0.05)
    await store.append("session_a", 1, turn_without_restart())
    recorder.wake()
    await until(store, 0)
    await store.append("session_a", 2, [begin("ann", question="One more question?")])
    await recorder.stop(5)
    assert len(memory.found) == 6
    await recorder.stop(5)


async def test_rows_of_several_sessions_are_written_together(store: SessionStore) -> None:
    names = [f"session_{number}" for number in range(8)]
    for name in names:
        await store.create_session(session(name))
        await store.append(name, 1, turn_without_restart())
    memory = PlainMemory()
    await Recorder(store, memory).drain()
    assert memory.batches == [5 * len(names)]
    assert memory.synced == 1
    assert {session_id for session_id, _, _ in memory.won} == {*names}


async def test_an_end_of_a_turn_that_cannot_be_marked_holds_up_no_other(store: SessionStore) -> None:
    await store.create_session(session("session_b"))
    for name in ("session_a", "session_b"):
        await store.append(name, 1, turn_without_restart())
    memory = PlainMemory(lost=frozenset({"session_a"}))
    counts = await Recorder(store, memory).drain()
    assert (counts.episodes, counts.turns, counts.retried) == (10, 1, 1)
    await store.requeue_recordings(done=False)
    assert [(row.kind, row.session_id) for row in await queue(store)] == [("complete", "session_a")]


async def test_stopping_does_not_wait_for_a_slow_model(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory, extract = PlainMemory(), Extractor(seconds=30)
    recorder = Recorder(store, memory, extract.port)
    recorder.start()
    await until(store, 2)
    started = time.monotonic()
    await recorder.stop(0.2)
    assert time.monotonic() - started < 15
    assert len(memory.found) == 5
    assert {(row.kind, row.attempts) for row in await queue(store)} == {("extract", 0)}


async def test_a_question_waits_for_what_was_said_and_not_for_extraction(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory, extract = PlainMemory(), Extractor(seconds=30)
    recorder = Recorder(store, memory, extract.port)
    recorder.start()
    await until(store, 2)
    await store.append("session_a", 2, [begin("ann", at=9, question="One more question?")])
    await recorder.catch_up("session_a", 2, 2)
    assert len(memory.found) == 5, "its own question is left for later"
    await recorder.catch_up("session_a", 3, 2)
    assert len(memory.found) == 6
    memory.away = True
    await store.append("session_a", 3, [begin("ann", at=9, question="And yet another?")])
    await recorder.catch_up("session_a", 4, 2)
    assert len(await store.list_due_recordings("episode", 9)) == 1
    await recorder.stop(0)


async def test_sessions_that_wait_at_the_same_time_are_written_together(store: SessionStore) -> None:
    names = [f"session_{number}" for number in range(8)]
    for name in names:
        await store.create_session(session(name))
        await store.append(name, 1, turn_without_restart())
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory()
    recorder = Recorder(store, memory)
    await asyncio.gather(*(recorder.catch_up(name, 2, 20) for name in names))
    assert {m.session_id for m in memory.found.values()} == {*names}, "session_a waits for the queue"
    assert {session_id for session_id, _, _ in memory.won} == {*names}
    assert memory.synced <= 4
    assert {row.session_id for row in await store.list_due_recordings("episode", 99)} == {"session_a"}
    before = memory.synced
    await recorder.catch_up(names[0], 2, 20)
    assert memory.synced == before
    await recorder.stop(0)


async def test_session_behind_a_long_queue_of_others_is_caught_up(store: SessionStore) -> None:
    for number in range(40):  # more than a batch
        await store.create_session(session(f"session_{number}"))
        await store.append(f"session_{number}", 1, turn_without_restart())
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory()
    recorder = Recorder(store, memory)
    await recorder.catch_up("session_a", 2, 20)
    assert {m.session_id for m in memory.found.values()} == {"session_a"}
    await recorder.stop(0)


async def test_two_workers_at_once_store_nothing_twice(store: SessionStore) -> None:
    await store.append("session_a", 1, turn_without_restart())
    memory = PlainMemory()
    await asyncio.gather(*(Recorder(store, memory).drain() for _ in range(4)))
    assert len(memory.found) == 5
    assert (await store.count_recordings()).done == 8
