"""Sessions in Redis as a whole: their time to live, and what is left of them."""

from collections.abc import AsyncIterator

import pytest

from massmem.core.errors import StoreError
from massmem.core.events import now
from massmem.core.records import SessionFilter, SessionState
from massmem.store.ports import Retention
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import begin, whole_turn

DAY = 86_400_000
LAYOUT = "massmem:layout"


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.new_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    opened = await open_redis(url, Retention())
    await opened.create_session(session())
    yield opened
    await opened.close()


def times_to_live(server: RedisServer, url: str, name: str = "session_a") -> dict[str, int]:
    """Return the milliseconds that the record of the session lives."""
    with server.connect(url) as client:
        return {key: client.pttl(key) for key in client.keys(f"massmem:v3:session:{name}")}


def expire(server: RedisServer, url: str, name: str = "session_a") -> None:
    """Let the time to live of a session pass."""
    with server.connect(url) as client:
        for key in client.keys(f"massmem:v3:session:{name}"):
            assert client.pttl(key) > 0, key
            client.pexpire(key, 0)


async def test_session_expires_whole(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    await store.append("session_a", 1, whole_turn())
    await store.save_state("session_a", SessionState(params={"a": 1}))
    assert await store.acquire_lease("session_a", "me", 60)
    (job, *_) = await queue(store)
    await store.fail_recording(job, "the model is away", now())
    expire(redis_server, url)
    assert await store.get_session("session_a") is None
    assert await everything(store) == []
    assert await store.load_state("session_a") == SessionState()
    assert await store.search_messages("sky") == []
    assert await store.find_sessions(SessionFilter()) == []
    assert await queue(store) == []
    assert await queue(store, "session_a") == []
    assert (await store.count_recordings()).reason is None
    with pytest.raises(StoreError, match="not in the store"):
        await store.append("session_a", 2, [begin("ann")])
    with redis_server.connect(url) as client:
        assert client.keys("*") == [LAYOUT]
    await store.create_session(session())
    assert await store.append("session_a", 1, [begin("ann")]) == [1]


async def test_time_to_live_starts_anew_with_each_use(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    async def lease() -> None:
        assert await store.acquire_lease("session_a", "me", 60)

    await store.append("session_a", 1, whole_turn())
    assert len(times_to_live(redis_server, url)) == 1
    for use in (lambda: store.append("session_a", 2, [begin("ann", at=30)]), lease):
        with redis_server.connect(url) as client:
            for key in client.keys("massmem:v3:session:session_a"):
                client.pexpire(key, 1000)
        await use()
        assert all(DAY - 10_000 < left <= DAY for left in times_to_live(redis_server, url).values())


async def test_recording_does_not_prolong_a_session(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    await store.append("session_a", 1, whole_turn())
    with redis_server.connect(url) as client:
        for key in client.keys("massmem:v3:session:session_a"):
            client.pexpire(key, 10_000)
    await store.finish_recordings(await queue(store))
    assert all(0 < left <= 10_000 for left in times_to_live(redis_server, url).values())


async def test_imported_session_has_the_time_to_live(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    await store.append("session_a", 1, whole_turn())
    copy, log = await store.export_session("session_a"), await store.export_log("session_a")
    assert copy is not None

    async def pages() -> AsyncIterator[Sequence[LogEntry]]:
        yield log

    await store.import_session(copy, pages())
    left = times_to_live(redis_server, url)
    assert len(left) == 1
    assert all(DAY - 10_000 < each <= DAY for each in left.values())


async def test_session_without_limit_lives_for_ever(redis_server: RedisServer, url: str) -> None:
    limited = await open_redis(url, Retention())
    await limited.create_session(session())
    await limited.close()
    store = await open_redis(url, Retention(seconds=None))
    await store.append("session_a", 1, whole_turn())
    assert set(times_to_live(redis_server, url).values()) == {-1}
    assert len(await store.list_sessions()) == 1
    await store.close()


async def test_deleted_session_leaves_nothing(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    for turn in range(1, 31):
        await store.append("session_a", turn, [begin("ann"), done()])
    await store.save_state("session_a", SessionState(params={"a": 1}))
    await store.fail_recording((await queue(store))[0], "the model is away", None)
    assert await store.delete_session("session_a", 10_000) is None
    with redis_server.connect(url) as client:
        assert client.keys("*") == [LAYOUT]


async def test_session_that_the_server_evicted_is_gone_from_the_lists(
    store: RedisStore, redis_server: RedisServer, url: str
) -> None:
    await store.append("session_a", 1, whole_turn())
    await store.create_session(session("session_b"))
    with redis_server.connect(url) as client:
        client.delete("massmem:v3:session:session_a")  # as a server does whose memory is full
    assert await queue(store) == []
    assert [s.session_id for s in await store.list_sessions()] == ["session_b"]
    assert (await store.count_sessions(SessionFilter())).sessions == 1
    await store.create_session(session())
    assert await everything(store) == []
