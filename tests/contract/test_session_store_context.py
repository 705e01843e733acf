"""What every SessionStore keeps of compressions and of what tools gave back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from massmem.core.events import Event
from massmem.core.records import EVERYBODY, SessionRecord
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import START, begin, compression, event, tool_call, tool_result
from tests.support.stores import NewPlace

ID = "session_a"


@pytest.fixture
async def store(new_place: NewPlace, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(new_place(), tmp_path / "home" / ".massmem")
    await opened.create_session(SessionRecord(session_id=ID, created_at=START, updated_at=START))
    yield opened
    await opened.close()


def summary(at: float, agent: str, text: str, until: int | None) -> Event:
    return compression(at, agent=agent).model_copy(update={"summary": text, "until": until})


async def test_the_newest_summary_of_an_agent_is_found(store: SessionStore) -> None:
    assert await store.get_latest_summary(ID, "ann") is None
    seqs = await store.append(ID, 1, [begin("ann"), summary(1, "ann", "first", 1), summary(2, "ann", "second", 2)])
    await store.append(ID, 1, [summary(3, "bob", "of bob", 1), summary(4, "ann", "of a step alone", None)])
    found = await store.get_latest_summary(ID, "ann")
    assert found is not None
    assert (found.content, found.seq, found.kind, found.agent_id) == ("second", seqs[2], "injection", "ann")
    assert (found.metadata["summary"], found.metadata["until"]) == (True, 2)
    assert await store.get_latest_summary("session_b", "ann") is None


async def test_a_summary_is_no_part_of_the_conversation(store: SessionStore) -> None:
    await store.append(ID, 1, [begin("ann"), summary(1, "ann", "so far", 1)])
    assert [m.kind for m in await store.read_conversation(ID, None, 10)] == ["user"]


async def test_tool_result_is_stored_searchable_and_remembered(store: SessionStore) -> None:
    await store.append(ID, 1, [begin("ann")])
    result = event(1, "tool_returned", agent_id="ann", round=1, name="read", content="The pump stands in hall H-412.")
    (seq,) = await store.append(ID, 1, [result])
    (found,) = await store.search_messages("pump", [ID], owner=EVERYBODY)
    assert (found.seq, found.kind, found.metadata) == (seq, "tool_result", {"tool": "read"})
    assert seq in {row.seq for row in await store.list_due_recordings("episode", 10, ID)}


async def test_a_call_and_its_result_are_kept_and_remembered_only_where_that_is_wanted(store: SessionStore) -> None:
    await store.append(ID, 1, [begin("ann")])
    call = tool_call(1).model_copy(update={"reasoning": "Read it first."})
    result = tool_result(2).model_copy(update={"call_id": "call_r1b1n1", "recorded": False})
    seqs = await store.append(ID, 1, [call, result])
    messages = [(m.seq, m.kind, m.metadata.get("call")) for m in await store.read_turn_messages(ID, 1)]
    assert messages[1:] == [
        (seqs[0] - 1, "reasoning", None),
        (seqs[0], "tool_call", "call_r1b1n1"),
        (seqs[1], "tool_result", "call_r1b1n1"),
    ]
    assert (await store.read_turn_events(ID, 1))[1:] == [call, result]
    assert not {*seqs} & {row.seq for row in await store.list_due_recordings("episode", 10, ID)}
