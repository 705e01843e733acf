"""Forks of sessions, in every store."""

import hashlib
import json

import pytest

from massmem.core.errors import InputError, UnknownSessionError
from massmem.core.events import (
    HistoryCleared,
    MemoryChanged,
    NoteAdded,
    ParamProvided,
    TurnCompleted,
    TurnUndone,
    VersionChosen,
)
from massmem.core.records import EVERYBODY, SessionFilter, SessionRecord, SessionState
from massmem.memory.persistent import Selection
from massmem.session.copies import FACTS_STAY, hand_over
from massmem.session.fork import fork_session
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import USAGE, answer, begin, event, other_ends, whole_turn

ID = "session_a"
PICTURE_HASH = hashlib.sha256(b"picture").hexdigest()


@pytest.fixture
async def three(store: SessionStore) -> SessionStore:
    """A session of three turns; the user gave a value in the first and in the last, and files came with it."""
    await store.create_session(session(ID))
    for turn, word in ((1, "lighthouse"), (2, "windmill"), (3, "harbour")):
        events = [begin("ann", question=f"Where is the {word}?"), answer(1, "ann", f"The {word} is here.")]
        values = [ParamProvided(param=word)] if turn != 2 else []
        await store.append(ID, turn, [*events, *values, done(5, f"The {word} is there.")])
    await store.save_state(ID, SessionState(params={"lighthouse": 1, "harbour": 3}, last_result={"turn": 3}))
    await store.save_files(ID, {PICTURE_HASH: b"picture"})
    return store


async def list_conversation(store: SessionStore, session_id: str) -> list[str]:
    return [message.content for message in reversed(await store.read_conversation(session_id, None, 50))]


async def test_fork_has_everything_and_goes_on_by_itself(three: SessionStore):
    fork = await fork_session(three, ID)
    assert await list_conversation(three, fork.session_id) == await list_conversation(three, ID)
    assert await three.get_session(fork.session_id) == fork
    original = await three.get_session(ID)
    assert original is not None
    assert (fork.message_count, fork.last_message) == (original.message_count, "The harbour is there.")
    assert fork.title.endswith("(fork)")
    assert (await three.load_state(fork.session_id)).params == {"lighthouse": 1, "harbour": 3}
    assert await three.load_files(fork.session_id, [PICTURE_HASH]) == {PICTURE_HASH: b"picture"}
    await three.append(fork.session_id, 4, [begin("ann", question="And now?"), done(5, "Now here.")])
    assert len(await list_conversation(three, ID)) == 6
    assert (await list_conversation(three, fork.session_id))[-1] == "Now here."


async def test_fork_ends_with_the_turn_that_was_named(three: SessionStore):
    await three.append(ID, 0, [HistoryCleared()])
    fork = await fork_session(three, ID, 2)
    words = await list_conversation(three, fork.session_id)
    assert words[-1] == fork.last_message == "The windmill is there."
    assert len(words) == 4
    assert fork.message_count == len(await three.read_messages(fork.session_id))
    assert await three.get_latest_summary(fork.session_id, "") is None, "the history was cleared later"
    state = await three.load_state(fork.session_id)
    assert (state.params, state.last_result) == ({"lighthouse": 1}, None)
    last = await three.get_last_turn(fork.session_id)
    assert last is not None
    assert (last.turn, last.winner, last.session_id) == (2, "ann", fork.session_id)
    assert await three.search_messages("harbour", [fork.session_id], owner=EVERYBODY) == []
    assert {m.turn for m in await three.search_messages("windmill", [fork.session_id], owner=EVERYBODY)} == {2}


async def test_fork_shows_the_version_that_was_named(three: SessionStore):
    """Turn 4 stands in the place of turn 2; a fork of either shows that one."""
    again = begin("ann", question="Where is the mill?").model_copy(update={"parent": 1, "withdraws": (2, 3)})
    await three.append(ID, 4, [again, done(5, "The mill is there.")])
    newest, earlier = await fork_session(three, ID), await fork_session(three, ID, 3)
    assert [(await list_conversation(three, f.session_id))[2:] for f in (newest, earlier)] == [
        ["Where is the mill?", "The mill is there."],
        ["Where is the windmill?", "The windmill is there.", "Where is the harbour?", "The harbour is there."],
    ]
    await three.append(ID, 0, [VersionChosen(turn=3, withdrawn=(4,), restored=(2, 3))])
    later = await fork_session(three, ID, 4)
    assert (await list_conversation(three, later.session_id))[-1] == "The mill is there."
    assert (await list_conversation(three, (await fork_session(three, ID)).session_id))[-1] == "The harbour is there."


