"""Changes of one session in Redis: whole, in order, exactly once, and noticed when the server forgot them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
import redis

from massmem.core.errors import StoreError
from massmem.core.records import LogEntry
from massmem.store.ports import Retention, SessionStore
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.redis_proxy import RedisProxy, proxy_redis
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import answer, begin, whole_turn


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.new_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    opened = await open_redis(url, Retention())
    await opened.create_session(session())
    yield opened
    await opened.close()


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[RedisProxy]:
    async with proxy_redis(redis_server.port) as running:
        yield running


@pytest.fixture
async def through(proxy: RedisProxy, redis_server: RedisServer, url: str) -> AsyncIterator[RedisStore]:
    """A store whose connections break on demand."""
    opened = await open_redis(url.replace(str(redis_server.port), str(proxy.port)), Retention())
    yield opened
    await opened.close()


async def append_turns(store: SessionStore, first: int, last: int) -> None:
    for turn in range(first, last + 1):
        await store.append("session_a", turn, [begin("ann", question=f"Question {turn}"), done(5, f"Final {turn}")])


async def read_pages(log: Sequence[LogEntry]) -> AsyncIterator[Sequence[LogEntry]]:
    for entry in log:
        yield [entry]


def save_database(url: str) -> Callable[[], None]:
    """Return a function that brings the database back to what it holds now."""
    with redis.Redis.from_url(url) as client:
        saved = {key: client.dump(key) for key in client.keys("*")}

    def restore() -> None:
        with redis.Redis.from_url(url) as client:
            client.flushdb()
            for key, value in saved.items():
                client.restore(key, 0, value)

    return restore


async def test_two_processes_never_interleave(store: RedisStore, url: str) -> None:
    other = await open_redis(url, Retention())
    await store.append("session_a", 1, [begin("ann")])
    batches = [[answer(n, "ann", f"{n}.{i}") for i in range(3)] for n in range(40)]
    seqs = await asyncio.gather(*((store, other)[n % 2].append("session_a", 1, b) for n, b in enumerate(batches)))
    assert all(batch == list(range(batch[0], batch[0] + 3)) for batch in seqs)
    assert sorted(seq for batch in seqs for seq in batch) == list(range(2, 122))
    assert len(await store.read_turn_events("session_a", 1)) == 121
    await other.close()


async def test_step_whose_reply_was_lost_is_applied_once(
    store: RedisStore, through: RedisStore, proxy: RedisProxy
) -> None:
    await through.append("session_a", 1, [begin("ann")])
    proxy.replies_to_lose = 1
    assert await through.append("session_a", 1, [answer(1, "ann", "A whole answer.")]) == [2]
    proxy.replies_to_lose = 1
    await through.create_session(session("session_b"))
    (first, *_) = await queue(through)
    proxy.replies_to_lose = 1
    await through.fail_recording(first, "away", first.created_at)
    proxy.replies_to_lose = 1
    assert await through.acquire_lease("session_a", "me", 60)
    copy = await through.export_session("session_a")
    assert copy is not None
    proxy.replies_to_lose = 1
    await through.import_session(copy, read_pages(await store.export_log("session_a")))
    assert proxy.replies_lost == 5
    assert [m.content for m in await everything(store)] == ["Why is the sky blue?", "A whole answer."]
    assert [m.content for m in await store.search_messages("whole")] == ["A whole answer."]
    assert (await queue(store))[0].attempts == 1
    proxy.replies_to_lose = 1
    assert await through.delete_session("session_a", 100) is None
    assert proxy.replies_lost == 6
    assert await store.get_session("session_a") is None


async def test_server_that_came_back_with_less_is_noticed(store: RedisStore, url: str) -> None:
    await append_turns(store, 1, 1)
    go_back = save_database(url)
    await append_turns(store, 2, 2)
    go_back()
    with pytest.raises(StoreError, match="lost part of session session_a"):
        await store.append("session_a", 3, [begin("ann")])
    await append_turns(store, 2, 2)  # the loss was reported; what is left goes on


async def test_loss_is_noticed_although_others_went_on(store: RedisStore, url: str) -> None:
    await append_turns(store, 1, 1)
    go_back = save_database(url)
    await append_turns(store, 2, 2)
    go_back()
    other = await open_redis(url, Retention())
    await append_turns(other, 2, 5)
    await other.close()
    with pytest.raises(StoreError, match="lost part of session session_a"):
        await append_turns(store, 6, 6)
    await append_turns(store, 6, 6)


async def test_session_that_others_deleted_and_created_again_is_no_loss(store: RedisStore, url: str) -> None:
    other = await open_redis(url, Retention())
    await store.append("session_a", 1, whole_turn())
    assert await other.delete_session("session_a", 100) is None
    await other.create_session(session(at=60))
    await other.close()
    assert await store.append("session_a", 1, [begin("ann")]) == [1]


async def test_session_that_others_imported_again_is_no_loss(store: RedisStore, url: str) -> None:
    other = await open_redis(url, Retention())
    await append_turns(store, 1, 1)
    copy = await other.export_session("session_a")
    assert copy is not None
    await other.import_session(copy, read_pages(await other.export_log("session_a")))
    await other.close()
    await append_turns(store, 2, 2)
