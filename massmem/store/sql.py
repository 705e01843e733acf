"""The session store on a relational database: SQLAlchemy Core, in threads. The statements are the same for all.

What differs between databases is a `Dialect`, made by `sqlite.py` and `postgres.py`, which also open the store.
"""

import asyncio
from collections.abc import AsyncIterable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.errors import SessionExistsError, StoreError
from massmem.events import EVENT, Event, now
from massmem.memory.memories import Selection
from massmem.messages import clean_text
from massmem.records import (
    ListedSession,
    LogEntry,
    MessageRecord,
    MessageToRecord,
    RecordingCounts,
    RecordingKind,
    RecordingRecord,
    SessionCopy,
    SessionCounts,
    SessionFilter,
    SessionRecord,
    SessionState,
    TurnRecord,
)
from massmem.store import copying, message_rows, sessions, state, turn_rows
from massmem.store import recordings as queue
from massmem.store.append import Appending, restore
from massmem.store.base import Lease, Mark, Said, StoreInfo
from massmem.store.dialect import Dialect
from massmem.store.prepared import Row, Statement
from massmem.store.reads import Reads
from massmem.store.rows import entries, missing, payload
from massmem.store.threads import Ahead, Threads, Together, Work

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

T = TypeVar("T")

_ATTEMPTS = 5
WRITES = "massmem_writes"  # the execution option of connections that write
_UNDONE = 1_000  # messages of undone turns may match a query better without keeping others from being found


