"""The sessions of one owner, as every front end has them: to find, list, show, search, name, fork, export and delete.

Deleted is a session everywhere: memories, recording queue, log, registry, locks, backups, debug files, and their bytes.
It is marked first. When the process dies before it is gone, nobody can go on with it; the next deletion finishes it.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from massmem.config.home import make_file, make_folder
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, MemoryUnavailable, SessionBusyError, StoreError, UnknownSessionError
from massmem.core.ids import SESSION_ID, check_session_name
from massmem.core.records import (
    EVERYBODY,
    Everybody,
    ListedSession,
    MessageRecord,
    Owner,
    PublicSession,
    SessionFilter,
    SessionRecord,
)
from massmem.core.transcript import LoggedTurn, parse_ballot
from massmem.core.versions import TurnTree
from massmem.export import Format, redact_messages, redact_session
from massmem.memory.persistent import Selection
from massmem.recording.forgetting import EraseSessions, open_session_eraser
from massmem.session.copies import hand_over
from massmem.session.fork import fork_session
from massmem.session.lease import ProcessLock, hold_lease, mark_interrupted
from massmem.session.owners import public_session_id, to_stored_id
from massmem.session.portable import redact_event, write_log
from massmem.session.registry import Registry, register_sessions
from massmem.session.team import Team
from massmem.session.traces import Progress, Traces
from massmem.store.lookup import (
    find_session,
    get_newest_session,
    load_attachments,
    read_transcript,
)
from massmem.store.ports import SessionStore

_EVENTS_AT_ONCE = 2_000
"""Events that one transaction deletes: others write between two of them."""
_END_SECONDS = 1.0
"""Seconds for which another process may still hold a session whose answer its user has seen."""
_MARKS = "deleting"
"""Folder in the home with a file for each session whose deletion has begun."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    sessions: list[ListedSession]
    total: int
    """Of all sessions that match."""


