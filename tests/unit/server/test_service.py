"""Deletion of a conversation while its user asks, and what another process has begun."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from massmem.config.models import TeamConfig
from massmem.core.errors import SessionBusyError
from massmem.core.events import TurnCompleted, TurnStarted
from massmem.core.records import Owner
from massmem.server.service import Service, Settings, open_service
from massmem.server.turns import ClientQuestion
from massmem.session.lease import ProcessLock, hold_lease
from tests.support.service import make_agent, make_config

ALICE = Owner("alice")


def start_service(home: Path, memory: dict[str, Any]) -> AbstractAsyncContextManager[Service]:
    store = {"url": f"sqlite:///{home / 'massmem.db'}"}
    config = make_config(make_agent("ann", "It is blue.", latency=0.2), store=store, memory=memory)
    return open_service(Settings(TeamConfig.model_validate(config), home), asyncio.Event())


@pytest.fixture
async def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    monkeypatch.chdir(tmp_path)
    async with start_service(tmp_path, {"enabled": False}) as service:
        yield service


async def ask_until(service: Service, kind: type) -> None:
    """Ask in the session s, and return at the first event of this kind: the turn goes on alone."""
    async with aclosing(service.turns.ask(ClientQuestion(ALICE, "s", "Why?"))) as events:
        async for _, event in events:
            if isinstance(event, kind):
                return


async def delete(service: Service) -> None:
    session = await service.team.store.get_session("s")
    assert session is not None
    await service.delete_session(session)


async def test_conversation_is_deleted_as_soon_as_its_answer_is_seen(service: Service):
    await ask_until(service, TurnCompleted)
    assert service.turns.is_running("s")
    await delete(service)
    assert await service.team.store.get_session("s") is None


async def test_conversation_is_not_deleted_while_its_question_is_answered(service: Service):
    await ask_until(service, TurnStarted)
    with pytest.raises(SessionBusyError):
        await delete(service)
    assert await service.team.store.get_session("s") is not None


async def test_deletion_waits_a_moment_for_another_process_that_has_just_answered(service: Service, tmp_path: Path):
    await ask_until(service, TurnCompleted)
    await service.turns.wait_for_end("s")
    other = ProcessLock(tmp_path)
    async with hold_lease(service.team.store, other, "s"):
        deletion = asyncio.create_task(delete(service))
        await asyncio.sleep(0.1)
        assert not deletion.done()
    await deletion
    other.close()
    assert await service.team.store.get_session("s") is None


async def test_deletion_that_fails_half_way_is_finished_later(tmp_path: Path):
    memory = {"persistent_memory": {"embedding": {"provider": "none"}}}
    (tmp_path / "memory" / "words").mkdir(parents=True)
    with FileLock(tmp_path / "memory" / "words" / "lock"):
        async with start_service(tmp_path, memory) as service:
            await ask_until(service, TurnCompleted)
            await delete(service)
            session = await service.team.store.get_session("s")
            assert session is not None
            assert session.status == "deleting"
    async with start_service(tmp_path, memory) as service:
        await service.finish_deletions()
        assert await service.team.store.get_session("s") is None
        assert not service.must_erase.is_set()
