import asyncio
import json
import re
import sqlite3
import stat
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from massmem.config.load import load_config
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, MissingKeyError, SessionBusyError, StoreError, UnknownSessionError
from massmem.core.events import (
    AgentDelta,
    AgentFailed,
    AnswerSubmitted,
    BallotCast,
    Event,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    decode_event,
)
from massmem.core.records import COMMAND_LINE_USER, Owner
from massmem.session.registry import Registry
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.store import open_store
from tests.support.sessions import ask, collect, team
from tests.support.turns import check_order, only

VOTE = {"vote_for": "answer of b", "reason": "clear"}
SCRIPTS: dict[str, dict[str, Any]] = {
    name: {"answer": f"answer of {name}", "vote": VOTE, "present": ["final one", "final two", "final three"]}
    for name in ("a", "b", "c")
}


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


def read_events(folder: Path) -> list[Event]:
    """All events in the database, read past the store."""
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        return [decode_event(row[0]) for row in db.execute("SELECT payload FROM events ORDER BY session_id, seq")]


def end_of(events: list[Event]) -> TurnCompleted:
    assert isinstance(events[-1], TurnCompleted), events[-1]
    return events[-1]


@pytest.mark.parametrize("by_http", [False, True])
async def test_session_whose_first_question_cannot_be_stored_is_removed(folder: Path, by_http: bool):
    """As on a nearly full disk: there is room for the session, and none for the question."""
    opened = await Team.open(team(SCRIPTS), home=folder)
    await opened.start()
    session = await (
        Session.get_or_create(opened, "owned", Owner("alice"))
        if by_http
        else Session.find(opened, owner=COMMAND_LINE_USER)
    )
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        refuse = "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        db.execute(f"CREATE TRIGGER no_room BEFORE INSERT ON events {refuse}")
        with pytest.raises(StoreError):
            await collect(session.ask("why?"))
        assert db.execute("SELECT session_id FROM chat_sessions").fetchall() == []
        assert Registry(folder).read_entries() == []
        db.execute("DROP TRIGGER no_room")
    assert isinstance((await collect(session.ask("why?")))[-1], TurnCompleted)
    await session.close()
    await opened.close()


async def test_a_turn_is_answered_stored_and_listed(folder: Path):
    session_id, events = await ask(team(SCRIPTS), folder, "why?")
    check_order(events)
    assert (end_of(events).winner, end_of(events).answer) == ("b", "final one")
    assert re.fullmatch(r"session_\d{8}_\d{6}", session_id)
    assert read_events(folder) == events
    (entry,) = Registry(folder).read_entries()
    assert (entry.session_id, entry.status, entry.description) == (session_id, "completed", "why?")
    assert entry.end_time is not None


async def test_every_event_is_on_disk_before_it_is_shown(folder: Path):
    session = await Session.open(team({n: s | {"chunk_size": 4} for n, s in SCRIPTS.items()}), home=folder)
    count = 0
    async with aclosing(session.ask("why?")) as events:
        async for event in events:
            count += 1
            assert read_events(folder)[count - 1] == event
    await session.close()
    assert count > 20


async def test_files_are_for_their_owner_only(folder: Path):
    session_id, _ = await ask(team(SCRIPTS, memory=True), folder, "why?")
    await ask(team(SCRIPTS, memory=True), folder, "and then?", session_id)  # the first question needs no index
    index = folder / "memory"  # its files are the vector library's; the folder itself lets nobody in
    for path in (folder, index, *(p for p in folder.rglob("*") if index not in p.parents)):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_the_next_question_goes_on_with_the_whole_conversation(folder: Path):
    session_id, first = await ask(team(SCRIPTS), folder, "the first question")
    again, second = await ask(team(SCRIPTS), folder, "and the second?", session_id)
    assert again == session_id
    (start,) = only(second, TurnStarted)
    assert start.turn == 2
    # characters / 4 of the first turn's question and final answer, within rounding
    more = only(second, AnswerSubmitted)[0].usage.prompt - only(first, AnswerSubmitted)[0].usage.prompt
    assert more * 4 == pytest.approx(len("the first question" + "final one"), abs=12)


async def test_questions_in_one_session_object_are_turns_of_it(folder: Path):
    session = await Session.open(team(SCRIPTS), home=folder)
    ends = [end_of(await collect(session.ask(q))) for q in ("one", "two", "three")]
    await session.close()
    assert [e.answer for e in ends] == ["final one", "final two", "final three"]
    assert [e.turn for e in only(read_events(folder), TurnStarted)] == [1, 2, 3]


async def test_sessions_of_one_second_get_different_ids(folder: Path):
    results = await asyncio.gather(*(ask(team(SCRIPTS), folder, f"q{i}") for i in range(5)))
    ids = {session_id for session_id, _ in results}
    assert len(ids) == 5
    assert {e.session_id for e in Registry(folder).read_entries()} == ids