async def test_fork_ends_with_any_event(three: SessionStore):
    await three.append(ID, 4, [*whole_turn()[:-1], *other_ends()[1:2]])
    await three.append(ID, 0, [NoteAdded(text="I live in Lisbon.")])
    log = await three.export_log(ID)
    for number, entry in enumerate(log, 1):
        fork = await fork_session(three, ID, event=entry.seq)
        copied = await three.export_log(fork.session_id)
        assert [(e.seq, e.turn) for e in copied] == [(e.seq, e.turn) for e in log[:number]]
        assert fork == await three.get_session(fork.session_id)
        assert fork.message_count == len(await three.read_messages(fork.session_id))
        assert set((await three.load_state(fork.session_id)).params) == {
            json.loads(e.payload)["param"] for e in log[:number] if "param_provided" in e.payload
        }
        last = await three.get_last_turn(fork.session_id)
        assert last is not None
        until = await three.read_turn_events(ID, last.turn, entry.seq)
        assert [e.type for e in await three.read_turn_events(fork.session_id, last.turn)] == [e.type for e in until]
        assert last.is_unfinished == (TurnCompleted not in map(type, until))
    assert (fork.status, last.status) == ("failed", "failed")
    for seq in (log[0].seq - 1, log[-1].seq + 1):
        with pytest.raises(InputError, match=f"no event {seq}"):
            await fork_session(three, ID, event=seq)


async def test_fork_has_what_came_of_a_turn_only_if_it_had_come_by_then(three: SessionStore):
    """A summary, an undone turn, one that was given up, the value that the agents wait for."""
    summary = event(6, "context_compressed", agent_id="ann", round=0, why="threshold", before=9, after=5, window=10,
                    kept=0, removed=2, summary="We spoke of towers.", until=4, by="extract", usage=USAGE)  # fmt: skip
    await three.append(ID, 3, [summary, TurnUndone(session_id=ID, turn=3)])
    asked = event(8, "param_requested", agent_id="ann", round=1, param="zip", prompt="Which?", usage=USAGE)
    acts = event(7, "round_started", round=1, agents=["ann"])
    wait = event(9, "turn_waiting", param="zip", prompt="Which?", agents=["ann"], asked=1, shown=False, usage=USAGE)
    await three.append(ID, 4, [begin("ann", question="How far is it?"), acts, asked, wait])
    await three.abandon_turn(ID, 4)
    forks: dict[str, SessionRecord] = {}
    for entry in await three.export_log(ID):
        forks[json.loads(entry.payload)["type"]] = await fork_session(three, ID, event=entry.seq)
    done, compressed, undone, waiting = (
        forks[kind].session_id for kind in ("turn_completed", "context_compressed", "turn_undone", "turn_waiting")
    )
    assert await three.get_latest_summary(done, "ann") is None
    assert await three.get_latest_summary(compressed, "ann") is not None
    turns = [await three.get_last_turn(name) for name in (compressed, undone, waiting)]
    assert [turn.status for turn in turns if turn] == ["completed", "undone", "waiting"]
    assert [forks[kind].status for kind in ("turn_undone", "param_requested", "turn_waiting")] == [
        "completed", "active", "waiting",
    ]  # fmt: skip
    states = [await three.load_state(name) for name in (undone, waiting)]
    assert [state.waiting_for_param for state in states] == [None, "zip"]


async def test_before_the_first_turn_there_are_notes_alone(store: SessionStore):
    await store.create_session(session(ID))
    await store.append(ID, 0, [NoteAdded(text="I live in Lisbon.")])
    await store.append(ID, 1, [begin("ann", question="Where am I?"), done(1, "In Lisbon.")])
    await store.save_state(ID, SessionState(params={}, last_result={"turn": 1}))
    fork = await fork_session(store, ID, event=1)
    assert (fork.title, fork.message_count, fork.status) == ("", 1, "active")
    assert await store.get_last_turn(fork.session_id) is None
    assert (await store.load_state(fork.session_id)).last_result is None
    await store.append(fork.session_id, 1, [begin("ann", question="Who am I?"), done(1, "Ana.")])
    named = await store.get_session(fork.session_id)
    assert named is not None
    assert named.title == "Who am I?"
    assert await list_conversation(store, fork.session_id) == ["I live in Lisbon.", "Who am I?", "Ana."]


async def list_jobs(store: SessionStore, session_id: str) -> set[tuple[int, str, str]]:
    return {(j.seq, j.kind, j.status) for entry in await store.export_log(session_id) for j in entry.recordings}


