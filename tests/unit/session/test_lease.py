"""Leases: one owner at a time, and what becomes of the lease when its owner dies, is suspended, or loses it."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.errors import HomeError, SessionBusyError, StoreError
from massmem.core.events import NoteAdded, now
from massmem.core.records import SessionRecord
from massmem.session.lease import Lease, ProcessLock, hold_lease, is_owner_gone, mark_interrupted
from massmem.store import open_store
from massmem.store.ports import SessionStore

ID = "session_a"
OWNER_PROGRAM = """
import sys, time
from pathlib import Path
from massmem.session.lease import ProcessLock

process = ProcessLock(Path(sys.argv[1]))
print(process.add_owner(), flush=True)
time.sleep(60)
"""


@pytest.fixture
async def store(tmp_path: Path):
    store = await open_store(f"sqlite:///{tmp_path}/massmem.db", tmp_path)
    await store.create_session(SessionRecord(session_id=ID, created_at=now(), updated_at=now()))
    yield store
    await store.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ProcessLock]:
    lock = ProcessLock(tmp_path)
    yield lock
    lock.close()


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[ProcessLock]:
    """Another process of the same home."""
    lock = ProcessLock(tmp_path)
    yield lock
    lock.close()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[ProcessLock]:
    """A process of another home."""
    lock = ProcessLock(tmp_path / "other")
    yield lock
    lock.close()


async def assert_busy(store: SessionStore, process: ProcessLock) -> None:
    with pytest.raises(SessionBusyError, match="another process is running a turn of session_a") as refusal:
        async with hold_lease(store, process, ID):
            pass
    assert refusal.value.hint == "run this again when it has finished, or with --wait"


async def assert_free(store: SessionStore, process: ProcessLock, wait: float = 0) -> None:
    async with hold_lease(store, process, ID, wait) as lease:
        assert await store.get_lease_owner(ID) == lease.owner
    assert await store.get_lease_owner(ID) is None


async def test_lease_has_one_owner_at_a_time(
    store: SessionStore, process: ProcessLock, neighbour: ProcessLock, stranger: ProcessLock
):
    async with hold_lease(store, process, ID):
        for other in (process, neighbour, stranger):
            await assert_busy(store, other)
    for other in (process, neighbour, stranger):
        await assert_free(store, other)


async def test_waiting_ends_when_the_owner_releases(store: SessionStore, process: ProcessLock, stranger: ProcessLock):
    order: list[str] = []

    async def wait_for_lease() -> None:
        async with hold_lease(store, stranger, ID, wait=30):
            order.append("second")

    async with hold_lease(store, process, ID):
        waiting = asyncio.create_task(wait_for_lease())
        await asyncio.sleep(0.3)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_lease_of_a_dead_process_is_free_at_once_in_its_home_and_elsewhere_when_it_expires(
    store: SessionStore, tmp_path: Path, neighbour: ProcessLock, stranger: ProcessLock
):
    dead = ProcessLock(tmp_path)
    assert await store.acquire_lease(ID, dead.add_owner(), 60)
    dead.close()  # its lock is free, its lease is not: as after a kill
    await assert_busy(store, stranger)
    await assert_free(store, neighbour)
    assert await store.acquire_lease(ID, dead.add_owner(), 0.05)
    dead.close()
    await assert_free(store, stranger, wait=10)


async def test_expired_lease_of_a_suspended_process_is_kept_in_its_home(
    store: SessionStore, process: ProcessLock, neighbour: ProcessLock, stranger: ProcessLock
):
    """Whatever the clock says: a machine slept, or its clock was set."""
    assert await store.acquire_lease(ID, process.add_owner(), 0.01)
    await asyncio.sleep(0.05)
    await assert_busy(store, neighbour)
    await assert_free(store, stranger)


async def test_lease_that_this_process_failed_to_release_is_free_for_it(store: SessionStore, process: ProcessLock):
    owner = process.add_owner()
    assert await store.acquire_lease(ID, owner, 60)
    await assert_busy(store, process)
    process.remove_owner(owner)
    await assert_free(store, process)


async def test_lease_in_a_store_of_this_process_alone_is_free_when_its_owner_is_gone(store: SessionStore):
    process = ProcessLock(None)
    owner = process.add_owner()
    assert await store.acquire_lease(ID, owner, 60)
    await assert_busy(store, process)
    process.remove_owner(owner)
    await assert_free(store, process)


async def test_lease_is_renewed_until_it_is_released(store: SessionStore, process: ProcessLock):
    lease = Lease(store, process, ID, seconds=0.3)
    await lease.acquire(0)
    for _ in range(10):
        await asyncio.sleep(0.1)
        assert not await store.acquire_lease(ID, "somebody else", 60)
    await lease.release()
    assert await store.acquire_lease(ID, "somebody else", 60)


async def test_owner_that_lost_its_lease_is_told_and_cannot_write(store: SessionStore, process: ProcessLock):
    lost = asyncio.Event()
    lease = Lease(store, process, ID, lost.set, seconds=0.3)
    await lease.acquire(0)
    await store.release_lease(ID, lease.owner)
    assert await store.acquire_lease(ID, "somebody else", 60)
    await asyncio.wait_for(lost.wait(), 10)
    with pytest.raises(SessionBusyError, match="taken over"):
        await store.append(ID, 0, [NoteAdded(text="late")], owner=lease.owner)
    await lease.release()
    assert await store.get_lease_owner(ID) == "somebody else"


def read_expiry(home: Path) -> str:
    with closing(sqlite3.connect(home / "massmem.db")) as connection:
        return connection.execute("SELECT expires_at FROM leases").fetchone()[0]


def break_leases(home: Path) -> None:
    """From now on the store fails whenever it is asked about a lease."""
    with closing(sqlite3.connect(home / "massmem.db")) as connection:
        connection.execute("ALTER TABLE leases RENAME TO away")


@pytest.mark.parametrize("renewed", [False, True])
async def test_lease_is_lost_when_the_store_stays_away_until_it_expires_and_not_before(
    store: SessionStore, process: ProcessLock, tmp_path: Path, caplog: pytest.LogCaptureFixture, renewed: bool
):
    """Nobody else may run the session until then, and this process must not go on longer."""
    lost, seconds, clock = asyncio.Event(), 0.9, asyncio.get_running_loop().time
    lease = Lease(store, process, ID, lost.set, seconds)
    began = clock()
    await lease.acquire(0)
    if renewed:
        first = read_expiry(tmp_path)
        async with asyncio.timeout(30):
            while read_expiry(tmp_path) == first:
                await asyncio.sleep(0.01)
    break_leases(tmp_path)
    await asyncio.wait_for(lost.wait(), 30)
    assert clock() >= began + seconds + (seconds / 3 if renewed else 0)
    await lease.release()
    assert {record.message.partition(":")[0] for record in caplog.records} == {
        "the lease of a session could not be renewed",
        "the lease of a session was not released",
    }
    assert all("no such table" in record.message for record in caplog.records)
    assert process.is_gone(lease.owner)


async def test_lease_that_need_not_be_released_needs_no_store(
    store: SessionStore, process: ProcessLock, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    never, released = Lease(store, process, ID), Lease(store, process, ID)
    await released.acquire(0)
    await store.append(ID, 0, [NoteAdded(text="last")], owner=released.owner, release_lease=True)
    released.mark_released()
    break_leases(tmp_path)
    await never.release()
    await released.release()
    assert not caplog.records


async def test_lease_that_the_store_has_released_is_not_taken_from_its_next_owner(
    store: SessionStore, process: ProcessLock
):
    lost = asyncio.Event()
    lease = Lease(store, process, ID, lost.set, seconds=0.15)
    await lease.acquire(0)
    await store.append(ID, 0, [NoteAdded(text="last")], owner=lease.owner, release_lease=True)
    lease.mark_released()
    assert await store.acquire_lease(ID, "next", 60)
    await asyncio.sleep(0.3)
    assert not lost.is_set(), "it is not renewed any more"
    await lease.release()
    assert await store.get_lease_owner(ID) == "next"
    assert process.is_gone(lease.owner)


async def test_lease_that_was_never_acquired_leaves_the_owner_alone(
    store: SessionStore, process: ProcessLock, neighbour: ProcessLock
):
    async with hold_lease(store, neighbour, ID) as held:
        lease = Lease(store, process, ID)
        await lease.release()
        assert await store.get_lease_owner(ID) == held.owner


async def test_unknown_session_has_no_lease(store: SessionStore, process: ProcessLock):
    lease = Lease(store, process, "session_b")
    with pytest.raises(StoreError):
        await lease.acquire(0)
    await lease.release()
    assert process.is_gone(lease.owner)


async def test_session_of_a_dead_process_is_interrupted(
    store: SessionStore, tmp_path: Path, process: ProcessLock, stranger: ProcessLock
):
    async def read_status() -> str:
        record = await store.get_session(ID)
        assert record is not None
        return (await mark_interrupted(store, tmp_path, record)).status

    assert await read_status() == "interrupted", "nobody runs it"
    alive = process.add_owner()
    assert await store.acquire_lease(ID, alive, 60)
    assert await read_status() == "active"
    process.close()
    assert await read_status() == "interrupted"
    await store.release_lease(ID, alive)
    assert await store.acquire_lease(ID, stranger.add_owner(), 60)
    stranger.close()
    assert await read_status() == "active", "nobody here can tell"
    record = await store.get_session(ID)
    assert record is not None
    waiting = record.model_copy(update={"status": "waiting"})
    assert await mark_interrupted(store, tmp_path, waiting) == waiting


def test_whether_an_owner_is_gone_is_known_in_its_home_only(
    tmp_path: Path, process: ProcessLock, stranger: ProcessLock
):
    assert not is_owner_gone(tmp_path, "home:process:1"), "no process has ever run here"
    assert not (tmp_path / "locks").exists()
    near, far = process.add_owner(), stranger.add_owner()
    assert not is_owner_gone(tmp_path, near)
    assert not is_owner_gone(tmp_path, far)
    home = near.partition(":")[0]
    assert not is_owner_gone(tmp_path, f"{home}:../process:1")
    (tmp_path / "locks" / "process_odd.lock").mkdir()
    assert not is_owner_gone(tmp_path, f"{home}:odd:1"), "its lock cannot be tried"
    assert is_owner_gone(tmp_path, f"{home}:dead:1")
    process.close()
    stranger.close()
    assert is_owner_gone(tmp_path, near)
    assert not is_owner_gone(tmp_path, far)


def lock_files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "locks").iterdir())


def test_lock_file_is_made_with_the_first_owner_and_removed_at_the_end(tmp_path: Path):
    process = ProcessLock(tmp_path)
    assert not (tmp_path / "locks").exists()
    first, second = process.add_owner(), process.add_owner()
    assert first != second
    assert len(lock_files(tmp_path)) == 2
    for path in (tmp_path / "locks").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    process.close()
    process.close()
    assert lock_files(tmp_path) == ["home"]


def test_later_owners_stay_under_the_first_lock(tmp_path: Path, process: ProcessLock):
    """Were it taken again, a neighbour could find it free in between."""
    process.add_owner()
    (tmp_path / "locks" / "home").unlink()
    process.add_owner()
    assert "home" not in lock_files(tmp_path), "nothing is made anew"


def test_lock_file_that_cannot_be_removed_holds_up_no_end(tmp_path: Path):
    process = ProcessLock(tmp_path)
    process.add_owner()
    (path,) = (tmp_path / "locks").glob("process_*")
    path.unlink()
    path.mkdir()
    process.close()


def test_lock_that_cannot_be_taken_or_tried_is_reported_with_its_place(tmp_path: Path, process: ProcessLock):
    home, name, _ = process.add_owner().split(":")
    locks = tmp_path / "locks"
    (locks / "process_odd.lock").mkdir()
    with pytest.raises(HomeError, match=r"process_odd.lock cannot be written: .*directory"):
        process.is_gone(f"{home}:odd:1")
    (locks / f"process_{name}.lock").unlink()
    (locks / f"process_{name}.lock").symlink_to(tmp_path / "nowhere" / "file")
    with pytest.raises(HomeError, match=r"locks cannot be written: \w"):
        process.add_owner()


def test_home_whose_name_cannot_be_read_is_reported(tmp_path: Path, process: ProcessLock):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "home").symlink_to(tmp_path / "nowhere")
    with pytest.raises(HomeError, match="home cannot be written: No such file"):
        process.add_owner()


def test_owners_of_two_processes_and_two_homes_are_told_apart(
    process: ProcessLock, neighbour: ProcessLock, stranger: ProcessLock
):
    own, near, far = process.add_owner(), neighbour.add_owner(), stranger.add_owner()
    assert process.is_same_home(near)
    assert not process.is_same_home(far)
    assert not process.is_same_home("")
    assert [process.is_gone(owner) for owner in (own, near)] == [False, False]
    process.remove_owner(own)
    assert process.is_gone(own)
    neighbour.close()
    assert process.is_gone(near)


def test_owner_is_gone_when_its_process_is_killed(tmp_path: Path, process: ProcessLock):
    command = [sys.executable, "-c", OWNER_PROGRAM, str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.add_owner()
    try:
        assert child.stdout is not None
        owner = child.stdout.readline().strip()
        assert process.is_same_home(owner)
        assert not process.is_gone(owner)
    finally:
        child.kill()
        child.communicate()
    assert process.is_gone(owner)
    assert process.is_gone(owner), "also when its file has been removed"
    assert len(lock_files(tmp_path)) == 2


def test_owner_name_from_the_store_is_never_used_as_a_path(tmp_path: Path, process: ProcessLock):
    home = process.add_owner().partition(":")[0]
    assert not process.is_gone(f"{home}:../../other:1")


def test_lock_file_that_was_removed_by_hand_is_made_again(tmp_path: Path, process: ProcessLock, neighbour: ProcessLock):
    process.add_owner()
    for path in (tmp_path / "locks").glob("process_*"):
        path.unlink()
    assert not neighbour.is_gone(process.add_owner())


def test_lock_files_of_killed_processes_are_removed_after_a_day(
    tmp_path: Path, process: ProcessLock, neighbour: ProcessLock
):
    neighbour.add_owner()
    old, young = tmp_path / "locks" / "process_old.lock", tmp_path / "locks" / "process_young.lock"
    old.touch()
    young.touch()
    (old.parent / "process_odd.lock").mkdir()  # cannot be tried
    for path in old.parent.glob("process_*"):
        if path != young:
            os.utime(path, (time.time() - 200_000,) * 2)
    process.add_owner()
    assert not old.exists()
    assert young.exists()
    assert len(lock_files(tmp_path)) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in old.parent.glob("process_????????????*.lock")} == {0o600}


def test_store_in_memory_needs_no_lock_files():
    process = ProcessLock(None)
    owner = process.add_owner()
    assert not process.is_gone(owner)
    process.remove_owner(owner)
    assert process.is_gone(owner)
    process.close()
