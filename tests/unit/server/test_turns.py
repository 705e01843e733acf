"""A turn runs apart from those who follow it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from massmem.config.models import LimitsConfig
from massmem.core.errors import SessionBusyError
from massmem.core.events import AgentDelta, TurnCompleted, TurnInterrupted, TurnResumed, TurnStarted
from massmem.core.records import Owner
from massmem.server.errors import RetryLater
from massmem.server.limits import Limits
from massmem.server.metrics import Metrics
from massmem.server.turns import ClientQuestion, NumberedEvent, RunningTurn, Turns
from massmem.session.session import Session
from massmem.session.team import Team, Teams
from tests.support.sessions import team

SCRIPT = {"answer": ["It is blue."], "latency": 0, "chunk_size": 2, "chunk_delay": 0.001}


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    session = await Session.open(team({"ann": SCRIPT}), home=tmp_path)
    yield session
    await session.close()


@pytest.fixture
def turn() -> RunningTurn:
    return RunningTurn("s", Owner("alice"), ClientQuestion(Owner("alice"), "s", "Why?"))


async def follow(turn: RunningTurn) -> list[NumberedEvent]:
    async with aclosing(turn.follow()) as events:
        return [numbered async for numbered in events]


async def run(turn: RunningTurn, session: Session) -> None:
    async with aclosing(turn.run(session)) as events:
        async for _ in events:
            pass
    turn.end()


async def test_all_followers_get_the_same_events(session: Session, turn: RunningTurn) -> None:
    early = [asyncio.create_task(follow(turn)) for _ in range(2)]
    await run(turn, session)
    first, *others = [*await asyncio.gather(*early), await follow(turn)]
    assert all(events == first for events in others)
    events = [event for _, event in first]
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnCompleted)
    assert any(isinstance(event, AgentDelta) for event in events)


async def test_followers_get_events_while_the_turn_runs(session: Session, turn: RunningTurn) -> None:
    async with aclosing(turn.follow()) as events:
        task = asyncio.create_task(run(turn, session))
        async for _, event in events:
            if isinstance(event, AgentDelta):
                break
        assert not task.done()
        await task


async def test_error_of_a_turn_is_raised_after_its_events(session: Session, turn: RunningTurn) -> None:
    follower = asyncio.create_task(follow(turn))
    async with aclosing(turn.run(session)) as events:
        await anext(events)
    turn.end(SessionBusyError("another question is under way"))
    with pytest.raises(SessionBusyError):
        await follower
    async with aclosing(turn.follow()) as late:
        assert isinstance((await anext(late))[1], TurnStarted)
        with pytest.raises(SessionBusyError):
            await anext(late)


async def test_turn_that_is_stopped_before_it_begins_asks_nothing(session: Session, turn: RunningTurn) -> None:
    turn.stop()
    with pytest.raises(RetryLater):
        await run(turn, session)
    assert session.unfinished is None


@pytest.fixture
async def turns(tmp_path: Path) -> AsyncIterator[Turns]:
    opened = await Team.open(team({"ann": {**SCRIPT, "answer": ["It is blue. " * 50]}}), home=tmp_path)
    await opened.start()
    turns = Turns(Teams({"": opened}), Limits(LimitsConfig.model_validate({"turns_per_user": 1})), Metrics())
    yield turns
    await turns.stop(0)
    await opened.close()


async def test_next_question_is_taken_as_soon_as_the_answer_is_seen(turns: Turns) -> None:
    async with aclosing(turns.ask(ClientQuestion(Owner("alice"), "s", "Why?"))) as first:
        async for _, event in first:
            if isinstance(event, TurnCompleted):
                break
        async with aclosing(turns.ask(ClientQuestion(Owner("alice"), "s", "How?"))) as second:
            events = [event async for _, event in second]
    assert isinstance(events[0], TurnStarted)
    assert (events[0].turn, events[0].question) == (2, "How?")
    assert isinstance(events[-1], TurnCompleted)


async def test_turn_is_continued_as_soon_as_its_end_is_seen(turns: Turns) -> None:
    async with aclosing(turns.ask(ClientQuestion(Owner("alice"), "s", "Why?"))) as stopped:
        async for _, event in stopped:
            if isinstance(event, AgentDelta):
                (await turns.find_running("s")).stop("user")
            if isinstance(event, TurnInterrupted):
                break
        await turns.continue_turn("s", Owner("alice"))
    async with aclosing(turns.follow("s", 0)) as log:
        events = [event async for _, event in log]
    assert any(isinstance(event, TurnResumed) for event in events)
    assert isinstance(events[-1], TurnCompleted)