@dataclass(frozen=True, slots=True)
class SessionHit:
    message: MessageRecord
    session: SessionRecord
    text: str
    """The reason of a ballot, else the whole message."""
    is_ballot: bool


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
class Sessions:
    """Sessions come with the status that they really have: a killed process leaves them active in the store.

    All methods raise StoreError.
    """

    config: TeamConfig
    home: Path
    store: SessionStore
    process: ProcessLock
    owner: Owner | Everybody
    service: Team | None = None
    """The team of a service, which has the memory open, and resumes the turns of its users; None: a command asks."""

    @classmethod
    def of(cls, team: Team, owner: Owner | Everybody) -> Self:
        return cls(team.config, team.home, team.store, team.process, owner, team)

    async def find(self, name: str | None) -> SessionRecord:
        """Return the session that the owner means, None: the one used last. Raises as the functions that it calls."""
        if name is None:
            return await self.mark(await get_newest_session(self.store, self.owner))
        return await self.mark(await find_session(self.store, name, self.owner))

    async def get(self, session_id: str) -> SessionRecord:
        """Return the session that the owner knows by this id. Raise UnknownSessionError, also for those of others."""
        stored_id = session_id if self.owner is EVERYBODY else to_stored_id(self.owner, session_id)
        session = await self.store.get_session(stored_id) if SESSION_ID.fullmatch(session_id) else None
        if session is None or self.owner not in (EVERYBODY, session.owner) or session.status == "deleting":
            raise UnknownSessionError("there is no such session")
        return await self.mark(session)

    async def _mark(self, listed: ListedSession) -> ListedSession:
        return listed.model_copy(update={"session": await self.mark(listed.session)})

    async def mark(self, session: SessionRecord) -> SessionRecord:
        """Return the session with its real status; what a service resumes by itself is active."""
        if self.service is not None and session.user_id is not None:
            return session
        return await mark_interrupted(self.store, self.home, session)

    async def list(self, criteria: SessionFilter, limit: int | None = None, offset: int = 0) -> SessionPage:
        """Return the sessions that match, the last used first; those that are being deleted are among them."""
        if criteria.status not in ("active", "interrupted"):
            sessions = [await self._mark(one) for one in await self.store.find_sessions(criteria, limit, offset)]
            return SessionPage(sessions, (await self.store.count_sessions(criteria)).sessions)
        stored = [criteria.model_copy(update={"status": status}) for status in ("active", "interrupted")]
        listed = [await self._mark(one) for query in stored for one in await self.store.find_sessions(query)]
        by_id = {one.session.session_id: one for one in listed if one.session.status == criteria.status}
        matches = sorted(by_id.values(), key=lambda one: one.session.used, reverse=True)
        return SessionPage(matches[offset : None if limit is None else offset + limit], len(matches))

    async def list_conversations(self, limit: int | None = None, offset: int = 0, text: str = "") -> SessionPage:
        """Return the sessions in which something was said and that are not being deleted. text: as in SessionFilter."""
        page = await self.list(SessionFilter(owner=self.owner, has_messages=True, text=text), limit, offset)
        return replace(page, sessions=[one for one in page.sessions if one.session.status != "deleting"])

    async def describe(self, session: SessionRecord) -> PublicSession:
        """Return the session as lists show it."""
        criteria = SessionFilter(owner=session.owner, session_id=session.session_id)
        for listed in await self.store.find_sessions(criteria):
            return self.publish(await self._mark(listed))
        raise UnknownSessionError("there is no such session")

    def publish(self, listed: ListedSession) -> PublicSession:
        """Return a session in its public form."""
        return PublicSession.of(listed.model_copy(update={"session": self._hide_internals(listed.session)}))

    def _hide_internals(self, session: SessionRecord) -> SessionRecord:
        """Return a session as a user of the service may see it."""
        if self.service is None or session.user_id is None:
            return session
        hidden = {"config_path": "", "user_id": None, "memory_group": "", "history_hash": "", "origins": ()}
        return session.model_copy(update={"session_id": public_session_id(session.session_id), **hidden})

    async def search(self, words: str, limit: int, within: SessionRecord | None = None) -> Sequence[SessionHit]:
        """Find messages by their words, best first, in one session or in all; values that were asked for stay out."""
        ids = None if within is None else [within.session_id]
        messages = await self.store.search_messages(words, ids, limit, owner=self.owner)
        sessions = {name: await self.store.get_session(name) for name in {m.session_id for m in messages}}
        hits: list[SessionHit] = []
        for message in messages:
            session, ballot = sessions[message.session_id], parse_ballot(message)
            is_value = isinstance(message.metadata.get("param"), str)
            if session is not None and session.status != "deleting" and not is_value:
                hits.append(SessionHit(message, session, ballot[1] if ballot else message.content, ballot is not None))
        return hits

    async def rename(self, session: SessionRecord, title: str) -> SessionRecord:
        """Give a session a title; return the session as it is then.

        Raises InputError: the title cannot be a name, or is the title or the id of another session of its owner.
        """
        title = check_session_name(" ".join(title.split()))
        await self._require_free(session, title)
        await self.store.rename_session(session.session_id, title)
        try:
            await self._require_free(session, title)
        except InputError:  # another process has given it to another session at the same moment
            await self.store.rename_session(session.session_id, session.title)
            raise
        renamed = session.model_copy(update={"title": title})
        await self.register(renamed)
        return renamed

    async def _require_free(self, session: SessionRecord, title: str) -> None:
        """Raise InputError: the title is the title or the id of another session of the owner."""
        same_title = await self.store.find_sessions(SessionFilter(title=title, owner=session.owner), 2)
        with_id = SessionFilter(session_id=to_stored_id(session.owner, title), owner=session.owner)
        for listed in (*same_title, *await self.store.find_sessions(with_id)):
            if (other := listed.session.session_id) != session.session_id:
                raise InputError(
                    f"another session is called {title!r}: {public_session_id(other)}",
                    "choose another name, or rename that one",
                )

    async def fork(self, session: SessionRecord, turn: int | None = None, event: int | None = None) -> SessionRecord:
        """Begin a new session with a copy of this one. Arguments, raises: as `fork_session`."""
        prefix = to_stored_id(session.owner, "")
        fork = await fork_session(self.store, session.session_id, turn, prefix, event=event)
        if self.service is not None:
            self.service.memory.wake()
        await self.register(fork)
        return fork

    async def register(self, *sessions: SessionRecord) -> None:
        """Enter sessions in the registry of this machine. Raises HomeError."""
        await register_sessions(self.home, self.config.store.url, sessions)

    async def choose_version(self, session: SessionRecord, turn: int) -> int:
        """Show a version of a turn, with what followed it last; return the last turn that is shown then.

        Raises InputError: there is no such version. SessionBusyError: a turn is under way.
        """
        async with hold_lease(self.store, self.process, session.session_id, self._wait):
            choice = TurnTree(await self.store.list_places(session.session_id)).plan_choice(turn)
            if choice.withdrawn or choice.restored:
                await self.store.append(session.session_id, 0, [choice])
            return choice.turn

    @property
    def _wait(self) -> float:
        return 0.0 if self.service is None else _END_SECONDS

    async def export(self, session: SessionRecord, form: Format, *, detailed: bool) -> AsyncGenerator[tuple[str, int]]:
        """Yield the pieces of the file, each with the number of messages so far.

        detailed: with every step of the agents, where the format leaves that open.
        """
        params = (await self.store.load_state(session.session_id)).params
        shown = self._hide_internals(session)
        yield form.write_start(redact_session(shown, params)), 0
        done = 0
        async with aclosing(read_transcript(self.store, session, lambda event: redact_event(event, params))) as turns:
            async for turn in turns:
                files = await load_attachments(self.store, session.session_id, turn.result.files)
                clean = LoggedTurn(turn.result, redact_messages(turn.messages, params), files)
                is_first, done = done == 0, done + len(turn.messages)
                yield form.write_turn(clean, is_first, detailed), done
        if not form.has_log:
            yield form.end, done
            return
        async with aclosing(write_log(self.store, session.session_id, shown.session_id, params)) as pieces:
            async for piece in pieces:
                yield piece, done

    async def list_deleting(self) -> Sequence[SessionRecord]:
        """Return the sessions, of every owner, of which a deletion has not finished."""
        unfinished = await self.store.find_sessions(SessionFilter(owner=EVERYBODY, status="deleting"))
        return [listed.session for listed in unfinished]

    async def delete(
        self, sessions: Sequence[SessionRecord], progress: Progress = lambda _done, _all: None, *, erases: bool = True
    ) -> DeletionResult:
        """Delete these sessions, and what is left here of deletions that were cut off.

        erases: also their bytes in the files of the store, which takes longer.

        Raises:
            MemoryUnavailable: the memory cannot be used now; what has begun to be deleted says so in lists.
            StoreError: what was deleted is gone; the next deletion goes on.
        """
        selected = {session.session_id: session for session in sessions}
        traces = [name for name in list_begun_deletions(self.home) if await self.store.get_session(name) is None]
        async with self._open_eraser() as erase, AsyncExitStack() as leases:
            free = [session for session in selected.values() if await self._claim(session.session_id, leases)]
            try:
                memories = await delete_contents(self.store, free, erase, progress)
            except MemoryUnavailable as e:
                raise MemoryUnavailable(e.message, "the deletion has begun: run the same command again then") from e
            erased = await self.store.erase_deleted() if erases else False
            ids = (*(session.session_id for session in free), *traces)
            await self.delete_traces(ids)
        for session_id in ids:
            (self.home / _MARKS / session_id).unlink(missing_ok=True)
        left = [session_id for session_id in selected if session_id not in ids]
        busy = tuple([session_id for session_id in left if await self.store.get_session(session_id) is not None])
        return DeletionResult(ids, busy, sum(session.message_count for session in free), memories, erased)

    @asynccontextmanager
    async def _open_eraser(self) -> AsyncGenerator[EraseSessions]:
        if self.service is not None:
            yield self.service.memory.forget
            return
        async with open_session_eraser(self.config.memory, self.home, os.environ) as erase:
            yield erase

    async def _claim(self, session_id: str, leases: AsyncExitStack) -> bool:
        """Mark the session as being deleted and hold its lease. False: a turn of it is under way, or it is gone."""
        try:
            await leases.enter_async_context(hold_lease(self.store, self.process, session_id, self._wait))
        except SessionBusyError:
            return False
        except StoreError:
            if await self.store.get_session(session_id) is not None:
                raise
            return False  # another process has deleted it meanwhile
        marks = self.home / _MARKS
        make_folder(marks)
        make_file(marks / session_id)
        await self.store.delete_session(session_id, 0)
        return True

    async def delete_traces(self, session_ids: Sequence[str]) -> None:
        """Delete what this machine has of the sessions beside the store: files that mention them, registry entries.

        Raises HomeError.
        """
        names = [session_id.encode() for session_id in session_ids]
        await asyncio.to_thread(Traces(self.config, self.home, Path.cwd()).delete, names)
        await asyncio.to_thread(Registry(self.home).remove, *session_ids)


async def delete_contents(
    store: SessionStore, sessions: Sequence[SessionRecord], erase: EraseSessions, progress: Progress
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
            progress(deleted + session.message_count - (remaining or 0), total)
        deleted += session.message_count
    # Another process may have taken something out of the queue before it was emptied.
    return memories + await erase(ids)


def list_begun_deletions(home: Path) -> list[str]:
    """Return the ids of sessions whose deletion has begun here and has not ended."""
    return sorted(path.name for path in (home / _MARKS).glob("*"))
