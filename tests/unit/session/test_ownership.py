import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.errors import SessionBusyError
from massmem.events import now
from massmem.records import SessionRecord
from massmem.session.ownership import Ownership, owned
from massmem.session.process import Process
from massmem.store import open_store
from massmem.store.base import SessionStore

URL = "sqlite:///{}/massmem.db"


async def opened(folder: Path) -> SessionStore:
    store = await open_store(URL.format(folder), folder)
    if await store.get_session("session_a") is None:
        await store.create_session(SessionRecord(session_id="session_a", created_at=now(), updated_at=now()))
    return store


@pytest.fixture
async def store(tmp_path: Path):
    store = await opened(tmp_path)
    yield store
    await store.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    opened = Process(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Process]:
    """Another process of the same home."""
    opened = Process(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Process]:
    """A process of another home."""
    opened = Process(tmp_path / "other")
    yield opened
    opened.close()


async def test_only_one_owner_at_a_time(store: SessionStore, process: Process, neighbour: Process, stranger: Process):
    async with owned(store, process, "session_a") as first:
        for other in (process, neighbour, stranger):
            with pytest.raises(SessionBusyError, match="another process is running a turn of session_a"):
                async with owned(store, other, "session_a"):
                    pass
        first.check()
    for other in (process, neighbour, stranger):
        async with owned(store, other, "session_a") as mine:
            mine.check()
    assert await store.lease_owner("session_a") is None


async def test_waiting_ends_when_the_owner_lets_go(store: SessionStore, process: Process, stranger: Process):
    order: list[str] = []

    async def second() -> None:
        async with owned(store, stranger, "session_a", wait=30):
            order.append("second")

    async with owned(store, process, "session_a"):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.3)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_who_died_in_this_home_is_followed_at_once_elsewhere_when_the_lease_ends(
    store: SessionStore, tmp_path: Path, neighbour: Process, stranger: Process
):
    dead = Process(tmp_path)
    assert await store.acquire_lease("session_a", dead.enter(), 60)
    dead.close()  # its lock is free, its lease is not: as after a kill
    with pytest.raises(SessionBusyError):
        async with owned(store, stranger, "session_a"):
            pass
    async with owned(store, neighbour, "session_a"):
        pass
    assert await store.acquire_lease("session_a", dead.enter(), 0.05)
    dead.close()
    async with owned(store, stranger, "session_a", wait=10):
        pass


async def test_who_is_only_suspended_keeps_the_session_in_this_home(
    store: SessionStore, process: Process, neighbour: Process, stranger: Process
):
    """Whatever the clock says: a machine slept, or its clock was set."""
    assert await store.acquire_lease("session_a", process.enter(), 0.01)
    await asyncio.sleep(0.05)
    with pytest.raises(SessionBusyError):
        async with owned(store, neighbour, "session_a"):
            pass
    async with owned(store, stranger, "session_a"):
        pass


async def test_what_this_process_failed_to_let_go_of_is_taken_again(store: SessionStore, process: Process):
    lost = process.enter()
    assert await store.acquire_lease("session_a", lost, 60)
    with pytest.raises(SessionBusyError):
        async with owned(store, process, "session_a"):
            pass
    process.leave(lost)
    async with owned(store, process, "session_a"):
        pass


async def test_a_lease_is_renewed_while_it_is_needed(store: SessionStore, process: Process):
    mine = Ownership(store, process, "session_a", lease=0.3)
    await mine.take()
    for _ in range(10):
        await asyncio.sleep(0.1)
        assert not await store.acquire_lease("session_a", "somebody else", 60)
    mine.check()
    await mine.let_go()
    assert await store.acquire_lease("session_a", "somebody else", 60)


async def test_whoever_lost_the_session_is_told_and_may_not_write(store: SessionStore, process: Process):
    told = asyncio.Event()
    mine = Ownership(store, process, "session_a", told.set, lease=0.3)
    await mine.take()
    await store.release_lease("session_a", mine.lease.owner)
    assert await store.acquire_lease("session_a", "somebody else", 60)
    await asyncio.wait_for(told.wait(), 10)
    with pytest.raises(SessionBusyError, match="taken over"):
        mine.check()
    await mine.let_go()
    assert await store.lease_owner("session_a") == "somebody else"


async def test_what_may_have_been_taken_is_let_go_of(store: SessionStore, process: Process):
    mine = Ownership(store, process, "session_a")
    mine.may_be_taken()
    assert await store.acquire_lease("session_a", mine.lease.owner, 60)  # and the reply was lost
    await mine.let_go()
    assert await store.lease_owner("session_a") is None
