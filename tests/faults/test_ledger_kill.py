"""The ledger under kills and crowds: every acknowledged value is in it, in the order of the log."""

import asyncio
import contextlib
import itertools
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from massmem.core.errors import MemoryUnavailable, SessionExistsError
from massmem.core.records import SessionRecord
from massmem.memory.claims import Entry
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import USER, Scope
from massmem.recording.worker import Recorder
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import event
from tests.support.store_writer import Notes, Process, finish, kill_writers, read_notes, start
from tests.support.verdict import check

EVERYWHERE = Scope("s_none", USER, 1, all_sessions=True)


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


def open_memory(home: Path) -> IndexedMemory:
    return IndexedMemory(EdgeIndex(home / "memory" / "words", 0, wait=0.2), None, len, "here")


def claim(database: Path, notes: Path, name: str, count: int) -> None:
    asyncio.run(_claim(database, Notes(notes), name, count))


async def _claim(database: Path, notes: Notes, name: str, count: int) -> None:
    """Say again and again that the user lives in another town, and record it; note each town once stored."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    moment = datetime.now(UTC)
    with contextlib.suppress(SessionExistsError):
        await store.create_session(SessionRecord(session_id="s", created_at=moment, updated_at=moment))
    memory, recorder = None, None
    with contextlib.suppress(MemoryUnavailable):  # another process records now; the queue keeps it for later
        memory = await asyncio.to_thread(open_memory, database.parent)
        recorder = Recorder(store, memory)
        recorder.start()
    for number in range(count):
        town = f"{name}town{number}"
        note = event(0, "note_added", text=f"My home is {town}.").model_copy(update={"at": datetime.now(UTC)})
        await store.append("s", 0, [note])
        notes.add(town)
        if recorder is not None:
            recorder.wake()
        await asyncio.sleep(0.005)
    if memory is not None and recorder is not None:
        await recorder.stop(5)
        await memory.close()
    await store.close()


async def read_towns(store: SessionStore) -> list[str]:
    """The towns in the order of their time in the log."""
    messages = await store.read_messages("s", limit=1_000_000)
    in_order = sorted(messages, key=lambda message: (message.created_at, message.id))
    return [message.content.removeprefix("My home is ").rstrip(".") for message in in_order]


async def read_ledger(database: Path) -> list[Entry]:
    """What the ledger has after the next run has recorded what was left."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    memory = await asyncio.to_thread(open_memory, database.parent)
    try:
        assert (await Recorder(store, memory).drain()).unavailable == ""
        chains = await memory.read_history("home", EVERYWHERE)
        return [entry for chain in chains for entry in chain.entries]
    finally:
        await memory.close()
        await store.close()


async def rebuild(database: Path) -> None:
    """Lose the index, and queue everything again."""
    shutil.rmtree(database.parent / "memory")
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.requeue_recordings(None, done=True)
    await store.close()


async def check_ledger(database: Path, acknowledged: list[str], what: str) -> None:
    store = await open_store(f"sqlite:///{database}", database.parent)
    towns = await read_towns(store)
    await store.close()
    entries = await read_ledger(database)
    values = [entry.claim.value for entry in entries]
    counts = {
        "lost": len({*acknowledged} - {*values}),
        "ghost": len(values) - len({*values}) + len({*values} - {*towns}),
        "lie": int(values != towns) + sum(entry.until is None for entry in entries[:-1]),
    }
    counts["lie"] += sum(one.until != following.since for one, following in itertools.pairwise(entries))
    check(f"ledger, {what}, {len(acknowledged)} acknowledged, {len(values)} values", counts)
    assert entries[-1].until is None
    await rebuild(database)
    assert [(e.claim, e.since, e.until) for e in await read_ledger(database)] == [
        (e.claim, e.since, e.until) for e in entries
    ]


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.full)])
async def test_kill_minus_9_while_claims_are_written(database: Path, tmp_path: Path, kills: int) -> None:
    notes = tmp_path / "notes"

    def start_claims(number: int, book: Path) -> Process:
        return start(claim, database, book, f"W{number}", 100_000)

    assert kill_writers(start_claims, notes, kills, longest=0.2) == kills  # long enough to record something
    await check_ledger(database, read_notes(notes), f"{kills} kills")


async def test_two_processes_claim_at_once(database: Path, tmp_path: Path) -> None:
    writers = [start(claim, database, tmp_path / f"{n}.notes", f"W{n}", 25) for n in range(2)]
    assert finish(writers) == [0, 0]
    acknowledged = read_notes(tmp_path)
    assert len(acknowledged) == 50
    await check_ledger(database, acknowledged, "2 processes")
