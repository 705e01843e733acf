"""Whose a session is: how the store names an owner, and how far the memory of an owner's agents reaches."""

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from massmem.config.models import AgentConfig, TeamConfig
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, Owner, SessionFilter
from massmem.memory.persistent import Selection
from massmem.store.ports import SessionStore

_OWNER = re.compile(r"\A[0-9a-f]{24}\.")
"""The beginning of the stored id of a session, unless it is one of this machine's user."""


def hash_user(user_id: str) -> str:
    """Return 24 hex digits that stand for a user of the HTTP service in the store and in logs."""
    return sha256(user_id.encode()).hexdigest()[:24]


def to_stored_id(owner: Owner, session_id: str) -> str:
    """Return the id under which the store knows a session of the user."""
    return session_id if owner.user_id is None else f"{hash_user(owner.user_id)}.{session_id}"


def public_session_id(stored_id: str) -> str:
    """Return the id under which its user knows a stored session."""
    return _OWNER.sub("", stored_id)


def restrict_to_owner(agents: Sequence[AgentConfig], owner: Owner) -> tuple[AgentConfig, ...]:
    """Return the agents with memories that reach no further than the owner's sessions."""
    return tuple(agents) if owner.user_id is None else tuple(_restrict(agent, owner.user_id) for agent in agents)


def memory_group(config: TeamConfig, owner: Owner) -> str:
    """Return the name under which agents of other sessions find the memories of a new session; "" for none."""
    settings = config.memory.persistent_memory
    if owner.user_id is None:
        return settings.session_name or ""
    return _group_of(owner.user_id, settings.session_name)


async def list_own_sessions(store: SessionStore, owner: Owner | Everybody, limit: int | None = None) -> tuple[str, ...]:
    """Return the ids of an owner's sessions, the last used first, without those being deleted. Raises StoreError."""
    listed = await store.find_sessions(SessionFilter(owner=owner), limit)
    return tuple(one.session.session_id for one in listed if one.session.status != "deleting")


async def restrict_selection(store: SessionStore, selection: Selection, owner: Owner | Everybody) -> Selection:
    """Return the selection of memories without the sessions of other owners. Raises StoreError."""
    if owner is EVERYBODY:
        return selection
    if owner == COMMAND_LINE_USER:  # without the HTTP service there is nobody else, and memories may outlive sessions
        everybody, own = [await store.count_sessions(SessionFilter(owner=whose)) for whose in (EVERYBODY, owner)]
        if everybody.sessions == own.sessions:
            return selection
    # No session has an empty id: without any session nothing is selected, and not everything.
    return replace(selection, session_ids=await list_own_sessions(store, owner) or ("",))


async def find_pinned_session(store: SessionStore, agent: AgentConfig, owner: Owner) -> str | None:
    """Return the id of the owner's session that the agent's session_name names, by its id or its whole title.

    Of several with this title it is the one that was used last; None: the name is that of a group.

    agent: as `restrict_to_owner` returns it.

    Raises StoreError: the store cannot be read.
    """
    name = agent.memory.persistent_memory.session_name or ""
    session_id = name
    if owner.user_id is not None:
        name = name.partition(":")[2]
        session_id = to_stored_id(owner, name)
    if not name:
        return None
    session = await store.get_session(session_id)
    if session is None or session.owner != owner:
        by_title = await store.find_sessions(SessionFilter(title=name, owner=owner), 1)
        session = by_title[0].session if by_title else None
    return None if session is None or session.status == "deleting" else session.session_id


def _restrict(agent: AgentConfig, user_id: str) -> AgentConfig:
    settings = agent.memory.persistent_memory
    if not (settings.all_sessions or settings.session_name):
        return agent
    persistent = settings.model_copy(update={"session_name": _group_of(user_id, settings.session_name)})
    return agent.model_copy(update={"memory": agent.memory.model_copy(update={"persistent_memory": persistent})})


def _group_of(user_id: str, session_name: str | None) -> str:
    """All sessions of the owner are one group, and those with a session_name of their own another."""
    return hash_user(user_id) if session_name is None else f"{hash_user(user_id)}:{session_name}"
