"""Recording under kills and crowds: no acknowledged message without a memory after the next run, none twice."""

import asyncio
import contextlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from massmem.core.errors import MemoryUnavailable, SessionExistsError
from massmem.core.records import SessionRecord, is_worth_recording
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Selection
from massmem.recording.worker import Recorder
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import answer, begin
from tests.support.store_writer import Notes, Process, count_faults, finish, kill_writers, read_notes, start
from tests.support.verdict import check


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


def open_memory(home: Path) -> IndexedMemory:
    index = EdgeIndex(home / "memory" / "words", 0, wait=0.2)
    return IndexedMemory(index, None, len, "here")


def record(database: Path, notes: Path, session_id: str, name: str, count: int) -> None:
    asyncio.run(_record(database, Notes(notes), session_id, name, count))


async def _record(database: Path, notes: Notes, session_id: str, name: str, count: int) -> None:
    """Append answers and record them beside it, as a session does; note each once the store has it."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    moment = datetime.now(UTC)
    with contextlib.suppress(SessionExistsError):
        await store.create_session(SessionRecord(session_id=session_id, created_at=moment, updated_at=moment))
        await store.append(session_id, 1, [begin("ann")])
    memory, recorder = None, None
    with contextlib.suppress(MemoryUnavailable):  # another process records now; the queue keeps it for later
        memory = await asyncio.to_thread(open_memory, database.parent)
        recorder = Recorder(store, memory)
        recorder.start()
    for number in range(count):
        text = f"{name}-{number} was said here"
        await store.append(session_id, 1, [answer(0, "ann", text)])
        notes.add(f"{session_id}:{text}")
        if recorder is not None:
            recorder.wake()
        await asyncio.sleep(0)
    if memory is not None and recorder is not None:
        await recorder.stop(5)
        await memory.close()
    await store.close()


async def check_memories(database: Path, acknowledged: list[str], in_flight: int) -> None:
    """The next run records what is left; then every message has one memory, in its place, and nothing else has."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    memory = await asyncio.to_thread(open_memory, database.parent)
    before = (await store.count_recordings()).pending
    counts = await Recorder(store, memory).drain()
    assert counts.unavailable == ""
    found = await memory.list(Selection(), 1_000_000)
    said = await messages(store)
    counts = count_faults(acknowledged, [f"{m.session_id}:{m.text}" for m in found], in_flight + len(SESSIONS))
    counts["ghost"] += sum(n - 1 for n in Counter(m.message_ids for m in found).values())
    queue = await store.count_recordings()
    counts["lie"] = queue.pending + queue.failed + len({m.message_ids for m in found} ^ said)
    what = f"record, {in_flight} kills, {len(acknowledged)} acknowledged"
    check(f"{what}, {before} recorded by the next run, {len(found)} memories", counts)
    await memory.close()
    await store.close()


SESSIONS = ("s0", "s1", "s2")
"""Each has a question that no writer notes."""


async def messages(store: SessionStore) -> set[tuple[str, ...]]:
    said = [m for s in await store.list_sessions() for m in await store.read_messages(s.session_id, limit=1_000_000)]
    return {(m.id,) for m in said if is_worth_recording(m.content)}


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.full)])
async def test_kill_minus_9_while_recording(database: Path, tmp_path: Path, kills: int) -> None:
    notes = tmp_path / "notes"

    def start_recording(number: int, book: Path) -> Process:
        return start(record, database, book, SESSIONS[number % 3], f"w{number}", 100_000)

    assert kill_writers(start_recording, notes, kills, longest=0.25, least=10) == kills
    acknowledged = read_notes(notes)
    assert len(acknowledged) >= 5 * kills
    await check_memories(database, acknowledged, in_flight=kills)


async def test_eight_processes_record_at_once(database: Path, tmp_path: Path) -> None:
    writers = [
        start(record, database, tmp_path / f"{n}.notes", SESSIONS[n % 3], f"w{n}", 30) for n in range(8)
    ]  # fmt: skip
    assert finish(writers) == [0] * 8
    acknowledged = read_notes(tmp_path)
    assert len(acknowledged) == 240
    await check_memories(database, acknowledged, in_flight=0)
