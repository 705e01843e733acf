"""Sessions of scripted agents in a folder, for tests of the application service."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from massmem.config.models import TeamConfig
from massmem.core.events import Event
from massmem.core.records import EVERYBODY, Everybody, Owner
from massmem.session.lease import ProcessLock
from massmem.session.session import Session
from massmem.session.sessions import Sessions
from massmem.store.ports import SessionStore
from tests.support.turns import Scripts


def team(scripts: Scripts, *, memory: bool = False, **coordination: Any) -> TeamConfig:
    """A team of scripted agents, one per entry. memory: with the searchable tier."""
    return TeamConfig.model_validate(
        {
            "agents": [
                {"id": name, "backend": {"type": "scripted", "script": script, "max_retries": 0}}
                for name, script in scripts.items()
            ],
            "coordination": coordination,
            "memory": {"persistent_memory": {"enabled": memory}},
        }
    )


def open_sessions(
    store: SessionStore, home: Path, owner: Owner | Everybody = EVERYBODY, config: TeamConfig | None = None
) -> Sessions:
    """Return the sessions of an owner as a command has them."""
    return Sessions(config or team({"ann": {}}), home, store, ProcessLock(home), owner)


async def collect(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]


async def ask(config: TeamConfig, home: Path, question: str, session_id: str | None = None) -> tuple[str, list[Event]]:
    """One run of the program: open, ask, close. Returns the session's id and the events."""
    session = await Session.open(config, home=home, session_id=session_id)
    try:
        return_events = await collect(session.ask(question))
        return session.id, return_events
    finally:
        await session.close()
