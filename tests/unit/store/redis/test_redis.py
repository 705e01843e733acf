"""What is peculiar to the store on Redis: what it keeps and for how long, and that nothing is done by halves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from massmem.errors import StoreError, StoreUnavailable
from massmem.events import Event, now
from massmem.records import SessionFilter, SessionState
from massmem.store.base import Retention, SessionStore
from massmem.store.reading import exchanges
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.redis_proxy import broken_link
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import answer, begin, compressed, event, whole_turn

SHORT = Retention(seconds=0.3)


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.new_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    opened = await open_redis(url, Retention())
    await opened.create_session(session())
    yield opened
    await opened.close()


def keys(url: str) -> set[str]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return set(client.keys("*"))


def everything_in(url: str) -> str:
    """All that the database holds, as text."""
    found: list[str] = []
    with redis.Redis.from_url(url, decode_responses=True) as client:
        for key in client.keys("*"):
            match client.type(key):
                case "string":
                    found.append(client.get(key))
                case "hash":
                    found.append(str(client.hgetall(key)))
                case "zset":
                    found.append(str(client.zrange(key, 0, -1)))
                case kind:
                    raise AssertionError(kind)
    return "\n".join(found)


def added(text: str, role: str = "user") -> Event:
    return event(0, "message_added", role=role, text=text)


async def turns(store: SessionStore, first: int, last: int) -> None:
    """Each of three messages."""
    for turn in range(first, last + 1):
        batch = [begin("ann", question=f"Question {turn}"), answer(1, "ann", f"Draft {turn}")]
        await store.append("session_a", turn, [*batch, done(5, f"Final {turn}")])


async def test_fifty_messages_are_kept(store: RedisStore, url: str) -> None:
    for number in range(60):
        await store.append("session_a", 0, [added(f"word{number}")])
    assert [m.content for m in await everything(store)] == [f"word{number}" for number in range(10, 60)]
    record = await store.get_session("session_a")
    assert record is not None
    assert record.message_count == 50
    assert [m.content for m in await store.search_text("word9 word10")] == ["word10"]
    assert "word9'" not in everything_in(url)
    assert "word10'" in everything_in(url)


async def test_system_messages_are_kept(store: RedisStore) -> None:
    await store.append("session_a", 0, [added("You are helpful.", "system"), *(added(f"m{n}") for n in range(70))])
    found = await everything(store)
    assert [m.content for m in found] == ["You are helpful.", *(f"m{n}" for n in range(21, 70))]
    assert (found[0].kind, found[0].role) == ("system", "system")
    assert len(await store.conversation("session_a", None, 100)) == 49


async def test_turns_go_whole(store: RedisStore) -> None:
    await turns(store, 1, 30)
    found = await everything(store)
    assert len(found) == 48
    assert [m.content for m in found[:3]] == ["Question 15", "Draft 15", "Final 15"]
    assert [t.turn for t in await store.turns("session_a")] == list(range(15, 31))
    assert [t.turn for t in await store.turns("session_a", after=27, limit=2)] == [28, 29]
    assert [each.record.turn async for each in exchanges(store, "session_a")] == list(range(15, 31))
    assert await store.turn_events("session_a", 14) == []
    assert len(await store.turn_events("session_a", 15)) == 3
    assert len(await store.winners(["session_a"])) == 30
    last = await store.last_turn("session_a")
    assert last is not None
    assert (last.turn, last.question, last.answer) == (30, "Question 30", "Final 30")
    (listed,) = await store.find_sessions(SessionFilter())
    assert (listed.turns, listed.session.message_count, listed.session.title) == (30, 48, "Question 1")


async def test_the_last_turn_stays_whole_however_long_it_is(store: RedisStore) -> None:
    await turns(store, 1, 3)
    await store.append("session_a", 4, [begin("ann")])
    for number in range(70):
        await store.append("session_a", 4, [answer(number, "ann", f"A{number}", number=number + 1)])
    assert len(await everything(store)) == 71
    assert len(await store.turn_events("session_a", 4)) == 71
    assert [t.turn for t in await store.turns("session_a")] == [4]
    await store.append("session_a", 4, [done(99)])
    await turns(store, 5, 5)
    assert [t.turn for t in await store.turns("session_a")] == [5]


async def test_the_summary_of_what_is_trimmed_stays(store: RedisStore) -> None:
    await turns(store, 1, 1)
    await store.append("session_a", 1, [compressed(6).model_copy(update={"until": 3})])
    await turns(store, 2, 30)
    summary = await store.latest_summary("session_a", "ann")
    assert summary is not None
    assert (summary.content, summary.metadata["until"]) == ("Ann counted to ten.", 3)
    assert await store.latest_summary("session_a", "bob") is None
    assert summary.id not in [m.id for m in await everything(store)]


async def test_numbers_go_on_where_they_were(store: RedisStore) -> None:
    await turns(store, 1, 30)
    last = (await everything(store))[-1].seq
    assert await store.append("session_a", 31, [begin("ann")]) == [last + 1]


async def test_what_is_still_to_be_recorded_can_be_read_after_it_was_trimmed(store: RedisStore, url: str) -> None:
    await store.append("session_a", 1, whole_turn())
    rows = await queue(store)
    said = await store.turn_messages("session_a", 1)
    await turns(store, 2, 30)
    assert said[0].id not in [m.id for m in await everything(store)]
    episodes = [row.message_id for row in rows if row.kind == "episode"]
    assert await store.messages_by_id(episodes) == said
    assert await store.turn_messages("session_a", 1) == said
    assert await store.search_text("scatters") == []
    assert [row for row in await queue(store) if row.turn == 1] == rows
    assert await store.repeated([said[-1].id]) == []
    await store.finish_recordings(rows)
    await turns(store, 31, 31)
    assert await store.messages_by_id(episodes) == []
    assert "scatters" not in everything_in(url)
    assert [row for row in await queue(store) if row.turn == 1] == []
    assert (await store.recording_counts("session_a")).done == 0
    assert await store.requeue("session_a", done=True) == len(await queue(store))


async def test_what_is_never_recorded_is_given_up_when_its_time_has_passed(url: str) -> None:
    store = await open_redis(url, Retention(seconds=0.6, messages=5))
    await store.create_session(session())
    await turns(store, 1, 3)
    assert [row for row in await queue(store) if row.turn == 1]
    assert "Question 1'" not in everything_in(url)
    assert '"Question 1"' in everything_in(url)
    for turn in (4, 5):
        await asyncio.sleep(0.4)
        await turns(store, turn, turn)
    assert {row.turn for row in await queue(store)} == {3, 4, 5}
    assert '"Question 2"' not in everything_in(url)
    counts = await store.recording_counts()
    assert counts.pending == len(await queue(store))
    assert counts == await store.recording_counts("session_a")
    await store.close()


async def test_a_session_expires_whole(url: str) -> None:
    store = await open_redis(url, SHORT)
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    await store.save_state("session_a", SessionState(params={"a": 1}))
    assert await store.acquire_lease("session_a", "me", 60)
    row = (await queue(store))[0]
    await store.fail_recording(row, "the model is away", now())
    await asyncio.sleep(0.4)
    assert await store.get_session("session_a") is None
    assert await everything(store) == []
    assert await store.state("session_a") == SessionState()
    assert await store.search_text("sky") == []
    assert await store.find_sessions(SessionFilter()) == []
    assert await queue(store) == []
    assert (await store.recording_counts()).reason is None
    with pytest.raises(StoreError, match="not in the store"):
        await store.append("session_a", 2, [begin("ann")])
    assert keys(url) == set()
    await store.create_session(session())
    assert await store.append("session_a", 1, [begin("ann")]) == [1]
    await store.close()


async def test_a_session_that_is_used_lives_on(url: str) -> None:
    store = await open_redis(url, Retention(seconds=1, messages=9))
    await store.create_session(session())
    for turn in range(1, 6):
        await asyncio.sleep(0.3)
        await turns(store, turn, turn)
    assert len(await everything(store)) == 9
    await store.finish_recordings((await queue(store))[-1:])
    with redis.Redis.from_url(url, decode_responses=True) as client:
        left = {key: client.pttl(key) for key in client.keys("massmem:*:session_a")}
        assert "massmem:aside:session_a" in left
        assert all(0 < each <= 1000 for key, each in left.items() if "recordings" not in key), left
        assert 0 < client.pttl(client.keys("massmem:id:*")[0]) <= 1000
    await store.close()


async def test_a_session_may_live_for_ever(url: str) -> None:
    store = await open_redis(url, Retention(seconds=None))
    await store.create_session(session())
    await turns(store, 1, 1)
    with redis.Redis.from_url(url, decode_responses=True) as client:
        assert {client.pttl(key) for key in client.keys("*")} == {-1}
    assert len(await store.list_sessions()) == 1
    await store.close()


async def test_a_deleted_session_leaves_nothing(store: RedisStore, url: str) -> None:
    await turns(store, 1, 30)
    await store.save_state("session_a", SessionState(params={"a": 1}))
    await store.fail_recording((await queue(store))[0], "the model is away", None)
    assert await store.delete_session("session_a", 10_000) is None
    assert keys(url) == set()


async def test_two_processes_never_interleave(store: RedisStore, url: str) -> None:
    other = await open_redis(url, Retention())
    await store.append("session_a", 1, [begin("ann")])
    batches = [[answer(n, "ann", f"{n}.{i}") for i in range(3)] for n in range(40)]
    seqs = await asyncio.gather(*((store, other)[n % 2].append("session_a", 1, b) for n, b in enumerate(batches)))
    assert all(batch == list(range(batch[0], batch[0] + 3)) for batch in seqs)
    assert sorted(seq for batch in seqs for seq in batch) == list(range(2, 122))
    assert len(await store.turn_events("session_a", 1)) == 121
    await other.close()


async def test_a_lost_reply_stores_nothing_twice(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    async with broken_link(redis_server.port) as link:
        through = await open_redis(url.replace(str(redis_server.port), str(link.port)), Retention())
        await through.append("session_a", 1, [begin("ann")])
        link.lose = 1
        assert await through.append("session_a", 1, [answer(1, "ann", "once")]) == [2]
        link.lose = 1
        await through.create_session(session("session_b"))
        assert link.lost == 2
        copy = await through.export_session("session_a")
        assert copy is not None
        link.lose = 1
        await through.import_session(copy, _pages(await store.export_log("session_a")))
        assert link.lost == 3
        await through.close()
    assert [m.content for m in await everything(store)] == ["Why is the sky blue?", "once"]
    assert [m.content for m in await store.search_text("once")] == ["once"]


async def _pages(log: list[object]) -> AsyncIterator[list[object]]:
    for entry in log:
        yield [entry]


async def test_a_server_that_came_back_with_less_is_noticed(store: RedisStore, url: str) -> None:
    await turns(store, 1, 1)
    with redis.Redis.from_url(url) as client:
        older = {key: client.dump(key) for key in client.keys("*")}
        await turns(store, 2, 2)
        client.flushdb()
        for key, value in older.items():
            client.restore(key, 0, value)
    with pytest.raises(StoreError, match="lost part of session session_a"):
        await store.append("session_a", 3, [begin("ann")])
    await turns(store, 2, 2)  # it was told; what is left goes on


async def test_a_loss_is_noticed_although_others_went_on(redis_server: RedisServer, url: str) -> None:
    async with broken_link(redis_server.port) as link:
        store = await open_redis(url.replace(str(redis_server.port), str(link.port)), Retention())
        await store.create_session(session())
        await turns(store, 1, 1)
        with redis.Redis.from_url(url) as client:
            older = {key: client.dump(key) for key in client.keys("*")}
            await store.append("session_a", 2, [begin("ann", question="What is lost?"), done(2, "This.")])
            client.flushdb()
            for key, value in older.items():
                client.restore(key, 0, value)
        assert await store.search_text("lost") == []
        other = await open_redis(url, Retention())
        await turns(other, 2, 5)
        await other.close()
        link.lose = 1
        await store.search_text("nothing")  # the connection breaks, as with a restart
        with pytest.raises(StoreError, match="lost part of session session_a"):
            await store.append("session_a", 6, [begin("ann")])
        await turns(store, 6, 6)
        link.lose = 1
        await store.search_text("nothing")
        await turns(store, 7, 7)
        await store.close()


async def test_an_index_that_lost_its_session_is_put_right(store: RedisStore, url: str) -> None:
    await turns(store, 1, 2)
    await store.create_session(session("session_b"))
    with redis.Redis.from_url(url) as client:
        client.delete("massmem:session:session_a")  # as a server does whose memory is full
    assert [s.session_id for s in await store.list_sessions()] == ["session_b"]
    assert await queue(store) == []
    assert (await store.session_counts(SessionFilter())).sessions == 1
    assert not [key for key in keys(url) if key.endswith(":session_a") and ":all:" not in key]


async def test_words_of_several_parts_stand_side_by_side(store: RedisStore) -> None:
    await store.append("session_a", 0, [added("the max_size of it"), added("max is the size"), added("max-size")])
    assert {m.content for m in await store.search_text("max_size")} == {"the max_size of it", "max-size"}
    assert len(await store.search_text("max size")) == 3


async def test_a_server_that_is_away_is_told_and_found_again(tmp_path: Path) -> None:
    server = RedisServer("always")
    store = await open_redis(server.new_url(), Retention())
    await store.create_session(session())
    await turns(store, 1, 1)
    server.kill()
    with pytest.raises(StoreUnavailable, match=f"redis://127.0.0.1:{server.port}/0 cannot be reached"):
        await store.append("session_a", 2, [begin("ann")])
    with pytest.raises(StoreUnavailable):
        await open_redis(f"redis://127.0.0.1:{server.port}/0", Retention())
    server.start()
    await turns(store, 2, 2)
    assert len(await everything(store)) == 6
    await store.close()
    server.remove()


async def test_a_full_server_takes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    server = RedisServer("everysec", "--maxmemory", "4mb")
    store = await open_redis(server.new_url(), Retention(messages=10_000))
    assert store.info.once == ()
    await store.create_session(session())
    stored = 0
    with pytest.raises(StoreError, match="out of memory") as error:
        while True:
            await store.append("session_a", 0, [added(f"{stored} " + "long " * 20_000)])
            stored += 1
    assert "maxmemory" in error.value.hint
    assert len(await everything(store)) == stored
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", "100mb")
    await store.append("session_a", 0, [added("short")])
    assert len(await everything(store)) == stored + 1
    await store.close()
    server.remove()


async def test_a_unix_socket(redis_server: RedisServer) -> None:
    store = await open_redis(f"unix://{redis_server.socket}?db=3999", Retention())
    await store.create_session(session())
    assert await store.get_session("session_a") == session()
    await store.close()
