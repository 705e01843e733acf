"""What every SessionStore promises about what stands beside the log: state, leases, copies for other stores."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from massmem.core.errors import SessionBusyError, StoreError
from massmem.core.events import Event, NoteAdded
from massmem.core.messages import clean_text
from massmem.core.records import EVERYBODY, LogEntry, SessionState
from massmem.memory.persistent import Selection
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.sample_turn import SECRET, START, answer, begin, event, other_ends, waiting_turn, whole_turn
from tests.support.stores import NewPlace, Opener


@pytest.fixture
async def other(new_place: NewPlace, tmp_path: Path) -> AsyncIterator[SessionStore]:
    """A second, empty store of the same kind."""
    opened = await open_store(new_place(), tmp_path / "home" / ".massmem")
    yield opened
    await opened.close()


STATE = SessionState(
    params={"order_id": "O-12345", "items": [1, 2.5, None, {"näme": "👩‍👩‍👧"}], "odd": "nul \x00 and \ud800"},
    waiting_for_param="street",
    last_intent_id="order.status",
    plan_execution={"step": 2, "done": ["look up"]},
    last_result={"found": True},
)


async def test_a_state_comes_back_as_it_was_saved(opener: Opener) -> None:
    store = await opener()
    await store.create_session(session())
    assert await store.load_state("session_a") == SessionState()
    assert await store.load_state("session_b") == SessionState()
    await store.save_state("session_a", STATE)
    await store.close()
    again = await opener()
    found = await again.load_state("session_a")
    assert found.updated_at is not None
    assert found.params == STATE.params | {"odd": clean_text("nul \x00 and \ud800")}
    assert found == STATE.model_copy(update={"params": found.params, "updated_at": found.updated_at})
    await again.save_state("session_a", SessionState(params={"order_id": "O-1"}))
    second = await again.load_state("session_a")
    assert second.model_dump(exclude={"updated_at"}) == SessionState(params={"order_id": "O-1"}).model_dump(
        exclude={"updated_at"}
    )
    assert second.updated_at is not None
    assert second.updated_at >= found.updated_at
    with pytest.raises(StoreError, match="session_b"):
        await again.save_state("session_b", STATE)
    await again.close()


def test_values_of_params_are_not_shown() -> None:
    assert "O-12345" not in repr(STATE)
    assert "street" in repr(STATE)


async def test_a_lease_has_one_owner(store: SessionStore) -> None:
    for name in ("a", "b"):
        await store.create_session(session(name))
    assert await store.acquire_lease("a", "one", 60)
    assert await store.acquire_lease("a", "one", 60)
    assert not await store.acquire_lease("a", "two", 60)
    assert await store.get_lease_owner("a") == "one"
    assert await store.acquire_lease("b", "two", 60)
    assert await store.renew_lease("a", "one", 60)
    assert not await store.renew_lease("a", "two", 60)
    await store.release_lease("a", "two")
    assert not await store.acquire_lease("a", "two", 60)
    await store.release_lease("a", "one")
    await store.release_lease("a", "one")
    assert not await store.renew_lease("a", "one", 60)
    assert await store.acquire_lease("a", "two", 60)
    with pytest.raises(StoreError, match="session_c"):
        await store.acquire_lease("session_c", "one", 60)
    assert not await store.renew_lease("session_c", "one", 60)


async def test_a_lease_expires_unless_it_is_renewed(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "one", 0.3)
    assert not await store.acquire_lease("session_a", "two", 0.3)
    assert await store.renew_lease("session_a", "one", 60)
    await asyncio.sleep(0.4)
    assert not await store.acquire_lease("session_a", "two", 60)
    assert await store.renew_lease("session_a", "one", 0.05)
    await asyncio.sleep(0.1)
    assert await store.renew_lease("session_a", "one", 0.05)  # late, and nobody else has come
    await asyncio.sleep(0.1)
    assert not await store.acquire_lease("session_a", "two", 60, if_free=True)
    assert await store.acquire_lease("session_a", "two", 60)
    assert await store.acquire_lease("session_a", "two", 60, if_free=True)
    assert not await store.renew_lease("session_a", "one", 60)
    assert not await store.acquire_lease("session_a", "one", 60)


async def pages(store: SessionStore, size: int = 1000) -> AsyncIterator[Sequence[LogEntry]]:
    after = 0
    while page := await store.export_log("session_a", after, size):
        yield page
        after = page[-1].seq


async def lived_in(store: SessionStore) -> None:
    """A session with everything that events tell, and all that they do not."""
    await store.create_session(session().model_copy(update={"user_id": "u", "memory_group": "g"}))
    thought = answer(31, "ann", "A long answer with reasons.").model_copy(update={"reasoning": "it is so"})
    stopped = event(32, "turn_interrupted", by="user")
    await store.append("session_a", 1, whole_turn())
    await store.append("session_a", 2, [begin("ann", at=30, question="A question that is given up?"), thought, stopped])
    await store.append("session_a", 2, other_ends()[:1])
    await store.append("session_a", 2, [stopped])
    await store.abandon_turn("session_a", 2)
    await store.append("session_a", 3, [begin("ann", at=40, question="And the third question?"), done(45)])
    await store.append("session_a", 3, [event(46, "notice", message="after the end")])
    rows = await store.list_due_recordings("episode", 100)
    await store.finish_recordings(rows[:2])
    await store.fail_recording(rows[2], "the model is away", START)
    await store.fail_recording(rows[3], "never", None)
    await store.save_state("session_a", STATE)
    await store.rename_session("session_a", "My own title")


async def seen(store: SessionStore) -> list[object]:
    """All that can be read of the session."""
    turns: list[list[Event]] = [await store.read_turn_events("session_a", turn) for turn in (1, 2, 3)]
    return [
        await store.get_session("session_a"),
        await everything(store),
        await store.list_turns("session_a"),
        turns,
        await store.load_state("session_a"),
        await queue(store, "session_a"),
        await store.count_recordings("session_a"),
        await store.get_winner_names(["session_a"]),
        [m.content for m in await store.search_messages("question", owner=EVERYBODY)],
        await store.export_session("session_a"),
        [page async for page in pages(store)],
    ]


async def test_only_the_log_that_the_caller_knows_is_replaced(store: SessionStore, other: SessionStore) -> None:
    """A turn that is answered between the comparison of two stores and the copy is not lost."""
    await lived_in(store)
    copy = await store.export_session("session_a")
    assert copy is not None
    await other.create_session(session())
    await other.import_session(copy, pages(store), replaces=0)  # there is a session, without a log
    (last,) = await other.append("session_a", 0, [NoteAdded(text="Written in the gap.")])
    before = await seen(other)
    for known in (0, last - 1, last + 1):
        with pytest.raises(SessionBusyError, match="session_a was written to while it was to be replaced"):
            await other.import_session(copy, pages(store), replaces=known)
        assert await seen(other) == before
    await other.import_session(copy, pages(store), replaces=last)
    assert await seen(other) == await seen(store)


async def test_events_that_no_model_is_to_read_are_stored_so(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann"), answer(1, "ann", "Read this."), done(2)])
    unread = done(5).model_copy(update={"no_facts": True})
    await store.append("session_a", 2, [begin("ann"), answer(4, "ann", "Not this."), unread])
    assert [job.turn for job in await store.list_due_recordings("extract", 9)] == [1]
    jobs = [job for entry in await store.export_log("session_a") for job in entry.recordings if job.kind == "extract"]
    assert [(job.turn, job.status, job.reason) for job in jobs] == [
        (1, "pending", None),
        (2, "done", "imported without facts"),
    ]
    assert await store.requeue_recordings(done=True) > 0
    assert [job.turn for job in await store.list_due_recordings("extract", 9)] == [1, 2]


@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_a_session_moves_whole_to_another_store(store: SessionStore, other: SessionStore, size: int) -> None:
    await lived_in(store)
    copy = await store.export_session("session_a")
    assert copy is not None
    assert copy.abandoned == (2,)
    before = await seen(store)
    for _ in range(2):  # again over itself
        await other.import_session(copy, pages(store, size))
        assert await seen(other) == before
    assert await seen(store) == before
    later = [begin("ann", at=60, question="What comes after the move?"), answer(61, "ann", "The next number.")]
    assert await other.append("session_a", 4, later) == await store.append("session_a", 4, later)
    assert await queue(other) == await queue(store)


async def test_a_page_of_a_moved_log_may_be_empty(store: SessionStore, other: SessionStore) -> None:
    async def with_empty_pages() -> AsyncIterator[Sequence[LogEntry]]:
        async for page in pages(store, 5):
            yield []
            yield page

    await lived_in(store)
    copy = await store.export_session("session_a")
    assert copy is not None
    await other.import_session(copy, with_empty_pages())
    assert await seen(other) == await seen(store)


async def test_the_log_is_exported_with_deltas_in_pages(store: SessionStore) -> None:
    assert await store.export_session("session_a") is None
    assert await store.export_log("session_a") == []
    await lived_in(store)
    whole = await store.export_log("session_a")
    assert [entry for page in [p async for p in pages(store, 3)] for entry in page] == whole
    assert [entry.seq for entry in whole] == sorted({entry.seq for entry in whole})
    assert "agent_delta" in "".join(entry.payload for entry in whole)
    exported = [row for entry in whole for row in entry.recordings]
    counts = await store.count_recordings("session_a")
    assert len(exported) == counts.pending + counts.done + counts.failed
    assert all(row.seq == entry.seq for entry in whole for row in entry.recordings)


class Unplugged(Exception):
    pass


async def test_a_move_that_breaks_off_leaves_nothing_half_done(store: SessionStore, other: SessionStore) -> None:
    async def broken() -> AsyncIterator[Sequence[LogEntry]]:
        async for page in pages(store, 4):
            yield page
            if page[-1].seq > 8:
                raise Unplugged

    await lived_in(store)
    copy = await store.export_session("session_a")
    assert copy is not None
    with pytest.raises(Unplugged):
        await other.import_session(copy, broken())
    assert await other.get_session("session_a") is None
    assert await other.list_sessions() == []
    await other.create_session(session())
    await other.append("session_a", 1, [begin("ann", question="What was here before"), done(2)])
    before = await seen(other)
    with pytest.raises(Unplugged):
        await other.import_session(copy, broken())
    assert await seen(other) == before
    await other.import_session(copy, pages(store))
    assert await seen(other) == await seen(store)


async def test_a_state_is_stored_with_the_events_that_it_follows_from(opener: Opener) -> None:
    store = await opener()
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")], state=STATE)
    with pytest.raises(StoreError):
        await store.append("session_b", 1, [begin("ann")], state=STATE)
    await store.close()
    again = await opener()
    assert (await again.load_state("session_a")).params["order_id"] == "O-12345"
    assert (await again.load_state("session_a")).updated_at is not None
    await again.append("session_a", 1, [answer(1, "ann", "A")])
    assert (await again.load_state("session_a")).waiting_for_param == "street", "events alone leave it as it is"
    await again.close()


async def test_a_batch_that_is_refused_leaves_the_state_as_it_was(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")], state=SessionState(params={"a": 1}))
    with pytest.raises(StoreError):
        await store.append("session_a", 1, [begin("ann")], state=STATE)
    assert (await store.load_state("session_a")).params == {"a": 1}


async def test_a_turn_that_waits_is_unfinished_and_in_the_conversation(store: SessionStore) -> None:
    await store.create_session(session())
    events = waiting_turn()
    given_up = next(i for i, each in enumerate(events) if each.type == "param_cleared")
    await store.append("session_a", 1, events[:given_up])
    turn = await store.get_last_turn("session_a")
    assert turn is not None and turn.status == "waiting"
    said = [m.content for m in reversed(await store.read_conversation("session_a", None, 10))]
    assert said == ["Why is the sky blue?", "What is the order_id?", SECRET, "What is the zip?"]
    found = await store.get_session("session_a")
    assert found is not None and found.status == "waiting"
    await store.append("session_a", 1, events[given_up : given_up + 2])
    turn = await store.get_last_turn("session_a")
    assert turn is not None and turn.status == "abandoned"
    assert await queue(store, "session_a") is not None


async def test_counts_say_what_an_index_should_hold(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    assert (await store.read_recording_marks())["session_a"] == (0, 0, 0)
    rows = await store.list_due_recordings("episode", 100)
    await store.finish_recordings(rows[:3])
    await store.finish_recordings(rows[3:4], "nothing to remember")
    await store.forget_recordings(Selection(), [rows[0].message_id])
    await store.forget_fact("session_a", "ann", [rows[1].message_id], [1, 2])
    await store.forget_fact("session_a", "ann", [rows[1].message_id], [3])
    number, last, forgotten = (await store.read_recording_marks())["session_a"]
    assert (number, last) == (2, rows[2].seq)
    assert forgotten >= 3
