"""What is peculiar to PostgreSQL: its connections, its locks, its clock, its search."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.postgresql import TSVECTOR, insert

from massmem.errors import InputError
from massmem.store.base import StoreInfo
from massmem.store.dialect import Dialect
from massmem.store.postgres_search import search, vector
from massmem.store.postgres_server import address, check, name_of, store_error, upgrade
from massmem.store.prepared import Statement
from massmem.store.schema import (
    REVISIONS,
    SESSION,
    UtcDateTime,
    chat_sessions,
    message_search,
    metadata,
)
from massmem.store.sql import SqlStore

WRITERS, READERS = 6, 4
"""Connections of one process."""

LOCK_TIMEOUT = 30
"""Seconds to wait for another process that writes the same session."""

# libpq's own; what the URL says comes first. A server that vanished without a word is noticed within a minute.
_CONNECT = {
    "connect_timeout": "10",
    "application_name": "massmem",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# A server may be set up to acknowledge what is not on its disk yet. Stricter settings are left as they are.
_SETTINGS = f"""
SELECT set_config('TimeZone', 'UTC', false), set_config('lock_timeout', '{LOCK_TIMEOUT}s', false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""

_SOUGHT = ("user", "assistant", "tool_call", "tool_result")

# Others may still refer to the row; two that append wait for each other.
_LOCK = Statement(
    sa.select(chat_sessions.c.session_id)
    .where(chat_sessions.c.session_id == SESSION)
    .with_for_update(key_share=True)
)  # fmt: skip
_INDEX = Statement(
    sa.insert(message_search).values(
        session_id=sa.bindparam("of_session", type_=message_search.c.session_id.type),
        seq=sa.bindparam("of_seq", type_=sa.Integer),
        words=sa.cast(sa.bindparam("of_words", type_=sa.Text), TSVECTOR),
    )
)


async def open_postgres(url: str) -> SqlStore:
    """Connect, and make or migrate the tables when needed. Raises as `massmem.store.open_store`."""
    given = address(url)
    target = given.set(query=_CONNECT | dict(given.query))
    name = name_of(target)
    try:
        engine = sa.create_engine(
            target,
            pool_size=WRITERS + READERS,
            max_overflow=0,
            pool_use_lifo=True,
            # One round trip per use: a connection that a restart of the server cut off is replaced unnoticed.
            pool_pre_ping=True,
        )
    except ImportError as e:
        raise InputError("store.url: PostgreSQL needs the package psycopg", "pip install 'massmem[postgres]'") from e
    event.listen(engine, "connect", _configure)
    store = SqlStore(engine, dialect(name), StoreInfo("postgresql"))
    try:
        if await store.look(partial(check, name=name)) != REVISIONS[-1]:
            await asyncio.to_thread(upgrade, target)
    except BaseException:
        await store.close()
        raise
    return store


def dialect(name: str) -> Dialect:
    """name: what the database is called in error messages."""
    return Dialect(
        writers=WRITERS,
        readers=READERS,
        reading={"isolation_level": "AUTOCOMMIT"},
        insert=insert,
        moment=_moment,
        ahead=_ahead,
        lock=_lock,
        index=_index,
        behind=_never_behind,
        catch_up=_nothing_waits,
        search=search,
        erase=_erase,
        is_duplicate=partial(_has_code, codes=("23505",)),
        is_missing_parent=partial(_has_code, codes=("23503",)),
        is_conflict=partial(_has_code, codes=("40001", "40P01")),
        error=partial(store_error, name=name),
    )


def _configure(connection: Any, _record: Any) -> None:
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(_SETTINGS)
    cursor.close()
    connection.autocommit = False


def _moment(parameter: str) -> sa.ColumnElement[Any]:
    return sa.type_coerce(sa.func.clock_timestamp() + sa.bindparam(parameter, type_=sa.Interval), UtcDateTime)


def _ahead(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _lock(connection: sa.Connection, session_id: str) -> None:
    _LOCK.all(connection, {"of_session": session_id})


def _index(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    new = [
        {"of_session": row["session_id"], "of_seq": row["seq"], "of_words": vector(row["content"])}
        for row in rows
        if row["kind"] in _SOUGHT
    ]
    if new:
        _INDEX.change_each(connection, new)


def _never_behind(_connection: sa.Connection) -> bool:
    return False


def _nothing_waits(_connection: sa.Connection) -> None:
    """Rows are indexed in the transaction that adds them: PostgreSQL gathers them by itself (GIN's fastupdate)."""


def _erase(engine: sa.Engine) -> bool:
    """Rows that were deleted are cleared out; their bytes, and those in the write-ahead log, the server overwrites
    in its own time."""
    tables = ", ".join([*metadata.tables, message_search.name])
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(f"VACUUM {tables}")
    return True


def _has_code(error: BaseException | None, codes: Sequence[str]) -> bool:
    return getattr(error, "sqlstate", None) in codes
