"""Sessions in Redis: changed whole and once, noticed when lost, living for a time; other layouts are refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import redis

from massmem.core.errors import StoreError, StoreVersionError
from massmem.core.events import now
from massmem.core.records import EVERYBODY, LogEntry, SessionFilter, SessionState
from massmem.store.ports import Retention, SessionStore
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.redis_proxy import RedisProxy, proxy_redis
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import answer, begin, whole_turn

DAY = 86_400_000
LAYOUT = "massmem:layout"
CLIENT: Any = redis.Redis
"""Without its annotations, which do not say what it replies with."""


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
    assert await store.search_messages("sky", owner=EVERYBODY) == []
    assert await store.find_sessions(SessionFilter(owner=EVERYBODY)) == []
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
    assert (await store.count_sessions(SessionFilter(owner=EVERYBODY))).sessions == 1
    await store.create_session(session())
    assert await everything(store) == []


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
    with CLIENT.from_url(url) as client:
        saved = {key: client.dump(key) for key in client.keys("*")}

    def restore() -> None:
        with CLIENT.from_url(url) as client:
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
    assert [m.content for m in await store.search_messages("whole", owner=EVERYBODY)] == ["A whole answer."]
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


@pytest.mark.parametrize(
    ("index", "key"),
    [("massmem:all:created", "massmem:session:session_a"), ("massmem:v2:used", "massmem:v2:session:session_a")],
    ids=["layout 1", "layout 2"],
)
async def test_sessions_of_an_earlier_layout_are_refused_while_they_live(
    redis_server: RedisServer, index: str, key: str
) -> None:
    url = redis_server.new_url()
    with redis_server.connect(url) as client:
        client.zadd(index, {"session_a": 1})
        client.hset(key, mapping={"record": "{}"})
        before = sorted(client.keys("*"))
        with pytest.raises(StoreVersionError, match="1 sessions of an earlier massmem") as error:
            await open_redis(url, Retention())
        assert "massmem store migrate --to sqlite:///moved.db" in error.value.hint
        assert "massmem store restore moved.db" in error.value.hint
        assert sorted(client.keys("*")) == before
        client.delete(key)  # as its time to live does
        await (await open_redis(url, Retention())).close()
        assert client.keys("*") == ["massmem:layout"]


async def test_newer_layout_is_refused_and_left_alone(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    with redis_server.connect(url) as client:
        client.set("massmem:layout", "4")
        with pytest.raises(StoreVersionError, match="newer massmem"):
            await open_redis(url, Retention())
        assert client.keys("*") == ["massmem:layout"]
