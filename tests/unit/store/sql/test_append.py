"""What appending events stores besides them."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from massmem.core.events import Event
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin, event

RESUMED = event(0, "turn_resumed", session_id="session_a", turn=3, question="Why?", agents=("ann",))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(f"sqlite:///{tmp_path}/massmem.db", tmp_path)
    await opened.create_session(session())
    yield opened
    await opened.close()


async def test_response_time_counts_from_the_last_start_or_resumption(store: SessionStore) -> None:
    start = begin("ann").at

    def at(event: Event, seconds: float) -> Event:
        return event.model_copy(update={"at": start + timedelta(seconds=seconds)})

    await store.append("session_a", 1, [at(begin("ann"), 0), at(done(), 2.5)])
    await store.append("session_a", 2, [at(begin("ann"), 10)])
    await store.append("session_a", 2, [at(done(), 11)])
    await store.append("session_a", 3, [at(begin("ann"), 20)])
    await store.append("session_a", 3, [at(RESUMED, 30), at(done(), 34)])
    finals = [message for message in await store.read_messages("session_a") if message.final]
    assert [message.metadata["response_time"] for message in finals] == [2.5, 1.0, 4.0]


async def test_positions_of_episodes_go_on_in_the_next_batch(store: SessionStore) -> None:
    await store.append("session_a", 1, [begin("ann"), answer(1, "ann", "The first answer.")])
    await store.append("session_a", 1, [answer(2, "bob", "The second answer."), done(text="The final answer.")])
    assert [row.position for row in await store.list_due_recordings("episode", 9)] == [0, 1, 2, 3]