async def test_an_unknown_session_suggests_near_ones_and_writes_nothing(folder: Path):
    session_id, _ = await ask(team(SCRIPTS), folder, "why?")
    before = read_events(folder)
    with pytest.raises(UnknownSessionError, match="no session") as e:
        await Session.open(team(SCRIPTS), home=folder, session_id=session_id[:-1] + "x")
    assert session_id in e.value.hint
    assert read_events(folder) == before


@pytest.mark.parametrize("bad", ["../x", "a\0b", "x" * 4096, "․․/x", "", "a..b", "/etc/passwd"])
async def test_an_impossible_session_id_is_refused_before_anything_is_made(folder: Path, bad: str):
    config = team(SCRIPTS).model_copy(update={"session_id": bad})
    with pytest.raises(InputError, match="cannot be a session id"):
        await Session.open(config, home=folder)
    assert not folder.exists()


@pytest.mark.parametrize("question", ["", "  \n\t"])
async def test_an_empty_question_makes_no_session(folder: Path, question: str):
    session = await Session.open(team(SCRIPTS), home=folder)
    with pytest.raises(InputError, match="empty"):
        await collect(session.ask(question))
    await session.close()
    assert read_events(folder) == []
    assert Registry(folder).read_entries() == []


async def test_a_missing_key_is_found_before_anything_is_made(folder: Path):
    config = TeamConfig.model_validate({"agents": [{"id": "a", "backend": {"type": "openai", "model": "m"}}]})
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        await Session.open(config, home=folder)
    assert not folder.exists()


async def test_odd_characters_are_kept_from_the_models_and_the_session_stays_usable(folder: Path):
    session_id, events = await ask(team(SCRIPTS), folder, "odd \ud800 \0 text \U0001f600")
    assert only(events, TurnStarted)[0].question == "odd � � text \U0001f600"
    _, events = await ask(team(SCRIPTS), folder, "next", session_id)
    assert end_of(events)


@pytest.mark.parametrize("by", ["user", "signal"])
async def test_a_stopped_turn_is_kept_and_can_be_finished(folder: Path, by: Any):
    slow = {n: s | {"vote": {**VOTE, "delay": 30}} for n, s in SCRIPTS.items()}
    session = await Session.open(team(slow), home=folder)
    events: list[Event] = []
    async with aclosing(session.ask("why?")) as stream:
        async for event in stream:
            events.append(event)
            if len(only(events, AnswerSubmitted)) == 3:
                session.stop(by)
    await session.close()
    assert isinstance(events[-1], TurnInterrupted)
    assert (events[-1].by, events[-1].partials) == (by, ())
    assert events[-1].spent["answer"].requests == 3  # and a vote, if one had begun
    assert read_events(folder) == events
    assert Registry(folder).read_entries()[0].status == "interrupted"

    again = await Session.open(team(SCRIPTS), home=folder, session_id=session.id)
    assert again.unfinished is not None and again.unfinished.question == "why?"
    rest = await collect(again.finish_turn())
    await again.close()
    check_order(rest)
    assert isinstance(rest[0], TurnResumed)
    assert only(rest, AnswerSubmitted) == [], "answers that are in the log are not asked for again"
    assert len(only(rest, BallotCast)) == 3
    assert 7 <= end_of(rest).usage.requests <= 10  # three votes may have begun before the stop


async def test_stop_that_comes_before_the_turn_has_begun_stops_it(folder: Path):
    session = await Session.open(team(SCRIPTS), home=folder)
    question = session.ask("why?")
    session.stop("user")
    events = await collect(question)
    assert isinstance(events[-1], TurnInterrupted)
    assert only(events, AnswerSubmitted) == []
    assert end_of(await collect(session.finish_turn())), "it stops one turn, and no more"
    await session.close()


@pytest.mark.parametrize("way", ["aclose", "cancel"])
async def test_a_turn_that_is_dropped_by_its_caller_is_marked_interrupted(folder: Path, way: str):
    slow = {n: s | {"latency": 30} for n, s in SCRIPTS.items()}
    session = await Session.open(team(slow), home=folder)
    started = asyncio.Event()

    async def consume() -> None:
        async with aclosing(session.ask("why?")) as stream:
            async for event in stream:
                started.set()
                if way == "aclose" and isinstance(event, TurnStarted):
                    return

    task = asyncio.create_task(consume())
    await started.wait()
    if way == "cancel":
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await session.close()
    assert isinstance(read_events(folder)[-1], TurnInterrupted)
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    turn = await store.get_last_turn(session.id)
    await store.close()
    assert turn is not None and turn.status == "interrupted"