async def test_whole_turns_of_a_fork_are_not_recorded_again(three: SessionStore):
    fork = await fork_session(three, ID, 2)
    assert fork.origins == ((ID, max(m.seq for m in await three.read_messages(ID) if m.turn == 2)),)
    assert await list_jobs(three, fork.session_id) == set()
    second = await fork_session(three, fork.session_id, 1)
    shared = max(m.seq for m in await three.read_messages(ID) if m.turn == 1)
    assert second.origins == ((ID, shared), (fork.session_id, shared))
    of_first = SessionFilter(fork_of=ID, owner=EVERYBODY)
    assert {one.session.session_id for one in await three.find_sessions(of_first)} == {
        fork.session_id, second.session_id,
    }  # fmt: skip


async def test_a_turn_that_a_fork_goes_on_with_is_its_own_and_facts_are_not_paid_again(three: SessionStore):
    await three.append(ID, 4, [begin("ann", question="Where is the tall old tower?"), *other_ends()[1:2]])
    log = await three.export_log(ID)
    fork = await fork_session(three, ID, event=log[-1].seq)
    assert fork.origins == ((ID, max(m.seq for m in await three.read_messages(ID) if m.turn == 3)),)
    jobs = [job for entry in await three.export_log(fork.session_id) for job in entry.recordings]
    assert {job.turn for job in jobs} == {4}
    assert {job.session_id for job in jobs} == {fork.session_id}
    assert {(j.status, j.reason) for j in jobs if j.kind == "extract"} <= {("done", FACTS_STAY)}


async def test_one_fork_takes_over_what_it_shares_and_the_others_share_that(three: SessionStore):
    question = (await three.read_messages(ID))[0]
    long, short = await fork_session(three, ID), await fork_session(three, ID, 1)
    jobs = [job for entry in await three.export_log(ID) for job in entry.recordings]
    await three.finish_recordings(jobs)
    await three.forget_recordings(Selection(), [question.id])
    change = MemoryChanged(
        action="edit", kind="episode", agent_id="ann", turn=1, sources=(3,), old="a", text="b", by="user"
    )
    await three.append(ID, 0, [change])
    for _ in range(2):  # killed, and called again
        await hand_over(three, ID)
    last = dict(long.origins)[ID]
    assert {job for job in await list_jobs(three, long.session_id) if job[0] <= last} == {
        (job.seq, job.kind, "forgotten" if job.message_id == question.id and job.kind == "episode" else "pending")
        for job in jobs
    }
    assert "memory_changed" in (await three.export_log(long.session_id))[-1].payload, "it holds there, too"
    assert await list_jobs(three, short.session_id) == set()
    shared = await three.get_session(short.session_id)
    assert shared is not None
    assert shared.origins == (*short.origins, (long.session_id, dict(short.origins)[ID]))


async def test_only_an_undone_turn_is_taken_over(three: SessionStore):
    fork = await fork_session(three, ID)
    await hand_over(three, ID, 2)
    turns = {job.turn for entry in await three.export_log(fork.session_id) for job in entry.recordings}
    assert turns == {2}


async def test_a_client_that_resends_its_history_goes_on_with_the_first_session(three: SessionStore):
    await three.update_session(ID, history_hash="1" * 64)
    fork = await fork_session(three, ID)
    listed = await three.find_sessions(SessionFilter(history_hash="1" * 64, owner=EVERYBODY))
    assert fork.history_hash == ""
    assert [one.session.session_id for one in listed] == [ID]


async def test_a_turn_that_has_not_ended_is_left_out(three: SessionStore):
    await three.append(ID, 4, [begin("ann", question="Who comes?")])
    fork = await fork_session(three, ID)
    assert (await list_conversation(three, fork.session_id))[-1] == "The harbour is there."
    with pytest.raises(InputError, match="turn 4 has not ended"):
        await fork_session(three, ID, 4)


async def test_turns_that_cannot_be_the_last(three: SessionStore):
    with pytest.raises(InputError, match="no turn 9"):
        await fork_session(three, ID, 9)
    await three.append(ID, 3, [TurnUndone(session_id=ID, turn=3)])
    with pytest.raises(InputError, match="turn 3 was undone"):
        await fork_session(three, ID, 3)
    with pytest.raises(UnknownSessionError):
        await fork_session(three, "session_b")
    await three.create_session(session("session_c"))
    with pytest.raises(InputError, match="no turn of session_c has ended"):
        await fork_session(three, "session_c")
