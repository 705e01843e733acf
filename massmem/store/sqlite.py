"""What is peculiar to SQLite: its files, its settings, its search, its errors."""

import asyncio
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.sqlite import insert

from massmem.errors import InputError, StoreVersionError
from massmem.events import now
from massmem.home import make_file, make_folder, make_home
from massmem.store.base import StoreInfo
from massmem.store.dialect import Dialect
from massmem.store.prepared import run
from massmem.store.schema import REVISIONS, UtcDateTime, metadata
from massmem.store.sql import WRITES, SqlStore
from massmem.store.sqlite_file import BUSY_TIMEOUT, revision, store_error, upgrade
from massmem.store.sqlite_search import behind, catch_up, index, search

SETTINGS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
"""PRAGMAs of every connection; the journal mode (WAL) is kept in the file."""

_READERS = 2
_MERGED_AT_ONCE = 2_000
"""Pages of the search index that one transaction writes anew; others write between two of them."""

_WRITTEN_ANEW = 2**30
"""Bytes of the largest database that is written anew when a session is deleted: it takes 20 s, others wait for 30."""


async def open_sqlite(url: str, home: Path) -> SqlStore:
    """Open, and when needed make or migrate, the database file. Raises as `massmem.store.open_store`."""
    path = path_of(url)
    await asyncio.to_thread(_make_ready, path, home)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        # Transactions are begun by _begin below and by nobody else.
        connect_args={"timeout": BUSY_TIMEOUT, "isolation_level": None, "check_same_thread": False},
        pool_size=1 + _READERS,
        max_overflow=0,
        pool_use_lifo=True,
        pool_reset_on_return=None,
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    store = SqlStore(engine, dialect(path), StoreInfo("sqlite"))
    try:
        # Connects now, so that what is wrong with the file shows here and the first question does not wait for it.
        await store.list_sessions(limit=1)
    except BaseException:
        await store.close()
        raise
    return store


async def open_in_memory(info: StoreInfo) -> SqlStore:
    """A store that ends with this process; nothing of it reaches a disk."""
    engine = sa.create_engine(
        "sqlite://",
        connect_args={"isolation_level": None, "check_same_thread": False},
        # The database lives as long as its one connection.
        pool_size=1,
        max_overflow=0,
        poolclass=sa.QueuePool,
        pool_reset_on_return=None,
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    await asyncio.to_thread(metadata.create_all, engine)
    in_memory = replace(dialect(Path("the memory of this process")), readers=0, erase=_nothing_to_erase)
    return SqlStore(engine, in_memory, info)


def path_of(url: str) -> Path:
    """The file that `sqlite:///relative`, `sqlite:////absolute` or `sqlite:///~/in-home` names.

    Raises:
        InputError: the URL names no file.
    """
    name = url.removeprefix("sqlite:///")
    if name == url or name in ("", ":memory:") or "\x00" in name:
        raise InputError(f"store.url {url!r} names no file", "write it as sqlite:///~/.massmem/massmem.db")
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError as e:
        raise InputError(f"store.url {url!r}: {e}", "write the whole path, as in sqlite:////var/lib/massmem.db") from e


def dialect(path: Path) -> Dialect:
    """path: the database file, for error messages."""
    return Dialect(
        writers=1,
        readers=_READERS,
        reading={},
        insert=insert,
        moment=partial(sa.bindparam, type_=UtcDateTime),
        ahead=_ahead,
        lock=_lock,
        index=index,
        behind=behind,
        catch_up=catch_up,
        search=search,
        erase=partial(_erase, path=path),
        is_duplicate=_is_duplicate,
        is_missing_parent=_is_missing_parent,
        is_conflict=_is_conflict,
        error=partial(store_error, path=path),
    )


def _make_ready(path: Path, home: Path) -> None:
    make_home(home)
    make_folder(path.parent)
    make_file(path)
    found = revision(path)
    if found == REVISIONS[-1]:
        return
    if found is not None and found not in REVISIONS:
        raise StoreVersionError(
            f"{path} was written by a newer massmem (schema {found!r}, this program knows up to {REVISIONS[-1]!r})",
            "update massmem, or set store.url to another file",
        )
    upgrade(path)


def _configure(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for setting in SETTINGS:
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    # A writer takes the lock at once: a transaction that starts as a reader cannot wait for it later.
    if connection.get_execution_options().get(WRITES):
        begin = "BEGIN IMMEDIATE"
        run(connection, begin, lambda cursor: cursor.execute(begin))


def _lock(_connection: sa.Connection, _session_id: str) -> None:
    """Whoever writes holds the lock of the whole file."""


def _is_conflict(_error: BaseException | None) -> bool:
    return False


def _ahead(seconds: float) -> datetime:
    # A file has no clock but that of the machine.
    return now() + timedelta(seconds=seconds)


def _erase(engine: sa.Engine, path: Path) -> bool:
    """Rows are overwritten as they are deleted (secure_delete), but not wherever SQLite had moved them before: the
    file is written anew. Their words stay in the search index until its parts are merged, and all of it in the
    write-ahead log until that is emptied.
    """
    with engine.connect() as connection:
        _merge_search_index(connection)
        anew = _has_room(connection, path)
        if anew:
            connection.exec_driver_sql("VACUUM")
        busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()
    return anew and not busy


def _merge_search_index(connection: sa.Connection) -> None:
    merge = "INSERT INTO message_search(message_search, rank) VALUES ('merge', {})"
    pages, before = -_MERGED_AT_ONCE, 0
    while True:
        connection.exec_driver_sql(merge.format(pages))
        changes = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        if pages > 0 and changes - before < 2:  # as SQLite's documentation tells when all is merged
            return
        pages, before = _MERGED_AT_ONCE, changes


def _has_room(connection: sa.Connection, path: Path) -> bool:
    """Whether the file can be written anew, before others that wait for it give up."""
    pages, free, size = [
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    ]
    needed = (pages - free) * size
    return needed <= _WRITTEN_ANEW and disk_usage(path).free > 2 * needed


def _nothing_to_erase(_engine: sa.Engine) -> bool:
    return True


def _is_missing_parent(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY


def _is_duplicate(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE)