class SqlStore:
    """SessionStore over an engine. Reads run beside writes, on connections of their own."""

    def __init__(self, engine: sa.Engine, dialect: Dialect, info: StoreInfo) -> None:
        self.info = info
        self._engine = engine
        self._threads = Threads(engine, dialect.writers + dialect.readers)
        self._writer = engine.execution_options(**{WRITES: True})
        self._reader = engine.execution_options(**dialect.reading)
        self._dialect = dialect
        self._state = state.statements(dialect)
        self._writing = asyncio.Semaphore(dialect.writers)
        self._reads = Reads(self._threads, self._reader, max(1, dialect.readers))
        self._together = Together(self._threads, self._writer, self._writing) if dialect.writers == 1 else None

    async def create_session(self, session: SessionRecord) -> None:
        row = copying.session_row(session)

        def insert(connection: sa.Connection) -> None:
            try:
                sessions.CREATE.insert(connection, [row])
            except exc.IntegrityError as e:
                if self._dialect.is_duplicate(e.orig):
                    raise SessionExistsError(f"session {session.session_id!r} exists already") from e
                raise

        await self._write(insert)

    async def get_session(self, session_id: str) -> SessionRecord | None:
        found = await self._find(sessions.ONE, of_session=clean_text(session_id))
        return SessionRecord(**found[0]) if found else None

    async def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionRecord]:
        return [SessionRecord(**row) for row in await self._read(sessions.ALIVE.limit(limit).offset(offset))]

    async def find_sessions(
        self, wanted: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        return [sessions.listed_session(row) for row in await self._read(sessions.listed(wanted, limit, offset))]

    async def session_counts(self, wanted: SessionFilter) -> SessionCounts:
        return sessions.counted(await self._read(sessions.counts(wanted)))

    async def count_said(self, wanted: SessionFilter) -> int:
        return int((await self._read(sessions.said(wanted)))[0]["said"] or 0)

    async def asked(self, session_id: str, request: str) -> int | None:
        found = await self._find(turn_rows.REQUEST, of_session=clean_text(session_id), of_request=clean_text(request))
        return found[0]["seq"] if found else None

    async def rename_session(self, session_id: str, title: str) -> None:
        where = {"of_session": clean_text(session_id), "new_title": clean_text(title)}
        if not await self._change_of(session_id, sessions.RENAME, where):
            raise missing(session_id)

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        return await self._write(
            lambda connection: sessions.delete_some(connection, self._dialect, clean_text(session_id), limit)
        )

    async def erase(self) -> bool:
        async with self._writing:
            with self._errors():
                return await self._threads.erase(self._dialect.erase)

    async def append(
        self, session_id: str, turn: int, events: Sequence[Event], new: SessionState | None = None, leaving: str = ""
    ) -> list[int]:
        """As in the port. Raises also SessionBusyError: another process has begun this turn."""
        if not events:
            return []
        name = clean_text(session_id)
        appending = Appending(self._dialect, name, turn, [payload(event) for event in events])
        saved = None if new is None else state.saved(name, new.model_copy(update={"updated_at": now()}))

        def change(connection: sa.Connection) -> list[int]:
            numbers = appending.store(connection)
            if saved is not None:
                self._state.save.change(connection, saved)
            if leaving:
                state.leave(connection, name, clean_text(leaving))
            return numbers

        return await self._write(change, [appending.ahead])

    async def mark(self, session_id: str) -> Mark | None:
        found = await self._find(state.MARK, of_session=clean_text(session_id))
        return Mark(**found[0]) if found else None

    async def begin_turn(
        self, session_id: str, turn: int, events: Sequence[Event], lease: Lease, known: Mark
    ) -> list[int] | None:
        name = clean_text(session_id)
        appending = Appending(self._dialect, name, turn, [payload(event) for event in events])
        taken = state.lease(self._dialect, name, clean_text(lease.owner), lease.seconds, since=state.LONG)

        def change(connection: sa.Connection) -> list[int] | None:
            self._dialect.lock(connection, name)
            if not state.is_known(connection, name, known) or not self._state.acquire.change(connection, taken):
                return None
            return appending.store(connection)

        return await self._write(change, [appending.ahead])

    async def turn_events(self, session_id: str, turn: int) -> list[Event]:
        found = await self._read(copying.OF_TURN, of_session=clean_text(session_id), of_turn=turn)
        return [EVENT.validate_json(row["payload"]) for row in found]

    async def last_turn(self, session_id: str) -> TurnRecord | None:
        found = await self._find(turn_rows.LAST, of_session=clean_text(session_id))
        return TurnRecord(**found[0]) if found else None

    async def turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        where = {"of_session": clean_text(session_id), "after": after, "most": limit}
        return [TurnRecord(**row) for row in await self._read(turn_rows.PAGE, **where)]

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        where = {"of_session": clean_text(session_id), "of_turn": turn}
        await self._write(lambda connection: turn_rows.ABANDON.change(connection, where))

    async def conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        found = await self._find(message_rows.TALK, **message_rows.newest(session_id, before, limit))
        return [MessageRecord(**row) for row in found]

    async def said(self, session_id: str, owner: str, before: int | None, limit: int) -> list[Said]:
        where = message_rows.newest(session_id, before, limit) | {"of_owner": clean_text(owner)}
        return [Said._make(row) for row in await self._soon(partial(message_rows.SAID.all, parameters=where))]

    async def latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        found = await self._find(message_rows.SUMMARY, of_session=clean_text(session_id), of_agent=agent_id)
        return MessageRecord(**found[0]) if found else None

    async def messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        where = {"of_session": clean_text(session_id), "after": after, "most": limit}
        return [MessageRecord(**row) for row in await self._read(message_rows.PAGE, **where)]

    async def messages_by_id(self, ids: Sequence[str]) -> list[MessageRecord]:
        found = await self._read(message_rows.BY_ID, of_messages=ids) if ids else []
        return [MessageRecord(**row) for row in found]

    async def messages_to_record(self, ids: Sequence[str]) -> list[MessageToRecord]:
        found = await self._find(message_rows.TO_RECORD, of_messages=ids) if ids else []
        return [message_rows.to_record(row) for row in found]

    async def turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        found = await self._read(message_rows.OF_TURN, of_session=clean_text(session_id), of_turn=turn)
        return [MessageRecord(**row) for row in found]

    async def repeated(self, message_ids: Sequence[str]) -> list[str]:
        found = await self._find(queue.SAME_TEXT, of_messages=message_ids) if message_ids else []
        return [row["id"] for row in found]

    async def search_text(
        self, query: str, session_ids: Sequence[str] | None = None, limit: int = 20
    ) -> list[MessageRecord]:
        words = clean_text(query)
        if await self.look(self._dialect.behind):
            await self._write(self._dialect.catch_up)
        search = self._dialect.search(message_rows.ANY, words, session_ids, limit)
        found = [] if search is None else [MessageRecord(**row) for row in await self._read(search)]
        # Asked for only now: of thousands of matches few are undone, and to tell takes a look for each.
        if found and await self._read(turn_rows.undone({(m.session_id, m.turn) for m in found})):
            wider = self._dialect.search(message_rows.ANY, words, session_ids, limit + _UNDONE)
            assert wider is not None  # it has words
            standing = wider.where(turn_rows.STANDS).limit(limit)
            found = [MessageRecord(**row) for row in await self._read(standing)]
        return found

    async def winners(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        found = await self._find(turn_rows.WINNERS, of_sessions=session_ids) if session_ids else []
        return {(row["session_id"], row["turn"]): row["winner"] for row in found}

    async def set_memory_group(self, session_id: str, group: str) -> None:
        where = {"of_session": clean_text(session_id), "new_group": clean_text(group)}
        await self._change_of(session_id, sessions.GROUP, where)

    async def due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingRecord]:
        query, parameters = queue.due(kind, limit, session_id, now())
        return [queue.record(row) for row in await self._find(query, **parameters)]

    async def claim_recording(self, recording: RecordingRecord, until: datetime) -> bool:
        where = queue.key(recording) | {"now": now(), "until": until}
        return await self._write(lambda connection: queue.CLAIM.change(connection, where)) == 1

    async def release_recording(self, recording: RecordingRecord) -> None:
        await self._write(lambda connection: queue.RELEASE.change(connection, queue.key(recording)))

    async def finish_recordings(
        self, recordings: Sequence[RecordingRecord], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        if recordings:
            rows = [queue.key(recording) | {"new_reason": reason} for recording in recordings]
            change = queue.FINISH if lasting else queue.HOLD
            await self._write(lambda connection: change.change_each(connection, rows))

    async def release_held(self) -> int:
        return await self._write(lambda connection: queue.RELEASE_HELD.change(connection, {}))

    async def fail_recording(self, recording: RecordingRecord, reason: str, retry_at: datetime | None) -> None:
        status = "failed" if retry_at is None else "pending"
        changed = {"new_status": status, "new_reason": clean_text(reason), "retry_at": retry_at}
        await self._write(lambda connection: queue.RETRY.change(connection, queue.key(recording) | changed))

    async def recording_counts(self, session_id: str | None = None) -> RecordingCounts:
        numbers, reason = queue.counts(session_id)
        return queue.counted(await self._read(numbers), await self._read(reason))

    async def requeue(self, session_id: str | None = None, *, done: bool) -> int:
        return await self._write(lambda connection: connection.execute(queue.requeue(session_id, done=done)).rowcount)

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        turns_ = sorted({message.turn for message in await self.messages_by_id(message_ids)})
        await self._write(
            lambda connection: queue.forget_fact(connection, clean_text(session_id), agent_id, turns_, words)
        )

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        await self._write(lambda connection: connection.execute(queue.forget(selection, message_ids)))

    async def state(self, session_id: str) -> SessionState:
        found = await self._find(state.GET_STATE, of_session=clean_text(session_id))
        return state.state(found[0]) if found else SessionState()

    async def save_state(self, session_id: str, new: SessionState) -> None:
        saved = state.saved(clean_text(session_id), new.model_copy(update={"updated_at": now()}))
        await self._change_of(session_id, self._state.save, saved)

    async def acquire_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        where = state.lease(self._dialect, clean_text(session_id), clean_text(owner), seconds)
        return await self._change_of(session_id, self._state.acquire, where) == 1

    async def lease_owner(self, session_id: str) -> str | None:
        found = await self._find(state.OWNER, of_session=clean_text(session_id))
        return found[0]["owner"] if found else None

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        where = state.lease(self._dialect, clean_text(session_id), clean_text(owner), seconds)
        return await self._change_of(session_id, self._state.renew, where) == 1

    async def release_lease(self, session_id: str, owner: str) -> None:
        where = {"of_session": clean_text(session_id), "of_owner": clean_text(owner)}
        await self._change_of(session_id, state.RELEASE, where)

    async def export_session(self, session_id: str) -> SessionCopy | None:
        session = await self.get_session(session_id)
        if session is None:
            return None
        abandoned = await self._read(copying.ABANDONED, of_session=session.session_id)
        turns = tuple(row["turn"] for row in abandoned)
        return SessionCopy(session=session, state=await self.state(session_id), abandoned=turns)

    async def export_log(self, session_id: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        where = {"of_session": clean_text(session_id), "after": after}
        found = await self._read(copying.LOG.limit(limit), **where)
        if not found:
            return []
        rows = await self._read(copying.QUEUE, **where, until=found[-1]["seq"])
        return entries(found, [queue.record(row) for row in rows])

    async def import_session(self, copy: SessionCopy, log: AsyncIterable[Sequence[LogEntry]]) -> None:
        session_id = clean_text(copy.session.session_id)
        async with self._writing:
            with self._errors():
                async with self._threads.transaction(self._writer) as run:
                    await run(partial(copying.begin, dialect=self._dialect, copy=copy))
                    async for entries in log:
                        await run(partial(restore, dialect=self._dialect, session_id=session_id, entries=entries))
                    await run(partial(copying.finish, save=self._state.save, copy=copy))

    async def close(self) -> None:
        for _ in range(self._dialect.writers):
            await self._writing.acquire()
        await self._threads.close()
        for _ in range(self._dialect.writers):
            self._writing.release()

    async def look(self, read: Work[T]) -> T:
        """Call `read` with a connection, for whoever opens the store."""
        with self._errors():
            return await self._threads.read(self._reader, read)

    async def _read(self, query: Statement | sa.Select[*tuple[Any, ...]], **parameters: Any) -> list[Row]:
        if isinstance(query, Statement):
            return await self.look(partial(query.rows, parameters=parameters))
        return await self.look(lambda connection: [{**row} for row in connection.execute(query, parameters).mappings()])

    async def _find(self, query: Statement, **parameters: Any) -> list[Row]:
        return await self._soon(partial(query.rows, parameters=parameters))

    async def _soon(self, read: Work[T]) -> T:
        """As `look`, for few rows that an index finds: others wait for them."""
        with self._errors():
            return await self._reads.read(read)

    async def _write(self, change: Work[T], ahead: Ahead = ()) -> T:
        """Run `change` in one transaction, which ends also when its caller is cancelled, see `Together.write`."""
        if self._together is None:
            return await asyncio.shield(asyncio.ensure_future(self._transact(change)))
        with self._errors():
            return await self._together.write(change, ahead)

    async def _transact(self, change: Work[T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                with self._errors():
                    async with self._writing:
                        return await self._threads.write(self._writer, change)
            except StoreError as e:
                if attempt == _ATTEMPTS - 1 or not _was_undone(e, self._dialect):
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _change_of(self, session_id: str, change: Statement, parameters: Row) -> int:
        """Write something that belongs to a session; returns how many rows it changed."""

        def run(connection: sa.Connection) -> int:
            try:
                return change.change(connection, parameters)
            except exc.IntegrityError as e:
                if self._dialect.is_missing_parent(e.orig):
                    raise missing(session_id) from e
                raise

        return await self._write(run)

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except exc.DBAPIError as e:
            raise self._dialect.error(e.orig) from e
        except exc.TimeoutError as e:
            raise self._dialect.error(e) from e


def _was_undone(error: StoreError, dialect: Dialect) -> bool:
    return isinstance(error.__cause__, exc.DBAPIError) and dialect.is_conflict(error.__cause__.orig)


if TYPE_CHECKING:
    _: type[SessionStore] = SqlStore
