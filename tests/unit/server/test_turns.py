"""A turn runs apart from those who follow it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from massmem.core.errors import SessionBusyError
from massmem.core.events import AgentDelta, TurnCompleted, TurnStarted
from massmem.server.errors import RetryLater
from massmem.server.turns import NumberedEvent, Question, RunningTurn
from massmem.session.session import Session
from tests.support.sessions import team

SCRIPT = {"answer": ["It is blue."], "latency": 0, "chunk_size": 2, "chunk_delay": 0.001}


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    session = await Session.open(team({"ann": SCRIPT}), home=tmp_path)
    yield session
    await session.close()


@pytest.fixture
def turn() -> RunningTurn:
    return RunningTurn("s", "alice", Question("alice", "s", "Why?"))


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
