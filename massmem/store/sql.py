"""The session store on a relational database: SQLAlchemy Core, async. SQLite now.

What differs between databases is gathered in `open_sqlite` and `sqlite.py`; the statements are portable.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from massmem.errors import SessionExistsError, StoreVersionError
from massmem.events import EVENT, Event, now
from massmem.home import make_file, make_folder, make_home
from massmem.memory.memories import Selection
from massmem.messages import clean_text
from massmem.records import (
    MessageRecord,
    RecordingCounts,
    RecordingKind,
    RecordingRecord,
    SessionRecord,
    TurnRecord,
)
from massmem.store import recordings as queue
from massmem.store import sqlite
from massmem.store.append import UPDATE_TURN, append, payload
from massmem.store.schema import (
    CONVERSATION,
    REVISIONS,
    SESSION,
    SUMMARIES,
    TURN,
    WITHOUT_DELTAS,
    chat_messages,
    chat_sessions,
    events,
    turns,
)

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

T = TypeVar("T")

_UNFINISHED = ("running", "failed", "interrupted")
_WRITES = "massmem_writes"
_READERS = 2

_GET_SESSION = sa.select(chat_sessions).where(chat_sessions.c.session_id == SESSION)
_LIST_SESSIONS = sa.select(chat_sessions).order_by(chat_sessions.c.created_at.desc(), chat_sessions.c.session_id.desc())
_TURN_EVENTS = (
    sa.select(events.c.payload)
    .where(events.c.session_id == SESSION, events.c.turn == TURN, sa.text(WITHOUT_DELTAS))
    .order_by(events.c.seq)
)
_ANY_MESSAGES = sa.select(*[column for column in chat_messages.c if column.name != "row_id"])
_MESSAGES = _ANY_MESSAGES.where(chat_messages.c.session_id == SESSION)
_TURN_MESSAGES = _ANY_MESSAGES.where(queue.OF_TURN).order_by(chat_messages.c.seq)
_CONVERSATION = _MESSAGES.where(sa.text(f"({CONVERSATION})")).order_by(chat_messages.c.seq.desc())
_SUMMARY = (
    _MESSAGES.where(sa.text(SUMMARIES), chat_messages.c.agent_id == sa.bindparam("of_agent", type_=sa.Text))
    .order_by(chat_messages.c.seq.desc())
    .limit(1)
)
_ABANDON = UPDATE_TURN.where(turns.c.status.in_(_UNFINISHED)).values(status="abandoned")
_question = chat_messages.alias("question")
_answer = chat_messages.alias("answer")
_LAST_TURN = (
    sa.select(
        turns.c.session_id,
        turns.c.turn,
        _question.c.content.label("question"),
        turns.c.status,
        turns.c.winner,
        _answer.c.content.label("answer"),
        turns.c.seed,
        turns.c.started_at,
        turns.c.ended_at,
    )
    .join(_question, sa.and_(_question.c.session_id == turns.c.session_id, _question.c.seq == turns.c.question_seq))
    .outerjoin(_answer, sa.and_(_answer.c.session_id == turns.c.session_id, _answer.c.seq == turns.c.answer_seq))
    .where(turns.c.session_id == SESSION)
    .order_by(turns.c.turn.desc())
    .limit(1)
)


async def open_sqlite(url: str, home: Path) -> "SqlStore":
    """Open, and when needed make or migrate, the database file. Raises as `massmem.store.open_store`."""
    path = sqlite.path_of(url)
    await asyncio.to_thread(_make_ready, path, home)
    engine = create_async_engine(
        sa.URL.create("sqlite+aiosqlite", database=str(path)),
        # Transactions are begun by _begin below and by nobody else.
        connect_args={"timeout": sqlite.BUSY_TIMEOUT, "isolation_level": None},
        pool_size=1 + _READERS,
        max_overflow=0,
        pool_use_lifo=True,
        pool_reset_on_return=None,
    )
    event.listen(engine.sync_engine, "connect", _configure)
    event.listen(engine.sync_engine, "begin", _begin)
    store = SqlStore(engine, path)
    try:
        # Connects now, so that what is wrong with the file shows here and the first question does not wait for it.
        await store.list_sessions(limit=1)
    except BaseException:
        await store.close()
        raise
    return store


def _make_ready(path: Path, home: Path) -> None:
    make_home(home)
    make_folder(path.parent)
    make_file(path)
    found = sqlite.revision(path)
    if found == REVISIONS[-1]:
        return
    if found is not None and found not in REVISIONS:
        raise StoreVersionError(
            f"{path} was written by a newer massmem (schema {found!r}, this program knows up to {REVISIONS[-1]!r})",
            "update massmem, or set store.url to another file",
        )
    from massmem.store import migrate  # Alembic takes 0.35 s to import and is needed once per release

    migrate.upgrade(path)


def _configure(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for setting in sqlite.SETTINGS:
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    # A writer takes the lock at once: a transaction that starts as a reader cannot wait for it later.
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class SqlStore:
    """SessionStore over an engine. path: the database file, for error messages.

    Within the process one write runs at a time, reads beside it on connections of their own.
    """

    def __init__(self, engine: AsyncEngine, path: Path) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{_WRITES: True})
        self._path = path
        self._writing = asyncio.Lock()

    async def create_session(self, session: SessionRecord) -> None:
        row = {name: clean_text(v) if isinstance(v, str) else v for name, v in session.model_dump().items()}

        def insert(connection: sa.Connection) -> None:
            try:
                connection.execute(sa.insert(chat_sessions), row)
            except exc.IntegrityError as e:
                if sqlite.is_duplicate(e.orig):
                    raise SessionExistsError(f"session {session.session_id!r} exists already") from e
                raise

        await self._write(insert)

    async def get_session(self, session_id: str) -> SessionRecord | None:
        found = await self._read(_GET_SESSION, of_session=clean_text(session_id))
        return SessionRecord(**found[0]) if found else None

    async def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionRecord]:
        return [SessionRecord(**row) for row in await self._read(_LIST_SESSIONS.limit(limit).offset(offset))]

    async def append(self, session_id: str, turn: int, events: Sequence[Event]) -> list[int]:
        """As in the port. Raises also SessionBusyError: another process has begun this turn."""
        if not events:
            return []
        batch = [payload(event) for event in events]
        return await self._write(lambda connection: append(connection, clean_text(session_id), turn, batch))

    async def turn_events(self, session_id: str, turn: int) -> list[Event]:
        found = await self._read(_TURN_EVENTS, of_session=clean_text(session_id), of_turn=turn)
        return [EVENT.validate_json(row["payload"]) for row in found]

    async def last_turn(self, session_id: str) -> TurnRecord | None:
        found = await self._read(_LAST_TURN, of_session=clean_text(session_id))
        return TurnRecord(**found[0]) if found else None

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        where = {"of_session": clean_text(session_id), "of_turn": turn}
        await self._write(lambda connection: connection.execute(_ABANDON, where))

    async def conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        query = _CONVERSATION if before is None else _CONVERSATION.where(chat_messages.c.seq < before)
        return [MessageRecord(**row) for row in await self._read(query.limit(limit), of_session=clean_text(session_id))]

    async def latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        found = await self._read(_SUMMARY, of_session=clean_text(session_id), of_agent=agent_id)
        return MessageRecord(**found[0]) if found else None

    async def messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        query = _MESSAGES.where(chat_messages.c.seq > after).order_by(chat_messages.c.seq).limit(limit)
        return [MessageRecord(**row) for row in await self._read(query, of_session=clean_text(session_id))]

    async def messages_by_id(self, ids: Sequence[str]) -> list[MessageRecord]:
        query = _ANY_MESSAGES.where(chat_messages.c.id.in_(ids)).order_by(chat_messages.c.id)
        return [MessageRecord(**row) for row in await self._read(query)]

    async def turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        found = await self._read(_TURN_MESSAGES, of_session=clean_text(session_id), of_turn=turn)
        return [MessageRecord(**row) for row in found]

    async def search_text(
        self, query: str, session_ids: Sequence[str] | None = None, limit: int = 20
    ) -> list[MessageRecord]:
        search = queue.search(_ANY_MESSAGES, clean_text(query), session_ids, limit)
        return [] if search is None else [MessageRecord(**row) for row in await self._read(search)]

    async def winners(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        found = await self._read(queue.winners(session_ids))
        return {(row["session_id"], row["turn"]): row["winner"] for row in found}

    async def set_memory_group(self, session_id: str, group: str) -> None:
        change = sa.update(chat_sessions).where(chat_sessions.c.session_id == clean_text(session_id))
        await self._write(lambda connection: connection.execute(change.values(memory_group=clean_text(group))))

    async def due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingRecord]:
        query, parameters = queue.due(kind, limit, session_id, now())
        return [queue.record(row) for row in await self._read(query, **parameters)]

    async def finish_recordings(self, recordings: Sequence[RecordingRecord], reason: str | None = None) -> None:
        if recordings:
            rows = [queue.key(recording) | {"new_reason": reason} for recording in recordings]
            await self._write(lambda connection: connection.execute(queue.FINISH, rows))

    async def fail_recording(self, recording: RecordingRecord, reason: str, retry_at: datetime | None) -> None:
        status = "failed" if retry_at is None else "pending"
        changed = {"new_status": status, "new_reason": clean_text(reason), "retry_at": retry_at}
        await self._write(lambda connection: connection.execute(queue.RETRY, queue.key(recording) | changed))

    async def recording_counts(self, session_id: str | None = None) -> RecordingCounts:
        numbers, reason = queue.counts(session_id)
        return queue.counted(await self._read(numbers), await self._read(reason))

    async def requeue(self, session_id: str | None = None, *, done: bool) -> int:
        change = queue.requeue(session_id, done=done)
        return await self._write(lambda connection: connection.execute(change).rowcount)

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        await self._write(lambda connection: connection.execute(queue.forget(selection, message_ids)))

    async def close(self) -> None:
        async with self._writing:
            await self._engine.dispose()

    async def _read(
        self, query: sa.Select[*tuple[Any, ...]], session_id: str = "", **more: Any
    ) -> list[dict[str, Any]]:
        parameters = {"of_session": clean_text(session_id), **more} if session_id else more
        with self._errors():
            async with self._engine.connect() as connection:
                result = await connection.execute(query, parameters)
                return [dict(row) for row in result.mappings()]

    async def _write(self, change: Callable[[sa.Connection], T]) -> T:
        """Run `change` in one transaction.

        A caller that is cancelled leaves at once and the transaction ends on its own: cutting it off would cost the
        connection, and the next write is often the one that says why.
        """
        return await asyncio.shield(asyncio.ensure_future(self._transact(change)))

    async def _transact(self, change: Callable[[sa.Connection], T]) -> T:
        async with self._writing:
            with self._errors():
                async with self._writer.begin() as connection:
                    return await connection.run_sync(change)

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except exc.DBAPIError as e:
            raise sqlite.store_error(e.orig, self._path) from e


if TYPE_CHECKING:
    _: type[SessionStore] = SqlStore
