"""Statements that take a session out of one store and put it, whole or not at all, into another."""

from typing import Any

import sqlalchemy as sa

from massmem.messages import clean_text
from massmem.records import SessionCopy, SessionRecord
from massmem.store import state
from massmem.store.additions import UPDATE_TURN
from massmem.store.dialect import Dialect
from massmem.store.prepared import Statement
from massmem.store.schema import SESSION, TURN, WITHOUT_DELTAS, chat_sessions, events, recordings, turns
from massmem.store.sessions import CREATE

_AFTER = sa.bindparam("after", type_=sa.Integer)
LOG = (
    sa.select(events.c.seq, events.c.turn, events.c.payload)
    .where(events.c.session_id == SESSION, events.c.seq > _AFTER)
    .order_by(events.c.seq)
)
OF_TURN = Statement(
    sa.select(events.c.payload)
    .where(events.c.session_id == SESSION, events.c.turn == TURN, sa.text(WITHOUT_DELTAS))
    .order_by(events.c.seq)
)
QUEUE = (
    sa.select(recordings)
    .where(
        recordings.c.session_id == SESSION,
        recordings.c.seq > _AFTER,
        recordings.c.seq <= sa.bindparam("until", type_=sa.Integer),
    )
    .order_by(recordings.c.seq, recordings.c.kind, recordings.c.agent_id)
)
ABANDONED = (
    sa.select(turns.c.turn)
    .where(turns.c.session_id == SESSION, turns.c.status == "abandoned")
    .order_by(turns.c.turn)
)  # fmt: skip
_OF_SESSION = chat_sessions.c.session_id == SESSION


def session_row(session: SessionRecord) -> dict[str, Any]:
    return {name: clean_text(v) if isinstance(v, str) else v for name, v in session.model_dump().items()}


def begin(connection: sa.Connection, dialect: Dialect, copy: SessionCopy) -> None:
    """Make room: what was there under this id goes, with all that belongs to it."""
    row = session_row(copy.session)
    dialect.lock(connection, row["session_id"])
    connection.execute(sa.delete(chat_sessions).where(_OF_SESSION), {"of_session": row["session_id"]})
    CREATE.insert(connection, [row | {"message_count": 0}])


def finish(connection: sa.Connection, save: Statement, copy: SessionCopy) -> None:
    """What no event tells: a new title, turns that were given up, the state. save: of state.StateStatements."""
    row = session_row(copy.session)
    where = {"of_session": row["session_id"]}
    for turn in copy.abandoned:
        connection.execute(UPDATE_TURN.values(status="abandoned"), where | {"of_turn": turn})
    if copy.state.updated_at is not None:
        save.change(connection, state.saved(row["session_id"], copy.state))
    connection.execute(sa.update(chat_sessions).where(_OF_SESSION).values(**row), where)
