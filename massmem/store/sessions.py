"""Statements about sessions as a whole: finding, naming, counting and deleting them."""

from typing import Any

import sqlalchemy as sa

from massmem.messages import clean_text
from massmem.records import ListedSession, SessionCounts, SessionFilter, SessionRecord
from massmem.store.base import Said
from massmem.store.dialect import Dialect
from massmem.store.prepared import Insertion, Statement
from massmem.store.schema import (
    CONVERSATION,
    CUT_OFF,
    OWNED,
    SESSION,
    chat_messages,
    chat_sessions,
    events,
    recordings,
    turns,
)

DELETING = "deleting"

_s = chat_sessions.c
_OF_SESSION = _s.session_id == SESSION

ONE = Statement(sa.select(chat_sessions).where(_OF_SESSION))
ALIVE = (
    sa.select(chat_sessions)
    .where(_s.status != DELETING)
    .order_by(_s.created_at.desc(), _s.session_id.desc())
)  # fmt: skip

_OWNED = sa.exists().where(
    _OF_SESSION, _s.user_id == sa.bindparam("of_owner", type_=sa.Text), _s.status != DELETING
)  # fmt: skip


def for_owner(conversation: sa.Select[*tuple[Any, ...]]) -> sa.Select[*tuple[Any, ...]]:
    """The messages that `conversation` selects, as `Said`, if the session is that of the parameter of_owner."""
    columns = [chat_messages.c[{"at": "created_at"}.get(field, field)] for field in Said._fields]
    return conversation.with_only_columns(*columns).where(_OWNED)


def _of_last_answer(column: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    m = chat_messages.c
    return (
        sa.select(column)
        # The first condition says nothing new; the index has only rows for which it is true.
        .where(m.session_id == _s.session_id, sa.text(f"({CONVERSATION})"), m.final.is_(True))
        .order_by(m.seq.desc())
        .limit(1)
        .scalar_subquery()
    )


_TURNS = sa.select(sa.func.max(turns.c.turn)).where(turns.c.session_id == _s.session_id).scalar_subquery()
_SAID = (
    sa.select(sa.func.count())
    .where(chat_messages.c.session_id == _s.session_id, sa.text(f"({CONVERSATION})"))
    .scalar_subquery()
)
_LAST_USED = (_s.updated_at.desc(), _s.created_at.desc(), _s.session_id.desc())
_LISTED = sa.select(
    chat_sessions,
    sa.func.coalesce(_TURNS, 0).label("turns"),
    _SAID.label("said"),
    _of_last_answer(chat_messages.c.confidence).label("confidence"),
    _of_last_answer(chat_messages.c.escalated).label("escalated"),
).order_by(*_LAST_USED)
_COUNTS = sa.select(
    _s.status,
    sa.func.count().label("sessions"),
    sa.func.sum(sa.case((_s.active, 1), else_=0)).label("active"),
    sa.func.sum(_s.message_count).label("messages"),
).group_by(_s.status)
CREATE = Insertion(chat_sessions)
RENAME = Statement(
    sa.update(chat_sessions)
    .where(_OF_SESSION, _s.status != DELETING)
    .values(title=sa.bindparam("new_title", type_=sa.Text))
)
GROUP = Statement(
    sa.update(chat_sessions).where(_OF_SESSION).values(memory_group=sa.bindparam("new_group", type_=sa.Text))
)
_MARK = sa.update(chat_sessions).where(_OF_SESSION)
_FIELDS = tuple(SessionRecord.model_fields)
_LEFT = sa.select(_s.message_count).where(_OF_SESSION)


def listed(wanted: SessionFilter, limit: int | None, offset: int) -> sa.Select[*tuple[Any, ...]]:
    if limit is None:
        return _LISTED.where(*_conditions(wanted)).limit(limit).offset(offset)
    # Chosen first: SQLite would count the turns and messages of every session, and sort these rows, to show a few.
    page = sa.select(_s.session_id).where(*_conditions(wanted)).order_by(*_LAST_USED).limit(limit).offset(offset)
    return _LISTED.where(_s.session_id.in_(page.correlate(None)))


def listed_session(row: dict[str, Any]) -> ListedSession:
    session = SessionRecord(**{name: row[name] for name in _FIELDS})
    return ListedSession(
        session=session,
        turns=row["turns"],
        said=row["said"],
        confidence=row["confidence"],
        escalated=bool(row["escalated"]),
    )


def said(wanted: SessionFilter) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(sa.func.sum(_SAID).label("said")).select_from(chat_sessions).where(*_conditions(wanted))


def counts(wanted: SessionFilter) -> sa.Select[*tuple[Any, ...]]:
    return _COUNTS.where(*_conditions(wanted))


def counted(rows: list[dict[str, Any]]) -> SessionCounts:
    return SessionCounts(
        sessions=sum(row["sessions"] for row in rows),
        active=sum(row["active"] for row in rows),
        messages=sum(row["messages"] for row in rows),
        by_status={row["status"]: row["sessions"] for row in rows},
    )


def delete_some(connection: sa.Connection, dialect: Dialect, session_id: str, limit: int) -> int | None:
    """Delete the oldest part of the session's log, `limit` events, and all of the session when no more are left.

    Returns how many messages are left, None when the session is gone.
    """
    dialect.lock(connection, session_id)
    where = {"of_session": session_id}
    connection.execute(_MARK.values(status=DELETING, title="", last_message="", description=""), where)
    if limit:
        last = connection.execute(
            sa.select(events.c.seq).where(events.c.session_id == SESSION).order_by(events.c.seq).offset(limit).limit(1),
            where,
        ).scalar()
        if last is None:
            connection.execute(sa.delete(chat_sessions).where(_OF_SESSION), where)
            return None
        for table in (recordings, chat_messages, events):
            gone = connection.execute(sa.delete(table).where(table.c.session_id == SESSION, table.c.seq < last), where)
            if table is chat_messages:
                connection.execute(_MARK.values(message_count=_s.message_count - gone.rowcount), where)
    return connection.execute(_LEFT, where).scalar()


def _conditions(wanted: SessionFilter) -> list[sa.ColumnElement[bool] | sa.TextClause]:
    where: list[sa.ColumnElement[bool] | sa.TextClause] = []
    if wanted.status is not None:
        where.append(_s.status == wanted.status)
    if wanted.text:
        columns = (_s.session_id, _s.title, _s.last_message, _s.description)
        where.append(sa.or_(*(column.icontains(clean_text(wanted.text), autoescape=True) for column in columns)))
    if wanted.title is not None:
        where.append(sa.func.lower(_s.title) == sa.func.lower(clean_text(wanted.title)))
    if wanted.prefix:
        where.append(_s.session_id.startswith(clean_text(wanted.prefix), autoescape=True))
    if wanted.since is not None:
        where.append(_s.updated_at >= wanted.since)
    if wanted.before is not None:
        where.append(_s.updated_at < wanted.before)
    if wanted.owner is not None:
        # The first condition says nothing new; the index has only rows for which it is true.
        where.extend((sa.text(OWNED), _s.user_id == clean_text(wanted.owner)))
    if wanted.cut_off:
        where.extend((sa.text(OWNED), sa.text(CUT_OFF)))
    return where
