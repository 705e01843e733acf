"""What a session_name pins, for the user of the command line and for users of the HTTP service."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from massmem.config.load import resolve_agents
from massmem.config.models import AgentConfig, TeamConfig
from massmem.core.records import Owner
from massmem.session.owners import find_pinned_session, hash_user, restrict_to_owner
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session

ALICES, BOBS = f"{hash_user('alice')}.notes", f"{hash_user('bob')}.notes"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    await store.create_session(session("notes"))
    await store.create_session(session(ALICES).model_copy(update={"user_id": "alice"}))
    await store.create_session(session(BOBS).model_copy(update={"user_id": "bob"}))
    await store.rename_session(BOBS, "secret plans")
    yield store
    await store.close()


def agent(session_name: str, owner: str | None) -> AgentConfig:
    config = TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted"}}],
            "memory": {"persistent_memory": {"session_name": session_name}},
        }
    )
    return restrict_to_owner(resolve_agents(config, {}), Owner(owner))[0]


@pytest.mark.parametrize(
    ("name", "owner", "expected"),
    [
        ("notes", None, "notes"),
        ("notes", "alice", ALICES),
        ("notes", "carol", None),
        ("secret plans", "bob", BOBS),
        ("secret plans", None, None),
        ("secret plans", "alice", None),
        (BOBS, None, None),
        (BOBS, "alice", None),
    ],
)
async def test_session_name_pins_only_a_session_of_the_owner(
    store: SessionStore, name: str, owner: str | None, expected: str | None
):
    assert await find_pinned_session(store, agent(name, owner).memory, Owner(owner)) == expected
