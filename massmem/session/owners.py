"""Whose a session is: how the store names an owner, and how far the memory of an owner's agents reaches."""

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from massmem.config.models import AgentConfig, MemoryConfig, TeamConfig
from massmem.config.projects import choose_project, name_project
from massmem.config.projects import find_project as find_project_of
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, Owner, SessionFilter
from massmem.memory.persistent import Scope, Selection
from massmem.store.ports import SessionStore

_NOTES = "notes"
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
    return tuple(agent.model_copy(update={"memory": restrict_memory(agent.memory, owner)}) for agent in agents)


def restrict_memory(memory: MemoryConfig, owner: Owner) -> MemoryConfig:
    """Return settings that reach no further than the owner's sessions."""
    settings = memory.persistent_memory
    if owner.user_id is None or not (settings.all_sessions or settings.session_name):
        return memory
    group = _group_of(owner.user_id, settings.session_name)
    return memory.model_copy(update={"persistent_memory": settings.model_copy(update={"session_name": group})})


def memory_group(config: TeamConfig, owner: Owner) -> str:
    """Return the name under which agents of other sessions find the memories of a new session; "" for none."""
    settings = config.memory.persistent_memory
    if owner.user_id is None:
        return settings.session_name or ""
    return _group_of(owner.user_id, settings.session_name)


def general_group(owner: Owner) -> str:
    """Return `memory_group` where no session_name is given."""
    return "" if owner.user_id is None else hash_user(owner.user_id)


def name_notes(owner: Owner, group: str = "", project: str = "") -> str:
    """Return the id, as its owner knows it, of the session for notes that belong to no other session."""
    place = (group if group != general_group(owner) else "") + (f"\0{project}" if project else "")
    return f"{_NOTES}_{hash_user(place)[:8]}" if place else _NOTES


async def list_own_sessions(
    store: SessionStore, owner: Owner | Everybody, limit: int | None = None, project: str | None = None
) -> tuple[str, ...]:
    """Return the ids of an owner's sessions, the last used first, without those being deleted. Raises StoreError.

    project: only those of this one and of none; None: all.
    """
    sessions = [one.session for one in await store.find_sessions(SessionFilter(owner=owner), limit)]
    of_project = [session for session in sessions if project is None or session.project in ("", project)]
    return tuple(session.session_id for session in of_project if session.status != "deleting")


async def find_project(store: SessionStore, owner: Owner, name: str) -> str:
    """Return the project that the owner means: on this machine by name or path, else by a name of their choice.

    Raises InputError: there is no such project. StoreError.
    """
    if owner.user_id is not None or not name:
        return name.strip()
    sessions = await store.find_sessions(SessionFilter(owner=owner))
    return choose_project(name, {listed.session.project for listed in sessions} - {""})


def project_of_folder(owner: Owner, folder: str) -> str:
    """Return the project of the owner that a folder, maybe of another machine, is in."""
    if owner.user_id is not None:
        return name_project(folder)
    return find_project_of(Path(folder)) if folder and Path(folder).is_dir() else folder


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


async def extend_scope(store: SessionStore, scope: Scope, memory: MemoryConfig, owner: Owner) -> Scope:
    """Return the scope with what an agent recalls from beside its own session. Raises StoreError.

    memory: of the agent, as `restrict_to_owner` returns it.
    """
    settings = memory.persistent_memory
    others: set[str | None] = set()
    if settings.session_name:
        notes = await store.get_session(to_stored_id(owner, name_notes(owner)))
        # The user may have called any session so.
        if notes is not None and (notes.memory_group, notes.project) == (general_group(owner), ""):
            others.add(notes.session_id)
        others.add(await find_pinned_session(store, memory, owner, scope.project))
    named = tuple(sorted(filter(None, others - {scope.session_id})))
    return replace(scope, all_sessions=settings.all_sessions, group=settings.session_name, others=named)


async def find_pinned_session(store: SessionStore, memory: MemoryConfig, owner: Owner, project: str = "") -> str | None:
    """Return the id of the owner's session that the memory's session_name names, by its id or its whole title.

    Of several with this title it is the one that was used last; None: the name is that of a group, or the session is in
    another project.

    memory: as `restrict_to_owner` returns it.

    Raises StoreError: the store cannot be read.
    """
    name = memory.persistent_memory.session_name or ""
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
    is_there = session is not None and session.status != "deleting" and session.project in ("", project)
    return session.session_id if session is not None and is_there else None


def _group_of(user_id: str, session_name: str | None) -> str:
    """All sessions of the owner are one group, and those with a session_name of their own another."""
    return hash_user(user_id) if session_name is None else f"{hash_user(user_id)}:{session_name}"
