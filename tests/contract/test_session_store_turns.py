"""What every SessionStore promises to the process that runs a turn: its lease guards the events that it stores."""

import asyncio

import pytest

from massmem.core.errors import SessionBusyError
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import begin
from tests.support.stores import Opener


async def log_numbers(store: SessionStore, name: str = "session_a") -> list[int]:
    return [entry.seq for entry in await store.export_log(name)]


async def test_append_by_the_lease_owner_keeps_or_releases_the_lease(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "me", 60)
    assert await store.append("session_a", 1, [begin("ann")], owner="me") == [1]
    assert await store.get_lease_owner("session_a") == "me"
    assert await store.append("session_a", 1, [done()], owner="me", release_lease=True) == [2]
    assert await store.get_lease_owner("session_a") is None


async def test_append_after_another_process_took_the_lease_stores_nothing(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "me", 0.05)
    assert await store.append("session_a", 1, [begin("ann")], owner="me") == [1]
    await asyncio.sleep(0.1)
    assert await store.acquire_lease("session_a", "you", 60)
    for release in (False, True):
        with pytest.raises(SessionBusyError, match="taken over"):
            await store.append("session_a", 1, [done()], owner="me", release_lease=release)
    assert await log_numbers(store) == [1]
    assert await store.get_lease_owner("session_a") == "you"


async def test_append_with_an_expired_lease_that_nobody_took_is_stored(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "me", 0.05)
    await asyncio.sleep(0.1)
    assert await store.append("session_a", 1, [begin("ann")], owner="me") == [1]


async def test_of_many_that_want_a_lease_one_gets_it(opener: Opener) -> None:
    stores = [await opener() for _ in range(3)]
    await stores[0].create_session(session())
    for turn in (1, 2, 3):
        acquired = await asyncio.gather(*(stores[n % 3].acquire_lease("session_a", f"{n}", 60) for n in range(12)))
        (winner,) = [n for n, got in enumerate(acquired) if got]
        owner = f"{winner}"
        assert await stores[1].get_lease_owner("session_a") == owner
        await stores[1].append("session_a", turn, [begin("ann", at=turn)], owner=owner)
        await stores[1].append("session_a", turn, [done(at=turn)], owner=owner, release_lease=True)
    assert await log_numbers(stores[0]) == [1, 2, 3, 4, 5, 6]
    for each in stores:
        await each.close()
