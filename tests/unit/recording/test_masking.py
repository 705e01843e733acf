from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from massmem.core.events import Event
from massmem.core.records import SessionRecord, SessionState
from massmem.recording.masking import is_reply, without_values
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import SECRET, START, answer, begin, event


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    await store.create_session(SessionRecord(session_id="session_a", created_at=START, updated_at=START))
    yield store
    await store.close()


async def test_replies_are_left_out_and_values_are_named(store: SessionStore):
    reply = event(1, "user_replied", param="order_id", text=f"it is {SECRET}")
    events: list[Event] = [begin("ann"), reply, answer(2, "ann", f"{SECRET} is on its way.")]
    await store.append("session_a", 1, events, state=SessionState(params={"order_id": SECRET}))
    messages = await store.read_turn_messages("session_a", 1)
    assert [is_reply(m) for m in messages] == [False, True, False]
    kept = without_values(await store.get_messages_to_record([m.id for m in messages]))
    assert [m.content for m in kept] == ["Why is the sky blue?", "[order_id] is on its way."]


async def test_a_session_without_params_is_as_it_was(store: SessionStore):
    await store.append("session_a", 1, [begin("ann"), answer(2, "ann", "Blue.")])
    messages = await store.read_turn_messages("session_a", 1)
    assert without_values(await store.get_messages_to_record([m.id for m in messages])) == messages
