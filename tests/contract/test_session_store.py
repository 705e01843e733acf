"""What every SessionStore promises, over every implementation."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from massmem.core.errors import SessionBusyError, SessionExistsError, StoreError
from massmem.core.events import AgentDelta, Event, now
from massmem.core.messages import clean_text
from massmem.core.records import (
    COMMAND_LINE_USER,
    EVERYBODY,
    MessageRecord,
    Owner,
    RecordingJob,
    SessionRecord,
    SessionState,
)
from massmem.memory.persistent import USER, Selection
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import START, answer, ballot, begin, event, give_names, other_ends, whole_turn
from tests.support.stores import NewPlace, Opener


def session(name: str = "session_a", at: float = 0) -> SessionRecord:
    created = START + timedelta(seconds=at)
    return SessionRecord(
        session_id=name, model="m", config_path="team.yaml", description="d", created_at=created, updated_at=created
    )


def done(at: float = 5, text: str = "So it is.") -> Event:
    return event(
        at, "turn_completed", winner="ann", answer=text, presented=True, usage={"prompt": 1, "completion": 1}
    )  # fmt: skip


async def everything(store: SessionStore, name: str = "session_a", page: int = 1000) -> list[MessageRecord]:
    found: list[MessageRecord] = []
    while page_of := await store.read_messages(name, after=found[-1].seq if found else 0, limit=page):
        found += page_of
    return found


async def test_a_session_comes_back_as_it_was_stored(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.get_session("session_a") == session()
    assert await store.get_session("session_b") is None
    assert await store.get_session("") is None


async def test_an_id_is_taken_once(store: SessionStore) -> None:
    await store.create_session(session())
    with pytest.raises(SessionExistsError, match="session_a"):
        await store.create_session(session(at=1))
    assert await store.get_session("session_a") == session()


async def test_sessions_are_listed_newest_first(store: SessionStore) -> None:
    for name, at in (("b", 2), ("a", 1), ("d", 3), ("c", 3)):
        await store.create_session(session(name, at))
    assert [s.session_id for s in await store.list_sessions()] == ["d", "c", "b", "a"]


async def test_events_come_back_in_order_without_deltas(store: SessionStore) -> None:
    await store.create_session(session())
    log = [*whole_turn(), *other_ends()]
    first = await store.append("session_a", 1, log[:7])
    rest = await store.append("session_a", 1, log[7:])
    seqs = first + rest
    assert seqs == sorted(set(seqs))
    assert len(seqs) == len(log)
    kept = [e for e in log if not isinstance(e, AgentDelta)]
    assert len(kept) < len(log)
    assert await store.read_turn_events("session_a", 1) == kept
    assert await store.read_turn_events("session_a", 2) == []


async def test_nothing_is_appended_for_an_unknown_session(store: SessionStore) -> None:
    with pytest.raises(StoreError, match="session_a"):
        await store.append("session_a", 1, [begin("ann")])
    await store.create_session(session())
    assert await everything(store) == []
    assert await store.append("session_a", 1, []) == []


async def test_a_whole_turn_in_the_tables(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    turn = await store.get_last_turn("session_a")
    assert turn is not None
    assert (turn.turn, turn.status, turn.winner, turn.seed) == (1, "completed", "ann", 7)
    assert turn.question == "Why is the sky blue?"
    assert turn.answer == "The sky is blue because of Rayleigh scattering."
    assert (turn.started_at, turn.ended_at) == (START, START + timedelta(seconds=5))
    found = await everything(store)
    assert [(m.kind, m.agent_id) for m in found] == [
        ("user", None),
        ("assistant", "ann"),
        ("assistant", "bob"),
        ("tool_call", "bob"),
        ("assistant", "ann"),
        ("tool_call", "ann"),
        ("tool_call", "bob"),
        ("assistant", "ann"),
    ]
    assert [m.final for m in found] == [False] * 7 + [True]
    assert "names the cause" in found[6].content
    assert len({m.id for m in found}) == len(found)
    record = await store.get_session("session_a")
    assert record is not None
    assert (record.title, record.status, record.message_count) == ("Why is the sky blue?", "completed", 8)
    assert record.last_message == "The sky is blue because of Rayleigh scattering."
    assert (record.created_at, record.updated_at) == (START, START + timedelta(seconds=5))


async def test_the_title_is_the_first_question(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann", question="First\n  line " + "x" * 200), done()])
    await store.append("session_a", 2, [begin("ann", question="Second")])
    record = await store.get_session("session_a")
    assert record is not None
    assert record.title == "First line " + "x" * 69
    assert (record.last_message, record.status) == ("Second", "active")


async def test_conversation_pages_are_whole_and_newest_first(store: SessionStore) -> None:
    await store.create_session(session())
    for turn in range(1, 6):
        batch = [begin("ann", question=f"q{turn}"), answer(1, "ann", "draft"), ballot(2, "ann", "ann")]
        await store.append("session_a", turn, [*batch, done(text=f"a{turn}")])
    pages: list[str] = []
    before: int | None = None
    while page := await store.read_conversation("session_a", before, 3):
        assert len(page) <= 3
        pages += [m.content for m in page]
        before = page[-1].seq
    assert pages == [f"{who}{turn}" for turn in range(5, 0, -1) for who in "aq"]


async def test_messages_can_be_paged_also_within_one_event(store: SessionStore) -> None:
    await store.create_session(session())
    thought = answer(1, "ann", "A").model_copy(update={"reasoning": "because"})
    voted = ballot(2, "ann", "ann").model_copy(update={"reasoning": "mine is best"})
    await store.append("session_a", 1, [begin("ann"), thought, voted, done()])
    one_by_one = await everything(store, page=1)
    assert [m.kind for m in one_by_one] == ["user", "reasoning", "assistant", "reasoning", "tool_call", "assistant"]
    assert one_by_one == await everything(store)


async def test_answer_of_an_agent_that_fails_later_stays(store: SessionStore) -> None:
    await store.create_session(session())
    failed: dict[str, object] = {
        "round": 1,
        "step": "answer",
        "error": "StreamInterrupted",
        "message": "cut",
        "usage": {},
    }
    said = event(1, "agent_failed", agent_id="ann", partial="The sky is", **failed)
    silent = event(1, "agent_failed", agent_id="bob", **failed)
    await store.append("session_a", 1, [begin("ann", "bob"), said, silent])
    (_, message) = await everything(store)
    assert (message.content, message.agent_id, message.final) == ("The sky is", "ann", False)
    assert message.metadata["partial"] is True


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (event(9, "turn_interrupted", by="user"), "interrupted"),
        (event(9, "turn_failed", message="all failed", exit_code=3, usage={}), "failed"),
    ],
)
async def test_an_unfinished_turn_can_be_resumed_or_given_up(store: SessionStore, last: Event, status: str) -> None:
    async def turn_and_session() -> tuple[str | None, str | None]:
        turn, record = await store.get_last_turn("session_a"), await store.get_session("session_a")
        return turn and turn.status, record and record.status

    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")])
    assert await turn_and_session() == ("running", "active")
    await store.append("session_a", 1, [last])
    assert await turn_and_session() == (status, status)
    await store.append("session_a", 1, other_ends()[:1])
    assert await turn_and_session() == ("running", "active")
    await store.append("session_a", 1, [last])
    await store.abandon_turn("session_a", 1)
    turn = await store.get_last_turn("session_a")
    assert turn is not None
    assert turn.status == "abandoned"
    assert turn.answer is None
    assert len(await everything(store)) == 1


async def test_a_completed_turn_is_not_given_up(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann"), done()])
    await store.abandon_turn("session_a", 1)
    turn = await store.get_last_turn("session_a")
    assert turn is not None
    assert turn.status == "completed"


async def test_last_turn_is_the_last(store: SessionStore) -> None:
    await store.create_session(session())
    assert await store.get_last_turn("session_a") is None
    for number in (1, 2, 10):
        await store.append("session_a", number, [begin("ann", question=f"q{number}")])
    turn = await store.get_last_turn("session_a")
    assert turn is not None
    assert (turn.turn, turn.question, turn.answer) == (10, "q10", None)


async def test_a_turn_is_begun_once(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")])
    before = await everything(store), await store.get_session("session_a")
    with pytest.raises(SessionBusyError):
        await store.append("session_a", 1, [begin("ann", question="again")])
    assert (await everything(store), await store.get_session("session_a")) == before
    assert len(await store.read_turn_events("session_a", 1)) == 1


async def test_only_one_of_several_processes_begins_a_turn(store: SessionStore, opener: Opener) -> None:
    await store.create_session(session())
    others = [await opener() for _ in range(3)]
    for turn in range(1, 6):
        begins = (
            other.append("session_a", turn, [begin("ann", question=f"of {number}"), done()])
            for number, other in enumerate((store, *others))
        )
        results = await asyncio.gather(*begins, return_exceptions=True)
        assert sum(isinstance(result, SessionBusyError) for result in results) == 3
        assert [isinstance(result, list) for result in results].count(True) == 1
        assert [event.type for event in await store.read_turn_events("session_a", turn)] == [
            "turn_started",
            "turn_completed",
        ]
    assert [turn.turn for turn in await store.list_turns("session_a")] == [1, 2, 3, 4, 5]
    for other in others:
        await other.close()


async def test_sessions_do_not_see_each_other(store: SessionStore) -> None:
    for name in ("a", "b"):
        await store.create_session(session(name))
        await store.append(name, 1, [begin("ann", question=f"of {name}"), done(text=f"for {name}")])
    for name in ("a", "b"):
        assert {m.content for m in await everything(store, name)} == {f"of {name}", f"for {name}"}
        assert [m.content for m in await store.read_conversation(name, None, 9)] == [f"for {name}", f"of {name}"]


ODD = [
    "\ud800",
    "nul \x00 byte",
    "back\\u0000slash",
    "\u202ertl",
    "e\u0301 é",
    "👩‍👩‍👧",
    "\x1b[31m",
    "%s :p ?",
    "'; --",
    "\udfff\x00",
]


@pytest.mark.parametrize("text", ODD, ids=ascii)
async def test_odd_text_is_kept_or_replaced_and_never_breaks_a_session(store: SessionStore, text: str) -> None:
    await store.create_session(session().model_copy(update={"description": text}))
    await store.append("session_a", 1, [begin("ann", question=text), answer(1, "ann", text), done(text=text)])
    assert [m.content for m in await everything(store)] == [clean_text(text)] * 3
    stored = await store.read_turn_events("session_a", 1)
    assert [e.type for e in stored] == ["turn_started", "answer_submitted", "turn_completed"]
    assert await store.get_session(text) is None


async def test_many_tasks_append_at_once(store: SessionStore) -> None:
    names = ("a", "b")
    for name in names:
        await store.create_session(session(name))
    seqs = await asyncio.gather(*(store.append(name, 1, whole_turn()[1:4]) for _ in range(25) for name in names))
    for i, _ in enumerate(names):
        of_one = sorted(seq for batch in seqs[i::2] for seq in batch)
        assert of_one == list(range(1, 76))


async def test_a_cancelled_append_is_whole_or_absent_and_the_store_goes_on(store: SessionStore) -> None:
    await store.create_session(session())
    for turn in range(1, 13):
        task = asyncio.create_task(store.append("session_a", turn, [begin("ann"), answer(1, "ann", "A"), done()]))
        await asyncio.sleep(0.0005 * turn)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.append("session_a", 99, [begin("ann")])
    for turn in range(1, 13):
        assert len(await store.read_turn_events("session_a", turn)) in (0, 3)
    assert len(await store.read_turn_events("session_a", 99)) == 1


async def test_events_of_several_turns_are_read_at_once(store: SessionStore) -> None:
    await store.create_session(session())
    seqs = [seq for turn in (1, 2, 3) for seq in await store.append("session_a", turn, whole_turn())]
    await store.append("session_a", 0, [event(9, "notice", message="The index is full.")])
    logged = await store.read_events_of_turns("session_a", [3, 1, 7])
    assert logged == {3: await store.read_turn_events("session_a", 3), 1: logged[3], 7: []}
    assert len(logged[1]) == len([e for e in whole_turn() if e.type != "agent_delta"])
    until = await store.read_events_of_turns("session_a", (1, 2), until=seqs[len(whole_turn())])
    assert until == {1: logged[1], 2: logged[1][:1]}
    assert await store.read_events_of_turns("session_b", [1]) == {1: []}
    assert await store.read_events_of_turns("session_a", []) == {}


async def test_it_is_all_there_after_reopening(opener: Opener) -> None:
    first = await opener()
    await first.create_session(session())
    await first.append("session_a", 1, whole_turn())
    before = [
        await everything(first),
        await first.get_last_turn("session_a"),
        await first.read_turn_events("session_a", 1),
    ]
    second = await opener()
    assert [
        await everything(second), await second.get_last_turn("session_a"), await second.read_turn_events("session_a", 1)
    ] == before  # fmt: skip
    await first.close()
    await second.append("session_a", 2, [begin("ann")])
    await second.close()


KINDS = ("episode", "complete", "extract")


async def queue(store: SessionStore, name: str | None = None) -> list[RecordingJob]:
    return [row for kind in KINDS for row in await store.list_due_recordings(kind, 1000, name)]


async def test_a_turn_queues_what_is_to_be_remembered(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    said = {m.id: m for m in await everything(store)}
    episodes = await store.list_due_recordings("episode", 100)
    assert [(e.agent_id, said[e.message_id].kind) for e in episodes] == [
        (None, "user"),
        ("ann", "assistant"),
        ("bob", "assistant"),
        ("ann", "assistant"),
        ("ann", "assistant"),
    ]
    assert [e.position for e in episodes] == list(range(5))
    assert {(e.status, e.attempts, e.turn) for e in episodes} == {("pending", 0, 1)}
    (complete,) = await store.list_due_recordings("complete", 100)
    assert (complete.turn, complete.agent_id) == (1, "ann")
    restart = next(
        e.seq
        for e in await store.export_log("session_a")
        if '"round_started"' in e.payload and '"round":3' in e.payload
    )
    extracts = await store.list_due_recordings("extract", 100)
    assert [(e.agent_id, e.since, e.seq) for e in extracts] == [
        ("ann", 0, restart), ("bob", 0, restart), ("ann", restart, complete.seq), ("bob", restart, complete.seq)
    ]  # fmt: skip
    assert await store.list_due_recordings("episode", 3) == episodes[:3]


async def test_short_remarks_and_repeated_answers_are_not_queued(store: SessionStore) -> None:
    await store.create_session(session())
    shown_as_it_is = done(text="A whole long answer.").model_copy(update={"presented": False})
    thought = answer(1, "ann", "A whole long answer.").model_copy(update={"reasoning": "long reasoning, hidden"})
    voted = ballot(2, "ann", "ann", reason="short")
    await store.append("session_a", 1, [begin("ann", question="  why?   \n"), thought, voted, shown_as_it_is])
    episodes = await store.list_due_recordings("episode", 100)
    messages = await store.get_messages([e.message_id for e in episodes])
    assert [m.content for m in messages] == ["A whole long answer."]
    assert [m.final for m in messages] == [False]
    await store.append("session_a", 2, [begin("ann", at=30, question="A long question?")])
    assert [e.position for e in await store.list_due_recordings("episode", 100)] == [0, 1]


async def test_an_agent_without_memory_is_not_queued(store: SessionStore) -> None:
    await store.create_session(session())
    hidden = [e.model_copy(update={"remember": False}) for e in (answer(1, "ann", "The code is 4711."), done())]
    events = [begin("ann", "bob"), hidden[0], answer(2, "bob", "I do not know it."), hidden[1]]
    await store.append("session_a", 1, events)
    assert {(row.kind, row.agent_id) for row in await queue(store)} == {
        ("episode", None), ("episode", "bob"), ("extract", "bob")
    }  # fmt: skip


async def test_a_turn_that_stops_and_goes_on_is_extracted_once(store: SessionStore) -> None:
    stopped, resumed = event(9, "turn_interrupted", by="user"), other_ends()[0]
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann", "bob"), answer(1, "ann", "The first answer."), stopped])
    (first,) = await store.list_due_recordings("extract", 9)
    await store.append("session_a", 1, [resumed, stopped, resumed, answer(10, "bob", "The second answer."), done(20)])
    _, *later = await store.list_due_recordings("extract", 9)
    assert (first.agent_id, first.since) == ("ann", 0)
    assert [(row.agent_id, row.since) for row in later] == [("ann", first.seq), ("bob", first.seq)]
    assert len({row.seq for row in later}) == 1
    assert (await store.read_turn_messages("session_a", 1))[0].content == "Why is the sky blue?"


async def test_rows_are_done_retried_or_given_up(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    rows = await store.list_due_recordings("episode", 100)
    await store.finish_recordings(rows[:1])
    await store.fail_recording(rows[1], "the model is away", START)
    await store.fail_recording(rows[2], "later", now() + timedelta(hours=1))
    await store.fail_recording(rows[3], "never \x00 again", None)
    due = await store.list_due_recordings("episode", 100)
    assert [row.seq for row in due] == [row.seq for row in (rows[1], *rows[4:])]
    assert (due[0].attempts, due[0].reason) == (1, "the model is away")
    counts = await store.count_recordings("session_a")
    assert (counts.done, counts.failed) == (1, 1)
    assert counts.pending == len(await queue(store)) + 1
    assert counts.reason in ("the model is away", "later", "never \ufffd again")
    assert (await store.count_recordings("session_b")).pending == 0
    assert await store.requeue_recordings("session_b", done=True) == 0
    assert await store.requeue_recordings("session_a", done=False) == counts.pending + 1
    again = await store.list_due_recordings("episode", 100)
    assert [row.seq for row in again] == [row.seq for row in rows[1:]]
    assert {(row.attempts, row.reason, row.next_attempt_at) for row in again} == {(0, None, None)}
    await store.requeue_recordings(done=True)
    assert await store.list_due_recordings("episode", 100) == rows


async def test_forgotten_message_is_never_recorded_again(store: SessionStore) -> None:
    for name in ("a", "b"):
        await store.create_session(session(name))
        await store.append(name, 1, whole_turn())
    before = await queue(store, "a")
    bob = [row for row in before if row.agent_id == "bob"]
    await store.forget_recordings(Selection(session_id="a", agent_id="bob"))
    await store.finish_recordings(bob)  # by a worker that had taken them before
    assert await queue(store, "a") == [row for row in before if row.agent_id != "bob"]
    await store.requeue_recordings("a", done=True)
    assert await queue(store, "a") == [row for row in before if row.agent_id != "bob"]
    question = before[0]
    await store.forget_recordings(Selection(), [question.message_id])
    await store.forget_recordings(Selection(session_id="a", turn=1, agent_id="ann", kind="fact"))
    left = await queue(store, "a")
    assert [row.kind for row in left] == ["episode"] * 3 + ["complete"]
    await store.forget_recordings(Selection(agent_id=USER, session_ids=("b",)))
    assert await queue(store, "a") == left
    await store.requeue_recordings("a", done=True)
    assert await queue(store, "a") == left, "what another session says is another owner's"
    assert None not in [row.agent_id for row in await queue(store, "b")]
    await store.append("a", 2, [begin("ann", at=30, question="One more question")])
    assert (await queue(store, "a"))[-2].position == 5
    rows = await store.get_messages_to_record([message.id for message in await everything(store, "a")])
    forgotten = {row.message.id for row in rows if row.is_forgotten}
    assert forgotten == {question.message_id, *(row.message_id for row in bob if row.kind == "episode")}


async def test_a_row_is_claimed_by_one_alone(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append(
        "session_a", 1, [begin("ann", "bob"), answer(1, "ann", "Blue light."), answer(2, "bob", "Rayleigh."), done()]
    )
    ann, bob = await store.list_due_recordings("extract", 9)
    later = now() + timedelta(minutes=5)
    assert [await store.claim_recording(ann, later) for _ in range(3)] == [True, False, False]
    assert await store.list_due_recordings("extract", 9) == [bob]
    assert sum(await asyncio.gather(*(store.claim_recording(bob, later) for _ in range(8)))) == 1
    await store.extend_claim(ann, None)
    assert await store.list_due_recordings("extract", 9) == [ann]
    # Whoever works on it goes on working.
    assert await store.claim_recording(ann, now() + timedelta(seconds=0.01))
    await store.extend_claim(ann, later)
    assert await store.list_due_recordings("extract", 9) == []
    assert not await store.claim_recording(ann, later)
    await store.extend_claim(ann, None)
    # Whoever claimed it has died, and the time is over.
    assert await store.claim_recording(ann, now() - timedelta(seconds=1))
    assert [row.seq for row in await store.list_due_recordings("extract", 9)] == [ann.seq]
    await store.forget_recordings(Selection(session_id="session_a", agent_id="ann"))
    assert not await store.claim_recording(ann, later)
    await store.finish_recordings([bob])
    for row in (ann, bob):
        await store.extend_claim(row, now() - timedelta(seconds=1))
    assert await store.list_due_recordings("extract", 9) == [], "what was done or forgotten stays so"
    assert (await store.count_recordings()).done == 1


async def test_recording_in_a_memory_that_does_not_last_waits_for_one_that_does(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    rows = await store.list_due_recordings("episode", 3)
    await store.finish_recordings(rows[:2], "for one run only", lasting=False)
    assert rows[0] not in await store.list_due_recordings("episode", 99)
    counts = await store.count_recordings()
    assert (counts.done, counts.pending, counts.reason) == (0, 10, "for one run only")
    await store.fail_recording(rows[2], "later", now() + timedelta(hours=1))
    assert await store.release_held_recordings() == 2
    assert (await store.list_due_recordings("episode", 99))[:2] == rows[:2]
    assert rows[2].seq not in [row.seq for row in await store.list_due_recordings("episode", 99)]
    assert await store.release_held_recordings() == 0


async def test_one_fact_is_forgotten_and_its_turn_is_still_read(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    await store.append("session_a", 2, [begin("ann", "bob", at=30), answer(31, "ann", "One more answer."), done(32)])
    said = [m.id for m in await everything(store) if m.agent_id == "ann"]
    await store.forget_fact("session_a", "ann", said[:2], (7, 2**32 - 1))
    for _ in range(2):
        await store.forget_fact("session_a", "ann", said[:1], (8,))
    await store.finish_recordings(await store.list_due_recordings("extract", 99))
    await store.requeue_recordings(done=True)
    found = {(row.agent_id, row.turn): row.forgotten for row in await store.list_due_recordings("extract", 99)}
    assert found == {("ann", 1): ((7, 2**32 - 1), (8,)), ("bob", 1): (), ("ann", 2): ()}
    assert (await store.count_recordings()).forgotten_facts == 2
    await store.forget_fact("session_a", "ann", [], (9,))
    await store.forget_fact("session_a", "ann", ["unknown"], (9,))


async def test_answer_that_a_final_answer_repeats_is_named(store: SessionStore) -> None:
    await store.create_session(session())
    as_it_is = done(9, text="Rayleigh scattering.").model_copy(update={"presented": False})
    answers = [answer(1, "ann", "Rayleigh scattering."), answer(2, "bob", "Blue light."), answer(3, "eve", "It is.")]
    await store.append("session_a", 1, [begin("ann", "bob", "eve"), *answers, as_it_is])
    await store.append("session_a", 2, [begin("ann", at=20), answer(21, "ann", "It is."), done(22, text="It is!")])
    said = await everything(store)
    ids = {(m.turn, m.agent_id, m.final): m.id for m in said}
    finals = [m.id for m in said if m.final or m.kind == "user"]
    assert await store.find_repeated_answers(finals) == [ids[1, "ann", False]]
    assert await store.find_repeated_answers([ids[1, "bob", False], ids[2, "ann", True]]) == []
    assert await store.find_repeated_answers([]) == []


async def test_winners_and_groups(store: SessionStore) -> None:
    await store.create_session(session("a").model_copy(update={"memory_group": "project"}))
    await store.create_session(session("b"))
    await store.append("a", 1, whole_turn())
    await store.append("a", 2, [begin("ann")])
    assert await store.get_winner_names(["a", "b", "c"]) == {("a", 1): "ann"}
    assert await store.get_winner_names([]) == {}


async def test_winners_are_listed_under_their_names(store: SessionStore) -> None:
    await store.create_session(session("a"))
    await store.append("a", 1, give_names(whole_turn(), {"ann": "Technical Specialist"}))
    assert await store.get_winner_names(["a"]) == {("a", 1): "Technical Specialist"}
    final, question = await store.read_conversation("a", None, 2)
    assert (final.agent_id, final.agent_name, question.agent_name) == ("ann", "Technical Specialist", "")
    last = await store.get_last_turn("a")
    assert last is not None
    assert last.winner == "ann"


async def test_recording_comes_with_the_winner_group_and_params_of_its_turn(store: SessionStore) -> None:
    await store.create_session(session("a").model_copy(update={"memory_group": "team", "project": "/srv/alpha"}))
    await store.create_session(session("b"))
    await store.append("a", 1, whole_turn())
    await store.append("a", 2, [begin("ann")], state=SessionState(params={"order_id": "A-17"}))
    await store.append("b", 1, [begin("ann")])
    said = [*await everything(store, "a"), *await everything(store, "b")]
    found = await store.get_messages_to_record([m.id for m in reversed(said)])
    assert [each.message for each in found if each.message.session_id == "a"] == said[:-1]
    assert [each.message for each in found if each.message.session_id == "b"] == said[-1:]
    assert {(each.message.session_id, each.message.turn, each.winner, each.group, *each.params) for each in found} == {
        ("a", 1, "ann", "team", "order_id"),
        ("a", 2, None, "team", "order_id"),
        ("b", 1, None, ""),
    }
    assert {(one.message.session_id, one.project) for one in found} == {("a", "/srv/alpha"), ("b", "")}
    copy = await store.export_session("a")
    assert copy is not None
    assert copy.session.project == "/srv/alpha"
    assert "A-17" not in repr(found)
    assert await store.get_messages_to_record([]) == await store.get_messages_to_record(["unknown"]) == []


async def test_messages_are_found_by_their_words(store: SessionStore) -> None:
    for name in ("a", "b"):
        await store.create_session(session(name))
    thought = answer(1, "ann", "Rust ownership").model_copy(update={"reasoning": "hidden lifetimes"})
    await store.append("a", 1, [begin("ann", question="What is ownership in Rust?"), thought, done(text="Borrowing.")])
    await store.append("b", 1, [begin("ann", question="Café ownership, by law")])
    assert [m.content for m in await store.search_messages("rust ownership", owner=EVERYBODY)][:2] == [
        "Rust ownership",
        "What is ownership in Rust?",
    ]
    assert [m.content for m in await store.search_messages("OWNERSHIP", ["b"], owner=EVERYBODY)] == [
        "Café ownership, by law"
    ]
    assert [m.content for m in await store.search_messages("cafe", owner=EVERYBODY)] == ["Café ownership, by law"]
    assert len(await store.search_messages("ownership", limit=1, owner=EVERYBODY)) == 1
    for nothing in ("lifetimes", "", "?!", "missing", "ownership -rust"):
        hits = await store.search_messages(nothing, ["c"] if nothing.startswith("own") else None, owner=EVERYBODY)
        assert hits == [], nothing


async def test_messages_are_found_by_words_of_scripts_without_spaces(store: SessionStore) -> None:
    texts = (
        "昨日は猫と一緒に公園を散歩しました。",
        "我们明天去北京开会,讨论AI的问题。",
        "วันนี้ฉันไปตลาดกับเพื่อน",
        "The 猫 sat near the TV, 100%.",
    )
    for number, text in enumerate(texts):
        await store.create_session(session(str(number)))
        await store.append(str(number), 1, [begin("ann", question=text)])

    async def search(query: str, within: list[str] | None = None, limit: int = 20) -> list[str]:
        return [m.session_id for m in await store.search_messages(query, within, limit, owner=EVERYBODY)]

    for query, expected in {
        "散歩": "0",
        "北京": "1",
        "AI的": "1",
        "ตลาด": "2",
        "tv": "3",
        "公園 散歩 北京": "01",
    }.items():
        assert await search(query) == [*expected], query
    assert sorted(await search("猫")) == ["0", "3"]
    assert await search("猫 tv") == ["3", "0"]  # what has both comes first
    assert await search("猫", ["0"]) == ["0"]
    assert len(await search("猫", limit=1)) == 1
    assert await search("東京") == []
    (own,) = await store.search_messages("散歩", owner=COMMAND_LINE_USER)
    assert own.session_id == "0"
    assert await store.search_messages("散歩", owner=Owner("bea")) == []


@pytest.mark.parametrize(
    "query", ['"', "a NEAR b", "content:x AND", "* OR *", "x" * 10_000, "{a b}", "\x00\ud800^a", "-"]
)
async def test_any_query_is_words(store: SessionStore, query: str) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")])
    assert isinstance(await store.search_messages(query, owner=EVERYBODY), list)


@settings(max_examples=5)
@given(cuts=st.sets(st.integers(1, len(whole_turn()) - 1)))
def test_the_tables_do_not_depend_on_how_events_are_batched(
    new_place: NewPlace, tmp_path: Path, cuts: set[int]
) -> None:
    async def tables() -> tuple[object, ...]:
        store = await open_store(new_place(), tmp_path / ".massmem")
        await store.create_session(session())
        log, edges = whole_turn(), [0, *sorted(cuts), len(whole_turn())]
        for start, end in pairwise(edges):
            await store.append("session_a", 1, log[start:end])
        seen = (
            await everything(store),
            await store.get_last_turn("session_a"),
            await store.get_session("session_a"),
            await queue(store),
        )
        await store.close()
        return seen

    async def at_once() -> tuple[object, ...]:
        cuts.clear()
        return await tables()

    assert asyncio.run(tables()) == asyncio.run(at_once())


async def test_attempts_are_added_to_and_taken_from_pending_rows(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    rows = await store.list_due_recordings("episode", 100)
    await store.finish_recordings(rows[:1])
    await store.add_attempts(rows[:3], 1_000)
    await store.add_attempts(rows[1:2], -1_000)
    await store.add_attempts([], 1)
    due = await store.list_due_recordings("episode", 100)
    assert [row.attempts for row in due[:3]] == [0, 1_000, 0]


async def test_several_turns_in_one_batch_are_as_if_they_came_one_by_one(store: SessionStore) -> None:
    turns = [
        [begin("ann", question=f"Why {n}?").model_copy(update={"turn": n, "imported": True}), done(text=f"So {n}.")]
        for n in (1, 2, 3)
    ]
    for name in ("session_a", "session_b"):
        await store.create_session(session(name))
    for number, log in enumerate(turns, start=1):
        await store.append("session_a", number, log)
    await store.append("session_b", 1, [event for log in turns for event in log])
    assert await list_rows(store, "session_a") == await list_rows(store, "session_b")
    for n in (1, 2, 3):
        events = [await store.read_turn_events(name, n) for name in ("session_a", "session_b")]
        assert events[0] == events[1] == turns[n - 1]


async def list_rows(store: SessionStore, name: str) -> tuple[object, ...]:
    """Return what a session has in the tables, without its id."""
    messages = [(m.turn, m.seq, m.kind, m.content) for m in await everything(store, name)]
    turns = [turn.model_copy(update={"session_id": ""}) for turn in await store.list_turns(name)]
    jobs = sorted((job.kind, job.turn, job.seq, job.position or 0) for job in await queue(store, name))
    return messages, turns, jobs
