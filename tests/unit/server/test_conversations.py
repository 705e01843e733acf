"""Conversations as their owners see them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest
from massmem.server.conversations import Conversations

from massmem.config.models import LimitsConfig
from massmem.core.errors import SessionBusyError
from massmem.core.events import TurnCompleted, TurnStarted
from massmem.core.records import Owner
from massmem.server.limits import Limits
from massmem.server.metrics import Metrics
from massmem.server.turns import Question, Turns
from massmem.session.lease import ProcessLock, hold_lease
from massmem.session.team import DEFAULT_TEAM, Team, Teams
from tests.support.sessions import team


@dataclass
class Service:
    team: Team
    turns: Turns
    conversations: Conversations

    async def ask_until(self, kind: type) -> None:
        """Ask in the session s, and return at the first event of this kind: the turn goes on alone."""
        async with aclosing(self.turns.ask(Question(Owner("alice"), "s", "Why?"))) as events:
            async for _, event in events:
                if isinstance(event, kind):
                    return

    async def delete(self) -> None:
        session = await self.team.store.get_session("s")
        assert session is not None
        await self.conversations.delete(session)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    opened = await Team.open(team({"ann": {"latency": 0.2}}), home=tmp_path)
    await opened.start()
    turns = Turns(Teams({DEFAULT_TEAM: opened}), Limits(LimitsConfig()), Metrics())
    yield Service(opened, turns, Conversations(opened, turns))
    await turns.stop(0)
    await opened.close()


async def test_conversation_is_deleted_as_soon_as_its_answer_is_seen(service: Service):
    await service.ask_until(TurnCompleted)
    assert service.turns.is_running("s")
    await service.delete()
    assert await service.team.store.get_session("s") is None


async def test_conversation_is_not_deleted_while_its_question_is_answered(service: Service):
    await service.ask_until(TurnStarted)
    with pytest.raises(SessionBusyError):
        await service.delete()
    assert await service.team.store.get_session("s") is not None


async def test_deletion_waits_a_moment_for_another_process_that_has_just_answered(service: Service, tmp_path: Path):
    await service.ask_until(TurnCompleted)
    await service.turns.wait_for_end("s")
    other = ProcessLock(tmp_path)
    async with hold_lease(service.team.store, other, "s"):
        deletion = asyncio.create_task(service.delete())
        await asyncio.sleep(0.1)
        assert not deletion.done()
    await deletion
    other.close()
    assert await service.team.store.get_session("s") is None
