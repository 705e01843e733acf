"""Which messages Redis keeps of a session that has more than it may keep, and what goes with the others."""

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest

from massmem.core.events import Event
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.store.encoding import encode_event
from massmem.store.lookup import read_transcript, require_session
from massmem.store.ports import Retention, SessionStore
from massmem.store.redis import record as record_module
from massmem.store.redis.record import Record, StoredSession
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import answer, ballot, begin, compression, event, whole_turn


def read_database(server: RedisServer, url: str) -> str:
    """Return all that the database holds, as text."""
    contents: list[str] = []
    with server.connect(url) as client:
        for key in client.keys("*"):
            match client.type(key):
                case "string":
                    contents.append(client.get(key))
                case "hash":
                    contents.append(str(client.hgetall(key)))
                case "zset":
                    contents.append(str(client.zrange(key, 0, -1)))
                case kind:
                    raise AssertionError(kind)
    return "\n".join(contents)


def message_added(text: str, role: str = "user") -> Event:
    return event(0, "message_added", role=role, text=text)


async def append_turns(store: SessionStore, first: int, last: int) -> None:
    """Append turns of two messages in the conversation, and two more that only agents see."""
    for turn in range(first, last + 1):
        batch = [begin("ann", question=f"Question {turn}"), answer(1, "ann", f"Draft {turn}"), ballot(2, "ann", "ann")]
        await store.append("session_a", turn, [*batch, done(5, f"Final {turn}")])


async def test_fifty_messages_are_kept(store: RedisStore, redis_server: RedisServer, url: str) -> None:
    for number in range(60):
        await store.append("session_a", 0, [message_added(f"word{number}")])
    assert [m.content for m in await everything(store)] == [f"word{number}" for number in range(10, 60)]
    record = await store.get_session("session_a")
    assert record is not None
    assert record.message_count == 50
    assert [m.content for m in await store.search_messages("word9 word10", owner=EVERYBODY)] == ["word10"]
    contents = read_database(redis_server, url)
    assert '"word9"' not in contents
    assert '"word10"' in contents


async def test_limit_counts_the_conversation_and_not_what_agents_do(store: RedisStore) -> None:
    await append_turns(store, 1, 30)
    conversation = await store.read_conversation("session_a", None, 100)
    assert len(conversation) == 50
    assert (conversation[-1].content, conversation[0].content) == ("Question 6", "Final 30")
    (listed,) = await store.find_sessions(SessionFilter(owner=EVERYBODY))
    assert (listed.turns, listed.conversation_length, listed.session.message_count) == (30, 50, 100)
    assert (await store.count_sessions(SessionFilter(owner=EVERYBODY))).messages == len(await everything(store)) == 100
    assert await store.count_messages(SessionFilter(owner=EVERYBODY)) == 50


async def test_system_messages_are_kept_and_not_counted(store: RedisStore) -> None:
    await store.append(
        "session_a", 0, [message_added("You are helpful.", "system"), *(message_added(f"m{n}") for n in range(70))]
    )
    messages = await everything(store)
    assert [m.content for m in messages] == ["You are helpful.", *(f"m{n}" for n in range(20, 70))]
    assert (messages[0].kind, messages[0].role) == ("system", "system")
    assert len(await store.read_conversation("session_a", None, 100)) == 50


async def test_system_message_at_the_start_does_not_show_trimmed_turns(store: RedisStore) -> None:
    await store.append("session_a", 0, [message_added("You are helpful.", "system")])
    await append_turns(store, 1, 30)
    assert [t.turn for t in await store.list_turns("session_a", limit=2)] == [6, 7]


async def test_turns_go_whole(store: RedisStore) -> None:
    await append_turns(store, 1, 30)
    messages = await everything(store)
    assert [m.content for m in messages[:2]] == ["Question 6", "Draft 6"]
    assert [t.turn for t in await store.list_turns("session_a")] == list(range(6, 31))
    assert [t.turn for t in await store.list_turns("session_a", after=27, limit=2)] == [28, 29]
    stored = await require_session(store, "session_a")
    turns = [turn async for turn in read_transcript(store, stored)]
    assert [turn.result.turn for turn in turns] == list(range(6, 31))
    assert all(turn.result.is_whole and turn.result.answer for turn in turns)
    assert await store.read_turn_events("session_a", 5) == []
    assert len(await store.read_turn_events("session_a", 6)) == 4
    assert len(await store.get_winner_names(["session_a"])) == 30
    last = await store.get_last_turn("session_a")
    assert last is not None
    assert (last.turn, last.question, last.answer) == (30, "Question 30", "Final 30")
    (listed,) = await store.find_sessions(SessionFilter(owner=EVERYBODY))
    assert listed.session.title == "Question 1"


