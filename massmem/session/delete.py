"""Deletes sessions everywhere: memories, recording queue, log, registry, locks, backups, debug files, and their bytes.

A session is marked first. When the process dies before the session is gone, the next deletion finishes it; until then
nobody can go on with the session.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from massmem.config.home import make_file, make_folder
from massmem.config.models import TeamConfig
from massmem.core.errors import SessionBusyError
from massmem.core.records import SessionFilter, SessionRecord
from massmem.memory.persistent import Selection
from massmem.recording.forgetting import EraseSessions, open_eraser
from massmem.session.lease import ProcessLock, hold_lease
from massmem.session.registry import Registry, RegistryDamaged, build_entries
from massmem.session.traces import Traces
from massmem.store.ports import SessionStore

Progress = Callable[[int, int], None]
"""Called with the number of deleted messages and the number of all that are to be deleted."""

_EVENTS_AT_ONCE = 2_000
"""Events that one transaction deletes: others write between two of them."""

_MARKS = "deleting"
"""Folder in the home with a file for each session whose deletion has begun."""


@dataclass(frozen=True, slots=True)
class DeletionResult:
    sessions: tuple[str, ...]
    """Ids of the deleted sessions."""
    busy: tuple[str, ...]
    """Ids of the sessions that were left alone, because a process runs a turn of them."""
    messages: int
    memories: int
    erased: bool
    """False: bytes may stay in the database file, which is very large, or read by another process."""


@dataclass(frozen=True, slots=True)
class SessionDeleter:
    config: TeamConfig
    home: Path
    store: SessionStore
    folder: Path
    """The working directory, in which debug files may be."""

    async def delete(self, sessions: Sequence[SessionRecord], progress: Progress) -> DeletionResult:
        """Delete these sessions, and finish deletions that were cut off.

        Raises:
            MemoryUnavailable: the memory is in use by another process; nothing was deleted.
            StoreError: what was deleted is gone; the next deletion goes on.
        """
        marked = [listed.session for listed in await self.store.find_sessions(SessionFilter(status="deleting"))]
        selected = {session.session_id: session for session in (*sessions, *marked)}
        begun_ids = list_begun_deletions(self.home)
        traces = [session_id for session_id in begun_ids if await self.store.get_session(session_id) is None]
        opening = open_eraser(self.config.memory, self.home, os.environ)
        async with opening as erase, AsyncExitStack() as leases:
            process = ProcessLock(self.home)
            leases.callback(process.close)
            free = [session for session in selected.values() if await self._claim(process, session.session_id, leases)]
            memories = await delete_contents(self.store, free, erase, progress)
            erased = await self.store.erase_deleted()
            ids = (*(session.session_id for session in free), *traces)
            await self.delete_traces(ids)
        for session_id in ids:
            (self.home / _MARKS / session_id).unlink(missing_ok=True)
        busy = tuple(session_id for session_id in selected if session_id not in ids)
        return DeletionResult(ids, busy, sum(session.message_count for session in free), memories, erased)

    async def _claim(self, process: ProcessLock, session_id: str, leases: AsyncExitStack) -> bool:
        """Mark the session as being deleted and hold its lease. False: a turn of it is under way."""
        try:
            await leases.enter_async_context(hold_lease(self.store, process, session_id))
        except SessionBusyError:
            return False
        marks = self.home / _MARKS
        make_folder(marks)
        make_file(marks / session_id)
        await self.store.delete_session(session_id, 0)
        return True

    async def delete_traces(self, session_ids: Sequence[str]) -> None:
        """Delete what this machine has of the sessions beside the store: files that mention them, registry entries.

        Raises HomeError, StoreError.
        """
        names = [session_id.encode() for session_id in session_ids]
        await asyncio.to_thread(Traces(self.config, self.home, self.folder).delete, names)
        await self._unlist(session_ids)

    async def _unlist(self, session_ids: Sequence[str]) -> None:
        """Remove the sessions from the registry."""
        registry = Registry(self.home)
        try:
            for session_id in session_ids:
                await asyncio.to_thread(registry.remove, session_id)
        except RegistryDamaged as e:
            e.copy.unlink(missing_ok=True)  # it may name these sessions
            url = self.config.store.url
            await asyncio.to_thread(registry.replace, await build_entries(self.store, url))


async def delete_contents(
    store: SessionStore, sessions: Sequence[SessionRecord], erase: EraseSessions, progress: Progress | None = None
) -> int:
    """Delete the memories, the recording jobs and the log of marked sessions; return how many memories that were.

    Memories go first: as long as there are any, the session exists and says that it is being deleted. The caller holds
    the sessions' leases.
    """
    ids = [session.session_id for session in sessions]
    for session_id in ids:
        await store.forget_recordings(Selection(session_id=session_id))
    memories = await erase(ids)
    total, deleted = sum(session.message_count for session in sessions), 0
    for session in sessions:
        remaining: int | None = session.message_count
        while remaining is not None:
            remaining = await store.delete_session(session.session_id, _EVENTS_AT_ONCE)
            if progress is not None:
                progress(deleted + session.message_count - (remaining or 0), total)
        deleted += session.message_count
    # Another process may have taken something out of the queue before it was emptied.
    return memories + await erase(ids)


def list_begun_deletions(home: Path) -> list[str]:
    """Return the ids of sessions whose deletion has begun here and has not ended."""
    return sorted(path.name for path in (home / _MARKS).glob("*"))
