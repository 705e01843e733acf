"""Events that are made ready before their transaction, and what has changed when it begins."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from massmem.errors import SessionBusyError
from massmem.events import Event
from massmem.store import open_store
from massmem.store.append import Appending
from massmem.store.rows import payload
from massmem.store.sql import SqlStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin
from tests.support.sample_turn import event as make_event

RESUMED = make_event(0, "turn_resumed", session_id="session_a", turn=3, question="Why?", agents=("ann",))


@pytest.fixture
async def store(home: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(f"sqlite:///{home}/found.db", home)
    assert isinstance(opened, SqlStore)
    await opened.create_session(session())
    yield opened
    await opened.close()


def appending(store: SqlStore, turn: int, *events: Event) -> Appending:
    return Appending(store._dialect, "session_a", turn, [payload(event) for event in events])


async def test_what_was_made_ready_is_stored_as_it_is(store: SqlStore) -> None:
    await store.append("session_a", 1, [begin("ann")])
    ready = appending(store, 1, answer(1, "ann", "An answer."), done())
    await store.look(ready.ahead)
    made = ready._made
    assert await store._write(ready.store) == [2, 3]
    assert ready._made is made
    assert [(m.seq, m.kind) for m in await store.messages("session_a")] == [
        (1, "user"),
        (2, "assistant"),
        (3, "assistant"),
    ]


async def test_another_was_faster(store: SqlStore) -> None:
    await store.append("session_a", 1, [begin("ann")])
    ready = appending(store, 1, answer(1, "ann", "The second answer."))
    await store.look(ready.ahead)
    await store.append("session_a", 1, [answer(1, "bob", "The first answer.")])
    assert await store._write(ready.store) == [3]
    assert [m.agent_id for m in await store.messages("session_a", 1)] == ["bob", "ann"]
    positions = [row.position for row in await store.due_recordings("episode", 9)]
    assert positions == [*range(len(positions))]
    begun = appending(store, 2, begin("ann"))
    await store.look(begun.ahead)
    await store.append("session_a", 2, [begin("ann")])
    with pytest.raises(SessionBusyError, match="begun already"):
        await store._write(begun.store)


async def test_how_long_the_user_waited(store: SqlStore) -> None:
    start = begin("ann").at

    def at(event: Event, seconds: float) -> Event:
        return event.model_copy(update={"at": start + timedelta(seconds=seconds)})

    await store.append("session_a", 1, [at(begin("ann"), 0), at(done(), 2.5)])
    await store.append("session_a", 2, [at(begin("ann"), 10)])
    await store.append("session_a", 2, [at(done(), 11)])
    await store.append("session_a", 3, [at(begin("ann"), 20)])
    await store.append("session_a", 3, [at(RESUMED, 30), at(done(), 34)])
    finals = [m for m in await store.messages("session_a") if m.final]
    assert [m.metadata["response_time"] for m in finals] == [2.5, 1.0, 4.0]
