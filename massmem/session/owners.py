"""Whose a session is: how the store names an owner, and how far the memory of an owner's agents reaches."""

from collections.abc import Sequence
from hashlib import sha256

from massmem.config.models import AgentConfig, TeamConfig


def owner_hash(owner: str) -> str:
    """Return 24 hex digits that stand for an owner in the store and in logs."""
    return sha256(owner.encode()).hexdigest()[:24]


def restrict_to_owner(agents: Sequence[AgentConfig], owner: str | None) -> tuple[AgentConfig, ...]:
    """Return the agents with memories that reach no further than the owner's sessions. None: this machine's user."""
    return tuple(agents) if owner is None else tuple(_restrict(agent, owner) for agent in agents)


def memory_group(config: TeamConfig, owner: str | None) -> str:
    """Return the name under which agents of other sessions find the memories of a new session; "" for none."""
    settings = config.memory.persistent_memory
    if owner is None:
        return settings.session_name or ""
    return _group_of(owner, settings.session_name)


def _restrict(agent: AgentConfig, owner: str) -> AgentConfig:
    settings = agent.memory.persistent_memory
    if not (settings.all_sessions or settings.session_name):
        return agent
    persistent = settings.model_copy(update={"session_name": _group_of(owner, settings.session_name)})
    return agent.model_copy(update={"memory": agent.memory.model_copy(update={"persistent_memory": persistent})})


def _group_of(owner: str, session_name: str | None) -> str:
    """All sessions of the owner are one group, and those with a session_name of their own another."""
    return owner_hash(owner) if session_name is None else f"{owner_hash(owner)}:{session_name}"