@pytest.mark.parametrize("full", [True, False])
async def test_a_question_to_all_agents_is_asked_to_all_when_it_goes_on(folder: Path, full: bool):
    scripts = {name: {"answer": "42", "vote": "first", "latency": 30} for name in ("a", "b", "c")}
    session = await Session.open(team(scripts, depth="adaptive"), home=folder)
    async with aclosing(session.ask("What is 6 x 7?", full=full)) as stream:
        async for event in stream:
            if isinstance(event, TurnStarted):
                session.stop("signal")
    await session.close()
    quick = {name: {"answer": "42", "vote": "first"} for name in scripts}
    session = await Session.open(team(quick, depth="adaptive"), home=folder, session_id=session.id)
    events = await collect(session.finish_turn())
    await session.close()
    assert sorted(e.agent_id for e in only(events, AnswerSubmitted)) == ["a", "b", "c"][: 3 if full else 2]


async def cut_off(folder: Path, by: Any) -> str:
    slow = {n: s | {"latency": 30} for n, s in SCRIPTS.items()}
    session = await Session.open(team(slow), home=folder)
    async with aclosing(session.ask("first")) as stream:
        async for event in stream:
            if isinstance(event, TurnStarted):
                session.stop(by)
    await session.close()
    return session.id


async def test_a_killed_turn_is_finished_before_the_next_question_is_answered(folder: Path):
    session_id = await cut_off(folder, "signal")
    _, events = await ask(team(SCRIPTS), folder, "second", session_id)
    assert [e.question for e in events if isinstance(e, TurnStarted | TurnResumed)] == ["first", "second"]
    assert [e.answer for e in only(events, TurnCompleted)] == ["final one", "final two"]


async def test_a_turn_that_the_user_stopped_gives_way_to_another_question(folder: Path):
    session_id = await cut_off(folder, "user")
    _, events = await ask(team(SCRIPTS), folder, "second", session_id)
    assert [e.question for e in events if isinstance(e, TurnStarted | TurnResumed)] == ["second"]
    session = await Session.open(team(SCRIPTS), home=folder, session_id=session_id)
    assert session.unfinished is None
    await session.close()
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    assert [turn.status for turn in await store.list_turns(session_id, 0)] == ["abandoned", "completed"]
    await store.close()


async def test_the_same_question_again_takes_the_stopped_turn_up(folder: Path):
    session_id = await cut_off(folder, "user")
    _, events = await ask(team(SCRIPTS), folder, "first", session_id)
    assert isinstance(events[0], TurnResumed)
    assert len(only(events, TurnCompleted)) == 1


async def test_a_failed_turn_can_be_tried_again(folder: Path):
    broken = {n: s | {"answer": {"error": "unavailable"}} for n, s in SCRIPTS.items()}
    session_id, events = await ask(team(broken), folder, "why?")
    assert isinstance(events[-1], TurnFailed)
    session = await Session.open(team(SCRIPTS), home=folder, session_id=session_id)
    rest = await collect(session.finish_turn())
    await session.close()
    assert end_of(rest).answer == "final one"


async def test_partial_text_of_a_broken_stream_is_kept(folder: Path):
    scripts = SCRIPTS | {"c": {"answer": {"text": "half an answ", "error": "interrupted"}}}
    _, events = await ask(team(scripts), folder, "why?")
    assert only(events, AgentFailed)[0].partial == "half an answ"
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        rows = db.execute("SELECT content, metadata FROM chat_messages WHERE agent_id = 'c'").fetchall()
    assert [(content, json.loads(meta)["partial"]) for content, meta in rows] == [("half an answ", True)]


async def test_a_second_owner_of_a_running_turn_is_refused(folder: Path):
    session_id = await cut_off(folder, "user")
    slow = {n: s | {"latency": 30} for n, s in SCRIPTS.items()}
    first = await Session.open(team(slow), home=folder, session_id=session_id)
    second = await Session.open(team(SCRIPTS), home=folder, session_id=session_id)
    async with aclosing(first.ask("busy")) as stream:
        await anext(stream)
        with pytest.raises(SessionBusyError, match="another process"):
            await collect(second.ask("me too"))
    await first.close()
    await second.close()


async def test_streamed_text_is_stored_in_pieces_that_join_to_what_was_said(folder: Path):
    long = "word " * 200
    scripts = {"a": {"answer": long, "chunk_size": 5, "chunk_delay": 0.001}}
    _, events = await ask(team(scripts), folder, "why?")
    deltas = only(events, AgentDelta)
    assert "".join(d.text for d in deltas) == long
    assert 1 < len(deltas) < 60, "pieces are gathered, not stored one by one"


async def test_scripted_example_answers_a_second_question_without_failures(folder: Path):
    config, _ = load_config("configs/scripted.yaml", {})
    quick = {"latency": 0, "chunk_delay": 0, "chunk_size": 0}
    agents = tuple(
        agent.model_copy(
            update={"backend": agent.backend.model_copy(update={"script": {**(agent.backend.script or {}), **quick}})}
        )
        for agent in config.agents
    )
    async with await Session.open(config.model_copy(update={"agents": agents}), home=folder) as session:
        for question in ("How does massmem find an answer?", "And how does it keep it?"):
            events = await collect(session.ask(question))
            assert only(events, AgentFailed) == []
            assert end_of(events).presented
