import asyncio
import stat
from pathlib import Path

import pytest

from massmem.errors import SessionBusyError
from massmem.events import now
from massmem.records import SessionRecord
from massmem.session.ownership import owned
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


async def test_only_one_owner_at_a_time_in_a_home(store: SessionStore, tmp_path: Path):
    async with owned(store, tmp_path, "session_a"):
        with pytest.raises(SessionBusyError, match="another process is running a turn of session_a"):
            async with owned(store, tmp_path, "session_a"):
                pass
    async with owned(store, tmp_path, "session_a") as mine:
        mine.check()
    assert await store.lease_owner("session_a") is None
    assert stat.S_IMODE((tmp_path / "locks" / "home").stat().st_mode) == 0o600


async def test_another_home_is_kept_out_by_the_lease(store: SessionStore, tmp_path: Path):
    async with owned(store, tmp_path / "one", "session_a"):
        with pytest.raises(SessionBusyError):
            async with owned(store, tmp_path / "two", "session_a"):
                pass
    async with owned(store, tmp_path / "two", "session_a"):
        pass


async def test_waiting_ends_when_the_owner_lets_go(store: SessionStore, tmp_path: Path):
    order: list[str] = []

    async def second() -> None:
        async with owned(store, tmp_path / "two", "session_a", wait=30):
            order.append("second")

    async with owned(store, tmp_path / "one", "session_a"):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.3)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_who_died_in_this_home_is_followed_at_once_elsewhere_when_the_lease_ends(
    store: SessionStore, tmp_path: Path
):
    async with owned(store, tmp_path / "one", "session_a"):
        mine = await store.lease_owner("session_a")
    assert mine is not None
    dead = mine.partition(":")[0] + ":killed"
    assert await store.acquire_lease("session_a", dead, 60)
    with pytest.raises(SessionBusyError):
        async with owned(store, tmp_path / "two", "session_a"):
            pass
    async with owned(store, tmp_path / "one", "session_a"):
        assert await store.lease_owner("session_a") != dead
    assert await store.acquire_lease("session_a", dead, 0.05)
    async with owned(store, tmp_path / "two", "session_a", wait=10):
        pass


async def test_a_lease_is_renewed_while_it_is_needed(store: SessionStore, tmp_path: Path):
    async with owned(store, tmp_path / "one", "session_a", lease=0.3) as mine:
        for _ in range(10):
            await asyncio.sleep(0.1)
            assert not await store.acquire_lease("session_a", "somebody else", 60)
        mine.check()


async def test_whoever_lost_the_session_is_told_and_may_not_write(store: SessionStore, tmp_path: Path):
    told = asyncio.Event()
    async with owned(store, tmp_path / "one", "session_a", lease=0.3, on_loss=told.set) as mine:
        holder = await store.lease_owner("session_a")
        assert holder is not None
        await store.release_lease("session_a", holder)
        assert await store.acquire_lease("session_a", "somebody else", 60)
        await asyncio.wait_for(told.wait(), 10)
        with pytest.raises(SessionBusyError, match="taken over"):
            mine.check()
    assert await store.lease_owner("session_a") == "somebody else"
