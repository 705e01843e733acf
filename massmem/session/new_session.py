"""How a session begins, and whose it is."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from massmem.config.models import AgentConfig, TeamConfig
from massmem.errors import SessionExistsError
from massmem.events import now
from massmem.records import SessionRecord
from massmem.store.base import Mark, SessionStore


@dataclass(frozen=True, slots=True)
class NewSession:
    """What is known of a session before there is one. session_id "": one is made from the clock.

    owner None: the user of this machine.
    """

    session_id: str = ""
    owner: str | None = None


async def stored_session(store: SessionStore, config: TeamConfig, new: NewSession) -> tuple[SessionRecord, Mark | None]:
    """Store a new session; an id from the clock that is taken gets a random suffix.

    Returns the session with its mark; None: it was there already. Raises StoreError.
    """
    base = new.session_id or f"session_{datetime.now().astimezone():%Y%m%d_%H%M%S}"
    models = dict.fromkeys(a.backend.model or a.backend.type for a in config.agents)
    started = now()
    suffix = ""
    while True:
        record = SessionRecord(
            session_id=base + suffix,
            user_id=new.owner,
            model=", ".join(models),
            config_path=config.source,
            memory_group=_group(config, new.owner),
            created_at=started,
            updated_at=started,
        )
        try:
            await store.create_session(record)
        except SessionExistsError:
            there = await store.get_session(base) if new.session_id else None
            if there is not None and there.user_id == new.owner:
                return there, None  # another request of the same user was faster
            suffix = f"_{secrets.token_hex(2)}"
            continue
        return record, Mark(started, 0, None)


def agents_of(agents: Sequence[AgentConfig], owner: str | None) -> tuple[AgentConfig, ...]:
    """The agents as they work for this owner: nobody's memory goes beyond the owner's own sessions."""
    return tuple(_narrowed(agent, owner) for agent in agents) if owner is not None else tuple(agents)


def owner_hash(owner: str) -> str:
    """24 hex digits for names in the store and in logs, which do not show whose they are."""
    return sha256(owner.encode()).hexdigest()[:24]


def _narrowed(agent: AgentConfig, owner: str) -> AgentConfig:
    settings = agent.memory.persistent_memory
    if not (settings.all_sessions or settings.session_name):
        return agent
    group = {"session_name": _group_of(owner, settings.session_name)}
    persistent = settings.model_copy(update=group)
    return agent.model_copy(update={"memory": agent.memory.model_copy(update={"persistent_memory": persistent})})


def _group(config: TeamConfig, owner: str | None) -> str:
    """What other sessions find this one by: those that name it, and with an owner all that search all."""
    settings = config.memory.persistent_memory
    if owner is None:
        return settings.session_name or ""
    return _group_of(owner, settings.session_name)


def _group_of(owner: str, name: str | None) -> str:
    return owner_hash(owner) if name is None else f"{owner_hash(owner)}:{name}"
