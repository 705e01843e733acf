"""Sessions as a whole: creating, finding, naming, deleting and copying them; and the API keys of users."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.core.errors import SessionExistsError
from massmem.core.messages import clean_text
from massmem.core.records import (
    EVERYBODY,
    ApiKey,
    ListedSession,
    LogEntry,
    PageSession,
    SessionCopy,
    SessionCounts,
    SessionFilter,
    SessionRecord,
)
from massmem.store.encoding import build_log_page
from massmem.store.ports import MAX_BROWSERS, FilePages, LogPages, SessionFields, check_replaced, unknown_session_error
from massmem.store.schema import (
    HAS_HISTORY,
    HAS_OWNER,
    IS_CONVERSATION,
    KEY,
    MAY_BE_CUT_OFF,
    SESSION,
    api_keys,
    chat_messages,
    chat_sessions,
    events,
    is_owned_by,
    page_sessions,
    recordings,
    turns,
)
from massmem.store.schema import files as stored_files
from massmem.store.sql.database import Database, Row
from massmem.store.sql.log import (
    STANDS,
    UPDATE_TURN,
    build_file_rows,
    build_save_state,
    fetch_state,
    restore_events,
    rewrite_events,
)
from massmem.store.sql.queue import build_recording

_s = chat_sessions.c
_ROWS = sa.select(*(_s[name] for name in SessionRecord.model_fields))
_GET = _ROWS.where(_s.session_id == SESSION)
_UPDATE = sa.update(chat_sessions).where(_s.session_id == SESSION)
_DELETE = sa.delete(chat_sessions).where(_s.session_id == SESSION)
_FILE_NAMES = sa.select(stored_files.c.hash).where(stored_files.c.session_id == SESSION).order_by(stored_files.c.hash)
_DELETE_FILES = sa.delete(stored_files).where(stored_files.c.session_id == SESSION)
_LAST_USED_FIRST = (_s.used.desc(), _s.created_at.desc(), _s.session_id.desc())
_IN_CONVERSATION = sa.and_(chat_messages.c.session_id == _s.session_id, sa.text(f"({IS_CONVERSATION})"))
_CONVERSATION_LENGTH = sa.select(sa.func.count()).where(_IN_CONVERSATION).scalar_subquery()


def _of_last_answer(column: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    answers = sa.select(column).where(_IN_CONVERSATION, chat_messages.c.final.is_(True), STANDS)
    return answers.order_by(chat_messages.c.seq.desc()).limit(1).scalar_subquery()


_LIST = sa.select(
    chat_sessions,
    sa.func.coalesce(
        sa.select(sa.func.max(turns.c.turn)).where(turns.c.session_id == _s.session_id).scalar_subquery(), 0
    ).label("turns"),
    _CONVERSATION_LENGTH.label("conversation_length"),
    _of_last_answer(chat_messages.c.confidence).label("confidence"),
    _of_last_answer(chat_messages.c.escalated).label("escalated"),
).order_by(*_LAST_USED_FIRST)


class SqlSessionCatalogue:
    _database: Database

    async def create_session(self, session: SessionRecord) -> None:
        def insert(connection: sa.Connection) -> None:
            try:
                connection.execute(sa.insert(chat_sessions), session.model_dump())
            except exc.IntegrityError as e:
                if self._database.dialect.find_refusal(e.orig) == "duplicate":
                    raise SessionExistsError(f"session {session.session_id!r} exists already") from e
                raise

        await self._database.write(insert)

    async def get_session(self, session_id: str) -> SessionRecord | None:
        rows = await self._database.fetch(_GET, {"of_session": session_id})
        return SessionRecord(**rows[0]) if rows else None

    async def list_sessions(self) -> list[SessionRecord]:
        query = _ROWS.where(_s.status != "deleting")
        query = query.order_by(_s.created_at.desc(), _s.session_id.desc())
        return await self._database.fetch_as(lambda row: SessionRecord(**row), query)

    async def find_sessions(
        self, criteria: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        if limit is None:
            query = _LIST.where(*_conditions(criteria)).offset(offset)
        else:
            # Chosen first: SQLite would count the turns and messages of every session to show a few.
            page = sa.select(_s.session_id).where(*_conditions(criteria)).order_by(*_LAST_USED_FIRST)
            query = _LIST.where(_s.session_id.in_(page.limit(limit).offset(offset).correlate(None)))
        return await self._database.fetch_as(_build_listed_session, query)

    async def count_sessions(self, criteria: SessionFilter) -> SessionCounts:
        query = sa.select(
            _s.status,
            sa.func.count().label("sessions"),
            sa.func.sum(sa.case((_s.active, 1), else_=0)).label("active"),
            sa.func.sum(_s.message_count).label("messages"),
            sa.func.sum(_s.size).label("bytes"),
        ).group_by(_s.status)
        rows = await self._database.fetch(query.where(*_conditions(criteria)))
        return SessionCounts(
            sessions=sum(row["sessions"] for row in rows),
            active=sum(row["active"] for row in rows),
            messages=sum(row["messages"] for row in rows),
            bytes=sum(int(row["bytes"]) for row in rows),
            by_status={row["status"]: row["sessions"] for row in rows},
        )

    async def count_messages(self, criteria: SessionFilter) -> int:
        total = sa.func.coalesce(sa.func.sum(_CONVERSATION_LENGTH), 0).label("total")
        rows = await self._database.fetch(sa.select(total).select_from(chat_sessions).where(*_conditions(criteria)))
        return int(rows[0]["total"])

    async def rename_session(self, session_id: str, title: str) -> None:
        rename = _UPDATE.where(_s.status != "deleting").values(title=title)
        if not await self._database.execute(rename, {"of_session": session_id}):
            raise unknown_session_error(session_id)

    async def update_session(self, session_id: str, **fields: Unpack[SessionFields]) -> None:
        await self._database.execute(_UPDATE.values(**fields), {"of_session": session_id})

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        return await self._database.write(lambda connection: self._delete_part(connection, session_id, limit))

    async def erase_deleted(self) -> bool:
        return await self._database.erase_deleted()

    async def export_session(self, session_id: str) -> SessionCopy | None:
        session = await self.get_session(session_id)
        if session is None:
            return None
        abandoned = await self._database.fetch(
            sa.select(turns.c.turn)
            .where(turns.c.session_id == session_id, turns.c.status == "abandoned")
            .order_by(turns.c.turn)
        )
        state = await fetch_state(self._database, session_id)
        files = await self._database.fetch(_FILE_NAMES, {"of_session": session_id})
        return SessionCopy(
            session=session,
            state=state,
            abandoned=tuple(row["turn"] for row in abandoned),
            files=tuple(row["hash"] for row in files),
        )

    async def export_log(
        self, session_id: str, after: int = 0, limit: int = 1000, *, with_trimmed: bool = False
    ) -> list[LogEntry]:
        log = await self._database.fetch(
            sa.select(events.c.seq, events.c.turn, events.c.payload)
            .where(events.c.session_id == session_id, events.c.seq > after)
            .order_by(events.c.seq)
            .limit(limit)
        )
        if not log:
            return []
        r = recordings.c
        queue = await self._database.fetch(
            sa.select(recordings)
            .where(r.session_id == session_id, r.seq > after, r.seq <= log[-1]["seq"])
            .order_by(r.seq, r.kind, r.agent_id)
        )
        return build_log_page(log, [build_recording(row) for row in queue])

    async def import_session(
        self, copy: SessionCopy, log: LogPages, files: FilePages | None = None, *, replaces: int | None = None
    ) -> None:
        session_id = clean_text(copy.session.session_id)
        async with self._database.transaction() as run:
            await run(partial(self._replace_session, session=copy.session, replaces=replaces))
            async for entries in log:
                await run(partial(restore_events, database=self._database, session_id=session_id, entries=entries))
            if files is not None:
                async for part in files:
                    await run(partial(_insert_files, rows=build_file_rows(session_id, part)))
            await run(partial(self._restore_rest, copy=copy))

    async def rewrite_log(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        rewrite = partial(rewrite_events, database=self._database, session_id=session_id, entries=entries)
        await self._database.write(rewrite)

    def _delete_part(self, connection: sa.Connection, session_id: str, limit: int) -> int | None:
        self._database.dialect.lock_session(connection, session_id)
        key = {"of_session": session_id}
        connection.execute(_UPDATE.values(status="deleting", title="", last_message="", description="", size=0), key)
        if limit:
            oldest = sa.select(events.c.seq).where(events.c.session_id == session_id).order_by(events.c.seq)
            first_kept = connection.execute(oldest.offset(limit).limit(1)).scalar()
            if first_kept is None:
                connection.execute(_DELETE, key)
                return None
            connection.execute(_DELETE_FILES, key)
            for table in (recordings, chat_messages, events):
                deleted = connection.execute(
                    sa.delete(table).where(table.c.session_id == session_id, table.c.seq < first_kept)
                )
                if table is chat_messages:
                    connection.execute(_UPDATE.values(message_count=_s.message_count - deleted.rowcount), key)
        return connection.execute(sa.select(_s.message_count).where(_s.session_id == session_id)).scalar()

    def _replace_session(self, connection: sa.Connection, session: SessionRecord, replaces: int | None) -> None:
        """Delete what is there under this id, with all that belongs to it, and create the session anew."""
        self._database.dialect.lock_session(connection, session.session_id)
        last = sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == session.session_id)
        check_replaced(session.session_id, replaces, connection.execute(last).scalar() or 0)
        connection.execute(_DELETE, {"of_session": session.session_id})
        connection.execute(sa.insert(chat_sessions), session.model_dump() | {"message_count": 0})

    def _restore_rest(self, connection: sa.Connection, copy: SessionCopy) -> None:
        """Store what no event tells: a new title, abandoned turns, the state."""
        key = {"of_session": copy.session.session_id}
        for turn in copy.abandoned:
            connection.execute(UPDATE_TURN.values(status="abandoned"), key | {"of_turn": turn})
        if copy.state.updated_at is not None:
            connection.execute(build_save_state(self._database, copy.session.session_id, copy.state))
        connection.execute(_UPDATE.values(copy.session.model_dump()), key)


def _insert_files(connection: sa.Connection, rows: Sequence[Row]) -> None:
    connection.execute(sa.insert(stored_files), rows)


def _build_listed_session(row: Row) -> ListedSession:
    session = SessionRecord(**{name: row[name] for name in SessionRecord.model_fields})
    return ListedSession(
        session=session,
        turns=row["turns"],
        conversation_length=row["conversation_length"],
        confidence=row["confidence"],
        escalated=bool(row["escalated"]),
    )


def _conditions(criteria: SessionFilter) -> list[sa.ColumnElement[bool] | sa.TextClause]:
    where: list[sa.ColumnElement[bool] | sa.TextClause] = []
    if criteria.status is not None:
        where.append(_s.status == criteria.status)
    if criteria.text:
        text = clean_text(criteria.text)
        columns = (_s.session_id, _s.title, _s.last_message, _s.description)
        where.append(sa.or_(*(column.icontains(text, autoescape=True) for column in columns)))
    if criteria.title is not None:
        where.append(sa.func.lower(_s.title) == sa.func.lower(clean_text(criteria.title)))
    if criteria.prefix:
        where.append(_s.session_id.startswith(clean_text(criteria.prefix), autoescape=True))
    if criteria.since is not None:
        where.append(_s.updated_at >= criteria.since)
    if criteria.before is not None:
        where.append(_s.updated_at < criteria.before)
    if criteria.has_messages:
        where.append(_s.message_count > 0)
    if criteria.fork_of:
        where.append(sa.cast(_s.origins, sa.Text).contains(f'"{criteria.fork_of}"', autoescape=True))
    if criteria.cut_off:
        where.extend((sa.text(HAS_OWNER), sa.text(MAY_BE_CUT_OFF)))
    return [*where, *_client_conditions(criteria)]


def _client_conditions(criteria: SessionFilter) -> list[sa.ColumnElement[bool] | sa.TextClause]:
    where: list[sa.ColumnElement[bool] | sa.TextClause] = []
    if criteria.owner is not EVERYBODY:
        where.append(is_owned_by(criteria.owner))
    if criteria.session_id:
        where.append(_s.session_id == clean_text(criteria.session_id))
    if criteria.history_hash:
        where.extend((sa.text(HAS_HISTORY), _s.history_hash == criteria.history_hash))
    return where


_k = api_keys.c
_KEY_HASH = sa.bindparam("of_hash", type_=KEY)
_FIND_KEY = sa.select(api_keys).where(_k.key_hash == _KEY_HASH)
_p = page_sessions.c
_FIND_PAGE_SESSION = sa.select(page_sessions).where(_p.cookie_hash == _KEY_HASH)
_DELETE_PAGE_SESSION = sa.delete(page_sessions).where(_p.cookie_hash == _KEY_HASH)
_DELETE_KEY = sa.delete(api_keys).where(_k.id == sa.bindparam("of_id", type_=KEY))


class SqlKeyTable:
    _database: Database

    async def add_key(self, key: ApiKey) -> None:
        await self._database.execute(sa.insert(api_keys), key.model_dump())

    async def find_key(self, key_hash: str) -> ApiKey | None:
        rows = await self._database.fetch(_FIND_KEY, {"of_hash": key_hash})
        return ApiKey(**rows[0]) if rows else None

    async def list_keys(self) -> list[ApiKey]:
        rows = await self._database.fetch(sa.select(api_keys).order_by(_k.created_at, _k.id))
        return [ApiKey(**row) for row in rows]

    async def delete_key(self, key_id: str) -> bool:
        return await self._database.execute(_DELETE_KEY, {"of_id": key_id}) > 0

    async def add_page_session(self, session: PageSession) -> None:
        newest = sa.select(_p.cookie_hash).where(_p.sub == session.sub).order_by(_p.used_at.desc())
        is_too_old = sa.and_(_p.sub == session.sub, _p.cookie_hash.not_in(newest.limit(MAX_BROWSERS - 1)))
        is_dispensable = sa.or_(_p.expires_at < session.used_at, is_too_old)
        await self._database.execute(sa.delete(page_sessions).where(is_dispensable))
        await self._database.execute(sa.insert(page_sessions), session.model_dump())

    async def renew_page_session(self, session: PageSession) -> None:
        change = sa.update(page_sessions).where(_p.cookie_hash == session.cookie_hash)
        await self._database.execute(change.values(used_at=session.used_at))

    async def find_page_session(self, cookie_hash: str) -> PageSession | None:
        rows = await self._database.fetch(_FIND_PAGE_SESSION, {"of_hash": cookie_hash})
        return PageSession(**rows[0]) if rows else None

    async def delete_page_session(self, cookie_hash: str) -> None:
        await self._database.execute(_DELETE_PAGE_SESSION, {"of_hash": cookie_hash})
