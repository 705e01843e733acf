"""Sessions as wholes: names them, reads them as a file, deletes them everywhere.

Everywhere means: memories, recording queue, log, registry, locks, backups, debug files, and their bytes. A session is
marked first. When the process dies before it is gone, the next deletion finishes it, and nobody can go on with it.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from massmem.config.home import explain_write_error, list_files, make_file, make_folder
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, SessionBusyError
from massmem.core.ids import check_session_name
from massmem.core.records import EVERYBODY, ListedSession, SessionFilter, SessionRecord
from massmem.core.transcript import LoggedTurn
from massmem.core.versions import TurnTree
from massmem.export import Format, redact_messages, redact_session
from massmem.memory.persistent import Selection
from massmem.recording.forgetting import EraseSessions, open_session_eraser
from massmem.session.copies import hand_over
from massmem.session.lease import ProcessLock, hold_lease, mark_interrupted
from massmem.session.portable import redact_event, write_log
from massmem.session.registry import Registry
from massmem.store.lookup import load_attachments, read_transcript
from massmem.store.ports import SessionStore


async def find_by_real_status(store: SessionStore, home: Path, criteria: SessionFilter) -> list[ListedSession]:
    """Return active or interrupted sessions: one whose process was killed is active in the store until it resumes."""
    by_id: dict[str, ListedSession] = {}
    for stored in ("active", "interrupted"):
        listed = await store.find_sessions(criteria.model_copy(update={"status": stored}))
        marked = await mark_all(store, home, listed)
        by_id |= {one.session.session_id: one for one in marked if one.session.status == criteria.status}
    return sorted(by_id.values(), key=lambda listed: listed.session.updated_at, reverse=True)


async def mark_all(store: SessionStore, home: Path, listed: Sequence[ListedSession]) -> list[ListedSession]:
    """Return the sessions with the status that they really have, see `mark_interrupted`."""
    return [one.model_copy(update={"session": await mark_interrupted(store, home, one.session)}) for one in listed]


async def rename_session(store: SessionStore, session: SessionRecord, title: str) -> SessionRecord:
    """Give a session a title; return the session as it is then.

    Raises:
        InputError: the title cannot be a name, or is the title or the id of another session of the owner.
        StoreError
    """
    title = check_session_name(" ".join(title.split()))
    same_title = [
        listed.session for listed in await store.find_sessions(SessionFilter(title=title, owner=session.owner), 2)
    ]
    same_id = await store.get_session(title)
    for other in [*same_title, *([same_id] if same_id and same_id.owner == session.owner else [])]:
        if other.session_id != session.session_id:
            raise InputError(
                f"another session is called {title!r}: {other.session_id}", "choose another name, or rename that one"
            )
    await store.rename_session(session.session_id, title)
    return session.model_copy(update={"title": title})


async def choose_version(store: SessionStore, session_id: str, turn: int) -> int:
    """Show a version of a turn, with what followed it last; return the last turn that is shown then.

    The caller holds the session's lease. Raises InputError: there is no such version.
    """
    choice = TurnTree(await store.list_places(session_id)).plan_choice(turn)
    if choice.withdrawn or choice.restored:
        await store.append(session_id, 0, [choice])
    return choice.turn


async def export_session(
    store: SessionStore, session: SessionRecord, form: Format, *, detailed: bool, shown: SessionRecord | None = None
) -> AsyncGenerator[tuple[str, int]]:
    """Yield the pieces of the file, each with the number of messages so far. Raise StoreError.

    detailed: with every step of the agents, where the format leaves that open. shown: what the file says of the session
    itself; None: what the store does.
    """
    params = (await store.load_state(session.session_id)).params
    yield form.write_start(redact_session(shown or session, params)), 0
    first, done = True, 0
    async with aclosing(read_transcript(store, session, lambda event: redact_event(event, params))) as turns:
        async for turn in turns:
            files = await load_attachments(store, session.session_id, turn.result.files)
            done += len(turn.messages)
            clean = LoggedTurn(turn.result, redact_messages(turn.messages, params), files)
            yield form.write_turn(clean, first, detailed), done
            first = False
    if not form.has_log:
        yield form.end, done
        return
    async with aclosing(write_log(store, session.session_id, (shown or session).session_id, params)) as pieces:
        async for piece in pieces:
            yield piece, done


Progress = Callable[[int, int], None]
"""Called with the number of deleted messages and the number of all that are to be deleted."""

_EVENTS_AT_ONCE = 2_000
"""Events that one transaction deletes: others write between two of them."""

_BLOCK = 2**20
"""Bytes that are searched at once: no other thread of the process goes on meanwhile."""

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
        unfinished = await self.store.find_sessions(SessionFilter(owner=EVERYBODY, status="deleting"))
        marked = [listed.session for listed in unfinished]
        selected = {session.session_id: session for session in (*sessions, *marked)}
        begun_ids = list_begun_deletions(self.home)
        traces = [session_id for session_id in begun_ids if await self.store.get_session(session_id) is None]
        opening = open_session_eraser(self.config.memory, self.home, os.environ)
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
        await asyncio.to_thread(Registry(self.home).remove, *session_ids)


async def delete_contents(
    store: SessionStore, sessions: Sequence[SessionRecord], erase: EraseSessions, progress: Progress | None = None
) -> int:
    """Delete the memories, the recording jobs and the log of marked sessions; return how many memories that were.

    Memories go first: as long as there are any, the session exists and says that it is being deleted. The caller holds
    the sessions' leases.
    """
    ids = [session.session_id for session in sessions]
    for session_id in ids:
        await hand_over(store, session_id)
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


@dataclass(frozen=True, slots=True)
class TraceCounts:
    debug_runs: int = 0
    """Folders with the debug files of one run."""
    reports: int = 0
    """Crash reports, and copies of the registry."""
    backups: int = 0
    """Copies of the database."""
    lines: int = 0
    """Lines of log files, and of what was typed in conversations."""


@dataclass(frozen=True, slots=True)
class Traces:
    """The files below the home and below a working folder. All methods block."""

    config: TeamConfig
    home: Path
    folder: Path
    """The working directory, in which debug files may be."""

    def find(self, texts: Sequence[bytes]) -> tuple[list[Path], ...]:
        """Return the debug folders and files that have one of the texts, in the order of TraceCounts."""
        database, home = find_database(self.config), self.home
        debug_logs = [folder / ".massmem" / "massmem_logs" for folder in {self.folder, home.parent}]
        candidates = (
            [run for folder in debug_logs for run in folder.glob("log_*")],
            [*home.glob("sessions.json.*"), *home.glob("logs/crash-*")],
            # From before a migration; they are kept when it fails.
            [] if database is None else [*database.parent.glob(f"{database.name}.bak-*")],
            [*home.glob("logs/*.log"), home / "history"],
        )
        return tuple(
            [path for path in paths if any(has_any(file, texts) for file in (path, *list_files(path)))]
            for paths in candidates
        )

    def delete(self, texts: Sequence[bytes]) -> TraceCounts:
        """Delete debug files, crash reports, backups and lines that have one of the texts. Raises HomeError."""
        try:
            runs, reports, backups, with_lines = self.find(texts)
            for run in runs:
                shutil.rmtree(run)
            for path in (*reports, *backups):
                path.unlink(missing_ok=True)
            lines = sum(_delete_lines(path, texts) for path in with_lines)
        except OSError as e:
            raise explain_write_error(self.home, e) from e
        return TraceCounts(len(runs), len(reports), len(backups), lines)


def find_database(config: TeamConfig) -> Path | None:
    """Return the file of the store; None for a store on a server, or without a file."""
    kind, _, name = config.store.url.partition(":///")
    return Path(name).expanduser() if kind == "sqlite" else None


def has_any(path: Path, texts: Sequence[bytes]) -> bool:
    """Return whether a file has one of the texts; one that is gone has none."""
    overlap = max(map(len, texts), default=1) - 1
    with suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
        end = b""
        while block := file.read(_BLOCK):
            data = end + block
            if any(text in data for text in texts):
                return True
            end = data[-overlap:] if overlap else b""
    return False


def _delete_lines(path: Path, texts: Sequence[bytes]) -> int:
    """Delete the lines with one of the texts, in place: another process may have the file open, and goes on at its end.

    Returns how many those were.
    """
    if not has_any(path, texts):
        return 0
    lines = path.read_bytes().splitlines(keepends=True)
    remaining = [line for line in lines if not any(text in line for text in texts)]
    path.write_bytes(b"".join(remaining))
    return len(lines) - len(remaining)