async def test_last_turn_stays_whole_however_long_it_is(url: str) -> None:
    store = await open_redis(url, Retention(messages=3))
    await store.create_session(session())
    await append_turns(store, 1, 3)
    await store.append("session_a", 4, [begin("ann")])
    for number in range(20):
        replied = event(number, "user_replied", param="p", text=f"Reply {number}")
        await store.append("session_a", 4, [replied])
    assert len(await everything(store)) == 21
    assert [t.turn for t in await store.list_turns("session_a")] == [4]
    await store.append("session_a", 4, [done(99)])
    await append_turns(store, 5, 5)
    assert [t.turn for t in await store.list_turns("session_a")] == [5]
    await store.close()


async def test_messages_added_after_the_last_turn_do_not_push_it_out(store: RedisStore) -> None:
    await append_turns(store, 1, 1)
    for number in range(60):
        await store.append("session_a", 1, [message_added(f"m{number}")])
    contents = [m.content for m in await store.read_conversation("session_a", None, 100)]
    assert contents == [*(f"m{number}" for number in range(59, 11, -1)), "Final 1", "Question 1"]
    assert [t.turn for t in await store.list_turns("session_a")] == [1]


async def test_number_of_a_trimmed_turn_is_not_given_again(store: RedisStore) -> None:
    await append_turns(store, 1, 30)
    before = (await everything(store))[-1].seq
    with pytest.raises(Exception, match="has started this turn"):
        await append_turns(store, 3, 3)
    assert await store.append("session_a", 31, [begin("ann")]) == [before + 1]


async def test_summary_of_what_is_trimmed_stays(store: RedisStore) -> None:
    await append_turns(store, 1, 1)
    await store.append("session_a", 1, [compression(6).model_copy(update={"until": 3})])
    await append_turns(store, 2, 30)
    summary = await store.get_latest_summary("session_a", "ann")
    assert summary is not None
    assert (summary.content, summary.metadata["until"]) == ("Ann counted to ten.", 3)
    assert await store.get_latest_summary("session_a", "bob") is None
    assert summary.id not in [m.id for m in await everything(store)]


async def test_trimmed_messages_can_be_read_until_they_are_recorded(
    store: RedisStore, redis_server: RedisServer, url: str
) -> None:
    await store.append("session_a", 1, whole_turn())
    jobs = await queue(store)
    messages = await store.read_turn_messages("session_a", 1)
    await append_turns(store, 2, 30)
    assert messages[0].id not in [m.id for m in await everything(store)]
    episodes = [job.message_id for job in jobs if job.kind == "episode"]
    to_record = [message for message in messages if message.kind != "tool_call"]
    assert await store.get_messages(episodes) == to_record
    assert await store.read_turn_messages("session_a", 1) == messages
    assert [each.message for each in await store.get_messages_to_record(episodes)] == to_record
    assert await store.search_messages("scatters", owner=EVERYBODY) == []
    assert [job for job in await queue(store) if job.turn == 1] == jobs
    assert await store.find_repeated_answers([messages[-1].id]) == []
    await store.finish_recordings(jobs)
    await append_turns(store, 31, 31)
    assert await store.get_messages(episodes) == []
    assert "scatters" not in read_database(redis_server, url)
    assert [job for job in await queue(store) if job.turn == 1] == []
    assert (await store.count_recordings("session_a")).done == 0
    assert await store.requeue_recordings("session_a", done=True) == len(await queue(store))


async def test_trimmed_messages_that_are_never_recorded_go_after_the_time_to_live(
    redis_server: RedisServer, url: str
) -> None:
    store = await open_redis(url, Retention(seconds=0.6, messages=3))
    await store.create_session(session())
    await append_turns(store, 1, 3)
    assert [job for job in await queue(store) if job.turn == 1]
    assert '"Draft 1"' in read_database(redis_server, url)
    for turn in (4, 5):
        await asyncio.sleep(0.35)
        await append_turns(store, turn, turn)
    assert {job.turn for job in await queue(store)} == {3, 4, 5}
    assert '"Draft 1"' not in read_database(redis_server, url)
    counts = await store.count_recordings()
    assert counts.pending == len(await queue(store))
    assert counts == await store.count_recordings("session_a")
    await store.close()


def count_lines_run(turns: int) -> int:
    """Return how many lines of the record's module run while so many imported turns are appended."""
    lines = 0

    def trace(frame: FrameType, what: str, _argument: object) -> Any:
        nonlocal lines
        lines += what == "line"
        return trace if frame.f_code.co_filename == record_module.__file__ else None

    pairs = [(begin("ann", question=f"Why {n}, of all things?"), done(text=f"So {n}, I think.")) for n in range(turns)]
    batch = [
        encode_event(e.model_copy(update={"imported": True} | ({"turn": number} if e is asked else {})))
        for number, (asked, answered) in enumerate(pairs, 1)
        for e in (asked, answered)
    ]
    record, tracer = Record(StoredSession(session=session())), sys.gettrace()
    sys.settrace(trace)
    try:
        record.append(1, batch)
    finally:
        sys.settrace(tracer)
    return lines


def test_import_of_twice_the_turns_takes_twice_the_work() -> None:
    assert count_lines_run(80) < 2.1 * count_lines_run(40)
