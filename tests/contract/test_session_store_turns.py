"""What every SessionStore promises to whoever runs turns: one owner, taken and let go of together with the events."""

import asyncio

import pytest

from massmem.errors import SessionBusyError
from massmem.events import Event
from massmem.records import SessionState
from massmem.store.base import Lease, Mark, SessionStore
from tests.contract.test_session_store import Opener, done, opener, session, store
from tests.support.sample_turn import begin

__all__ = ["opener", "store"]

ME = Lease("me", 60)


async def marked(store: SessionStore, name: str = "session_a") -> Mark:
    mark = await store.mark(name)
    assert mark is not None
    return mark


async def log(store: SessionStore, name: str = "session_a") -> list[int]:
    return [entry.seq for entry in await store.export_log(name)]


async def test_the_mark_tells_every_change_that_a_turn_goes_by(store: SessionStore) -> None:
    assert await store.mark("session_a") is None
    await store.create_session(session())
    marks = [await marked(store)]
    assert marks == [Mark(session().created_at, 0, None)]
    await store.append("session_a", 1, [begin("ann"), done()])
    marks.append(await marked(store))
    assert marks[1].seq == 2
    await store.save_state("session_a", SessionState(params={"city": "Lisbon"}))
    marks.append(await marked(store))
    await store.append("session_a", 2, [begin("ann", at=9)], SessionState(params={"city": "Porto"}))
    marks.append(await marked(store))
    assert len(set(marks)) == 4
    await store.rename_session("session_a", "another title")
    assert await store.acquire_lease("session_a", "me", 60)
    assert await marked(store) == marks[-1]
    await store.delete_session("session_a", 0)
    assert await store.mark("session_a") is None


async def test_a_turn_begins_with_its_lease(store: SessionStore) -> None:
    await store.create_session(session())
    begun = await store.begin_turn("session_a", 1, [begin("ann")], ME, await marked(store))
    assert begun == [1] == await log(store)
    assert await store.lease_owner("session_a") == "me"
    assert not await store.acquire_lease("session_a", "you", 60)
    assert await store.append("session_a", 1, [done()], leaving="me") == [2]
    assert await store.lease_owner("session_a") is None
    known = await marked(store)
    assert known.seq == 2
    assert await store.begin_turn("session_a", 2, [begin("ann", at=9)], Lease("you", 60), known) == [3]
    assert await store.lease_owner("session_a") == "you"


async def test_no_turn_begins_where_somebody_else_was(store: SessionStore) -> None:
    await store.create_session(session())
    old = await marked(store)
    assert await store.begin_turn("session_b", 1, [begin("ann")], ME, old) is None
    await store.append("session_a", 1, [begin("ann"), done()])
    assert await store.begin_turn("session_a", 1, [begin("ann")], ME, old) is None
    known = await marked(store)
    await store.save_state("session_a", SessionState(params={"city": "Lisbon"}))
    assert await store.begin_turn("session_a", 2, [begin("ann")], ME, known) is None
    known = await marked(store)
    assert await store.acquire_lease("session_a", "you", 60)
    assert await store.begin_turn("session_a", 2, [begin("ann")], ME, known) is None
    assert await store.lease_owner("session_a") == "you"
    await store.release_lease("session_a", "you")
    await store.delete_session("session_a", 0)
    assert await store.begin_turn("session_a", 2, [begin("ann")], ME, known) is None
    assert await store.lease_owner("session_a") is None
    while await store.delete_session("session_a", 100) is not None:
        pass
    await store.create_session(session(at=60))
    await store.append("session_a", 1, [begin("ann"), done()])
    assert (await marked(store)).seq == known.seq
    assert await store.begin_turn("session_a", 2, [begin("ann")], ME, known) is None
    assert await log(store) == [1, 2]


async def test_no_turn_begins_with_a_lease_that_somebody_let_expire(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "you", 0.05)
    await asyncio.sleep(0.1)
    assert await store.begin_turn("session_a", 1, [begin("ann")], ME, await marked(store)) is None
    assert await store.lease_owner("session_a") == "you"
    assert await store.acquire_lease("session_a", "me", 60)
    assert await store.begin_turn("session_a", 1, [begin("ann")], ME, await marked(store)) == [1]


async def test_whoever_has_lost_the_lease_ends_no_turn(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.begin_turn("session_a", 1, [begin("ann")], Lease("me", 0.05), await marked(store))
    await asyncio.sleep(0.1)
    assert await store.acquire_lease("session_a", "you", 60)
    with pytest.raises(SessionBusyError, match="taken over"):
        await store.append("session_a", 1, [done()], leaving="me")
    assert await log(store) == [1]
    assert await store.lease_owner("session_a") == "you"
    await store.release_lease("session_a", "you")
    assert await store.append("session_a", 1, [done()], leaving="me") == [2]  # nobody has come: it is still ours


async def test_of_many_that_begin_a_turn_one_does(opener: Opener) -> None:
    stores = [await opener() for _ in range(3)]
    await stores[0].create_session(session())
    for turn in (1, 2, 3):
        known = await marked(stores[0])
        question: list[Event] = [begin("ann", at=turn)]
        begun = await asyncio.gather(
            *(stores[n % 3].begin_turn("session_a", turn, question, Lease(f"{n}", 60), known) for n in range(12))
        )
        (winner,) = [n for n, numbers in enumerate(begun) if numbers is not None]
        assert await stores[1].lease_owner("session_a") == f"{winner}"
        await stores[1].append("session_a", turn, [done(at=turn)], leaving=f"{winner}")
    assert await log(stores[0]) == [1, 2, 3, 4, 5, 6]
    for each in stores:
        await each.close()
