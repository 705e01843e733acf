"""Deletes sessions everywhere: memories, queue, log, list, locks, backups and debug files, and their bytes.

What is only marked when the process dies is finished by the next deletion; until then nobody can go on with it.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from massmem.config.models import TeamConfig
from massmem.errors import SessionBusyError
from massmem.home import make_file, make_folder, unwritable
from massmem.memory.erasing import Erase, opened_for_erasing
from massmem.memory.memories import Selection
from massmem.records import SessionFilter, SessionRecord
from massmem.registry import Registry, RegistryDamaged, entry_of
from massmem.session.ownership import owned
from massmem.session.process import Process
from massmem.store.base import SessionStore

Progress = Callable[[int, int], None]
"""Told how many messages were deleted, of how many."""

_EVENTS = 5_000
"""Events that one transaction deletes: others write between two of them."""

_NOTES = "deleting"


@dataclass(frozen=True, slots=True)
class Place:
    """Where sessions are deleted. folder: the working directory, in which debug files may be. environ: for keys."""

    config: TeamConfig
    home: Path
    store: SessionStore
    folder: Path
    environ: dict[str, str]


@dataclass(frozen=True, slots=True)
class Deleted:
    """busy: sessions that were left alone, because a process runs a turn of them.

    erased: False when bytes may stay in the database file: it is very large, or another process reads it.
    """

    sessions: tuple[str, ...]
    busy: tuple[str, ...]
    messages: int
    memories: int
    erased: bool


async def delete_sessions(at: Place, sessions: Sequence[SessionRecord], progress: Progress) -> Deleted:
    """Delete these sessions, and those whose deletion was cut off.

    Raises:
        MemoryUnavailable: the memory is in use by another process; nothing was deleted.
        StoreError: what was deleted is gone; the next deletion goes on.
    """
    marked = await at.store.find_sessions(SessionFilter(status="deleting"))
    wanted = {session.session_id: session for session in (*sessions, *(each.session for each in marked))}
    gone = [name for name in begun(at.home) if await at.store.get_session(name) is None]
    async with opened_for_erasing(at.config.memory, at.home, at.environ) as erase, AsyncExitStack() as held:
        process = Process(at.home)
        held.callback(process.close)
        mine = [each for each in wanted.values() if await _hold(at, process, each.session_id, held)]
        memories = await _delete(at, mine, erase, progress)
        erased = await at.store.erase()
        ids = (*(each.session_id for each in mine), *gone)
        await asyncio.to_thread(_forget_files, at, ids)
        await _unlist(at, ids)
    await asyncio.to_thread(_forget_notes, at.home, ids)
    busy = tuple(name for name in wanted if name not in ids)
    return Deleted(ids, busy, sum(each.message_count for each in mine), memories, erased)


def begun(home: Path) -> list[str]:
    """Ids of sessions whose deletion was begun here, and has not ended: a file each, until all is erased."""
    return sorted(path.name for path in (home / _NOTES).glob("*"))


async def _hold(at: Place, process: Process, session_id: str, held: AsyncExitStack) -> bool:
    """Whether no turn of the session is under way; from now on none begins."""
    try:
        await held.enter_async_context(owned(at.store, process, session_id))
    except SessionBusyError:
        return False
    notes = at.home / _NOTES
    make_folder(notes)
    make_file(notes / session_id)
    await at.store.delete_session(session_id, 0)
    return True


async def _delete(at: Place, sessions: Sequence[SessionRecord], erase: Erase, progress: Progress) -> int:
    """Memories first: while there are any, the session is there too, and says that it is being deleted."""
    ids = [each.session_id for each in sessions]
    for session_id in ids:
        await at.store.forget_recordings(Selection(session_id=session_id))
    memories = await erase(ids)
    total, gone = sum(each.message_count for each in sessions), 0
    for session in sessions:
        left: int | None = session.message_count
        while left is not None:
            left = await at.store.delete_session(session.session_id, _EVENTS)
            progress(gone + session.message_count - (left or 0), total)
        gone += session.message_count
    # Another process may have taken something out of the queue before it was emptied.
    return memories + await erase(ids)


def _forget_files(at: Place, session_ids: Sequence[str]) -> None:
    names = [session_id.encode() for session_id in session_ids]
    try:
        for folder in {at.folder, at.home.parent}:
            for run in (folder / ".massmem" / "massmem_logs").glob("log_*"):
                if any(_mentions(path, names) for path in run.rglob("*")):
                    shutil.rmtree(run)
        for path in [*at.home.glob("sessions.json.damaged-*"), *at.home.glob("logs/crash-*"), *_backups(at)]:
            if _mentions(path, names):
                path.unlink()
        for path in at.home.glob("logs/*.log"):
            if _mentions(path, names):
                # In place: another process may have it open, and goes on at its end.
                lines = path.read_bytes().splitlines(keepends=True)
                path.write_bytes(b"".join(line for line in lines if not any(name in line for name in names)))
    except OSError as e:
        raise unwritable(at.home, e) from e


def _backups(at: Place) -> list[Path]:
    """Copies of the database from before a migration, which are kept when it fails."""
    kind, _, name = at.config.store.url.partition(":///")
    path = Path(name).expanduser()
    return list(path.parent.glob(f"{path.name}.bak-*")) if kind == "sqlite" else []


def _mentions(path: Path, names: Sequence[bytes]) -> bool:
    with suppress(FileNotFoundError, IsADirectoryError):
        data = path.read_bytes()
        return any(name in data for name in names)
    return False


def _forget_notes(home: Path, session_ids: Sequence[str]) -> None:
    for session_id in session_ids:
        (home / _NOTES / session_id).unlink(missing_ok=True)


async def _unlist(at: Place, session_ids: Sequence[str]) -> None:
    registry = Registry(at.home)
    try:
        for session_id in session_ids:
            await asyncio.to_thread(registry.remove, session_id)
    except RegistryDamaged as e:
        e.kept.unlink(missing_ok=True)  # nobody can tell which of its lines are about these sessions
        entries = [entry_of(each, at.config.store.url) for each in await at.store.list_sessions()]
        await asyncio.to_thread(registry.replace, entries)
