"""A turn that runs apart from whoever follows it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from massmem.errors import SessionBusyError
from massmem.events import AgentDelta, TurnCompleted, TurnStarted
from massmem.server.limits import TooMuch
from massmem.server.running import Numbered, Running
from massmem.session.session import Session
from tests.support.sessions import team

SAYS = {"answer": ["It is blue."], "latency": 0, "chunk_size": 2, "chunk_delay": 0.001}


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    opened = await Session.open(team({"ann": SAYS}), home=tmp_path)
    yield opened
    await opened.close()


async def told(running: Running, *, live: bool) -> list[Numbered]:
    async with aclosing(running.follow(live=live)) as events:
        return [each async for each in events]


async def run(running: Running, session: Session) -> None:
    async with aclosing(running.run(session)) as events:
        async for _ in events:
            pass
    running.end()


async def test_all_who_follow_are_told_the_same(session: Session) -> None:
    running = Running("", "Why?")
    early = [asyncio.create_task(told(running, live=live)) for live in (True, True, False, False)]
    await run(running, session)
    late = [await told(running, live=live) for live in (True, False)]
    first, *others = [*await asyncio.gather(*early), *late]
    assert all(each == first for each in others)
    events = [event for _, event in first]
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnCompleted)
    assert any(isinstance(event, AgentDelta) for event in events)


async def test_who_follows_live_is_told_while_the_turn_runs_and_others_at_its_end(session: Session) -> None:
    running = Running("", "Why?")
    whole = asyncio.create_task(anext(running.follow(live=False)))
    async with aclosing(running.follow(live=True)) as live:
        task = asyncio.create_task(run(running, session))
        async for _, event in live:
            if isinstance(event, AgentDelta):
                break
        assert not task.done()
        assert not whole.done()
        await task
    assert isinstance((await whole)[1], TurnStarted)


@pytest.mark.parametrize("live", [True, False])
async def test_what_ended_the_turn_is_raised_after_what_came(session: Session, live: bool) -> None:
    running = Running("", "Why?")
    following = asyncio.create_task(told(running, live=live))
    async with aclosing(running.run(session)) as events:
        await anext(events)
    running.end(SessionBusyError("another question is under way"))
    with pytest.raises(SessionBusyError):
        await following
    async with aclosing(running.follow(live=live)) as again:
        assert isinstance((await anext(again))[1], TurnStarted)
        with pytest.raises(SessionBusyError):
            await anext(again)


async def test_one_that_is_stopped_before_it_begins_asks_nothing(session: Session) -> None:
    running = Running("", "Why?")
    running.stop()
    with pytest.raises(TooMuch):
        await run(running, session)
    assert session.unfinished is None
