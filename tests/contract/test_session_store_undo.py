"""What every SessionStore shows of turns that were taken back, of cleared histories and of notes."""

import pytest

from massmem.core.events import Event, HistoryCleared, MemoryChanged, NoteAdded, TurnUndone
from massmem.core.records import EVERYBODY, SessionState
from massmem.memory.persistent import Selection
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, queue, session
from tests.support.sample_turn import answer, begin, compression

ID = "session_a"


def summary(text: str, until: int) -> Event:
    return compression(9, agent="ann").model_copy(update={"summary": text, "until": until})


@pytest.fixture
async def two(store: SessionStore) -> SessionStore:
    """Two turns, each with a summary of what was before it."""
    await store.create_session(session(ID))
    for turn, word in ((1, "lighthouse"), (2, "windmill")):
        told = [begin("ann", question=f"Where is the {word}?"), answer(1, "ann", f"The {word} is here.")]
        await store.append(ID, turn, [*told, done(5, f"The {word} is there."), summary(f"of the {word}", 1)])
    return store


async def list_contents(store: SessionStore) -> list[str]:
    return [message.content for message in await store.read_conversation(ID, None, 50)]


async def test_an_undone_turn_is_in_the_log_and_nowhere_else(two: SessionStore) -> None:
    assert {m.turn for m in await two.search_messages("windmill lighthouse", owner=EVERYBODY)} == {1, 2}
    await two.append(ID, 2, [TurnUndone(session_id=ID, turn=2)])
    assert await list_contents(two) == ["The lighthouse is there.", "Where is the lighthouse?"]
    assert {m.turn for m in await two.search_messages("windmill lighthouse", owner=EVERYBODY)} == {1}
    assert await two.search_messages("windmill", [ID], owner=EVERYBODY) == []
    assert await two.get_winner_names([ID]) == {(ID, 1): "ann"}
    last = await two.get_last_turn(ID)
    assert last is not None
    assert (last.turn, last.status, last.answer) == (2, "undone", "The windmill is there.")
    assert "The windmill is there." in [m.content for m in await two.read_messages(ID)]
    assert [type(e).__name__ for e in await two.read_turn_events(ID, 2)][-1] == "TurnUndone"


async def test_an_undone_turn_queues_that_its_memories_go(two: SessionStore) -> None:
    await two.finish_recordings(await two.list_due_recordings("complete", 10))
    [seq] = await two.append(ID, 2, [TurnUndone(session_id=ID, turn=2)])
    [job] = await two.list_due_recordings("complete", 10)
    assert (job.seq, job.turn, job.agent_id) == (seq, 2, None)


async def test_undone_matches_leave_room_for_others(two: SessionStore) -> None:
    question = "Where is the windmill lighthouse windmill lighthouse?"
    await two.append(ID, 3, [begin("ann", question=question), done(6, "windmill lighthouse windmill")])
    await two.append(ID, 3, [TurnUndone(session_id=ID, turn=3)])
    assert len(await two.search_messages("windmill lighthouse", [ID], 2, owner=EVERYBODY)) == 2


async def test_a_summary_of_an_undone_turn_gives_way_to_the_one_before(two: SessionStore) -> None:
    found = await two.get_latest_summary(ID, "ann")
    assert found is not None
    assert found.content == "of the windmill"
    await two.append(ID, 2, [TurnUndone(session_id=ID, turn=2)])
    found = await two.get_latest_summary(ID, "ann")
    assert found is not None
    assert found.content == "of the lighthouse"
    await two.append(ID, 1, [TurnUndone(session_id=ID, turn=1)])
    assert await two.get_latest_summary(ID, "ann") is None
    assert await list_contents(two) == []


async def test_the_state_can_be_set_back_with_the_turn(two: SessionStore) -> None:
    await two.append(ID, 2, [TurnUndone(session_id=ID, turn=2)], state=SessionState(params={"order": 7}))
    assert (await two.load_state(ID)).params == {"order": 7}


async def test_a_cleared_history_is_a_summary_for_everybody(two: SessionStore) -> None:
    assert await two.get_latest_summary(ID, "") is None
    (seq,) = await two.append(ID, 0, [HistoryCleared()])
    found = await two.get_latest_summary(ID, "")
    assert found is not None
    assert (found.seq, found.metadata) == (seq, {"cleared": True, "until": seq})
    assert len(await list_contents(two)) == 4, "what is shown after it is for the reader to decide"
    await two.append(ID, 2, [TurnUndone(session_id=ID, turn=2)])
    assert await two.get_latest_summary(ID, "") == found


async def test_a_note_is_what_the_user_said_and_is_queued(store: SessionStore) -> None:
    await store.create_session(session(ID))
    await store.append(ID, 0, [NoteAdded(text="Use tabs.")])
    assert [message.content for message in await store.read_turn_messages(ID, 0)] == ["Use tabs."]
    (note,) = await store.read_messages(ID)
    assert (note.kind, note.agent_id, note.turn, note.metadata) == ("user", None, 0, {"note": True})
    assert [(r.kind, r.agent_id, r.turn, r.position) for r in await queue(store)] == [("episode", None, 0, 0)]
    assert [m.content for m in await store.search_messages("tabs", owner=EVERYBODY)] == ["Use tabs."]


async def test_change_of_a_memory_is_a_message_and_queued_as_of_its_turn(two: SessionStore) -> None:
    (question,) = [m for m in await two.read_messages(ID) if m.content == "Where is the lighthouse?"]
    change = MemoryChanged(
        action="edit", kind="episode", agent_id="user", turn=1, sources=(question.seq,), old=question.content,
        text="Where is the beacon?", by="user",
    )  # fmt: skip
    await two.append(ID, 0, [change])
    message = (await two.read_messages(ID))[-1]
    assert (message.kind, message.turn, message.content) == ("system", 0, "Where is the beacon?")
    noted = {"action": "edit", "kind": "episode", "agent_id": "user", "turn": 1, "by": "user"}
    assert message.metadata["memory_change"] == noted | {"old": question.content, "message_ids": [question.id]}
    assert len(await list_contents(two)) == 4
    assert await two.search_messages("beacon", owner=EVERYBODY) == []
    found = await two.get_latest_summary(ID, "ann")
    assert found is not None
    assert found.content == "of the windmill"
    (job,) = [job for job in await queue(two) if job.message_id == message.id]
    assert (job.kind, job.agent_id, job.turn, job.message_id, job.status) == ("episode", None, 1, message.id, "pending")
    await two.forget_recordings(Selection(ID, turn=1))
    pending = {job.message_id for job in await queue(two) if job.status == "pending"}
    assert message.id not in pending, "it goes with the memories of its turn"
