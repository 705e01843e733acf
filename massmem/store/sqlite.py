"""SQLite: its file and schema, connections, full-text search, deletion from the disk, errors."""

import asyncio
import json
import os
import shlex
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shutil import disk_usage
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import event, exc
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.engine.interfaces import Dialect

from massmem.config.home import explain_write_error, make_file, make_folder, make_home
from massmem.core.errors import HomeError, InputError, StoreDamagedError, StoreError
from massmem.core.events import now
from massmem.core.messages import clean_text
from massmem.core.records import EVERYBODY
from massmem.store.encoding import quote_words
from massmem.store.ports import SEARCHED_KINDS, StoreInfo
from massmem.store.schema import (
    REVISIONS,
    VIEWS,
    UtcDateTime,
    chat_messages,
    chat_sessions,
    is_owned_by,
    metadata,
    version_error,
)
from massmem.store.sql import SqlSessionStore
from massmem.store.sql.database import Database, Engines, Refusal, Row, SearchScope

BUSY_TIMEOUT = 30.0
"""Seconds to wait for another process that writes."""

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that migrates the same file."""

_RESTORE = "save what can be read of it with: massmem store recover {quoted_path} --to {recovered}"
_PROBLEMS: dict[int, tuple[type[StoreError], str, str]] = {
    sqlite3.SQLITE_FULL: (
        StoreError,
        "the disk is full: {path} cannot grow",
        "free some space and run the same command again; what was stored before is untouched",
    ),
    sqlite3.SQLITE_IOERR: (
        StoreError,
        "reading or writing {path} failed: disk full, quota or hardware ({reason})",
        "check the disk, then run the same command again; what was stored before is untouched",
    ),
    sqlite3.SQLITE_READONLY: (
        StoreError,
        "{path} is read-only",
        "check the permissions of the file and of its folder, or set store.url to another place",
    ),
    sqlite3.SQLITE_PERM: (StoreError, "no permission to use {path}", "check its owner and permissions"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "{path} cannot be opened",
        "check that its folder exists and that you may write there",
    ),
    sqlite3.SQLITE_BUSY: (
        StoreError,
        "{path} is locked: another process has been writing for too long",
        "run the same command again when the other one has ended",
    ),
    sqlite3.SQLITE_LOCKED: (
        StoreError,
        "{path} is locked by another request",
        "run the same command again",
    ),
    sqlite3.SQLITE_NOTADB: (StoreDamagedError, "{path} is not an SQLite database, or its header is damaged", _RESTORE),
    sqlite3.SQLITE_CORRUPT: (StoreDamagedError, "{path} is damaged: {reason}", _RESTORE),
    sqlite3.SQLITE_NOMEM: (StoreError, "not enough memory to use {path}", "close other programs and try again"),
    sqlite3.SQLITE_TOOBIG: (StoreError, "a text is too large for {path}: {reason}", "cut it into pieces"),
}


def to_store_error(error: BaseException | None, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    kind, message, hint = _PROBLEMS.get(
        -1 if code is None else code & 0xFF, (StoreError, "{path} cannot be used: {reason}", "run the command again")
    )
    return kind(message.format(path=path, reason=error), hint.format(**quote_recovery_paths(path)))


def quote_recovery_paths(path: Path) -> dict[str, str]:
    """Return the database and a folder for what is recovered from it, to be pasted into a shell."""
    return {"quoted_path": shlex.quote(str(path)), "recovered": shlex.quote(f"{path}.recovered")}


def read_revision(path: Path) -> str | None:
    """Return the schema revision of the database, None for an empty one. The file is not changed.

    Raises:
        StoreDamagedError: not a database, or one of another program.
        StoreError: it cannot be read.
    """
    try:
        try:
            return _query_revision(path, _build_read_only_uri(path))
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
            # A writer was killed and its journal has to be rolled back, which a read-only connection may not.
            return _query_revision(path, f"{path.as_uri()}?mode=rw")
    except sqlite3.Error as e:
        raise to_store_error(e, path) from e


def _is_read_only(path: Path) -> bool:
    """Return whether there is a database that can be read and not written. SQLite also writes files beside it."""
    return path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK))


def _build_read_only_uri(path: Path) -> str:
    # SQLite needs a file beside the database even to read it, unless it is told that nobody writes.
    is_unused = _is_read_only(path) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.as_uri()}?mode=ro{'&immutable=1' if is_unused else ''}"


def _query_revision(path: Path, uri: str) -> str | None:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" in tables:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return None if row is None else str(row[0])
    finally:
        connection.close()
    if tables:
        raise StoreDamagedError(
            f"{path} is an SQLite database of another program (tables: {', '.join(sorted(tables)[:5])})",
            "set store.url to a file of its own",
        )
    return None


def back_up(path: Path, copy: Path) -> None:
    """Write a consistent copy of the database, mode 0600, over what is at `copy`.

    Raises StoreError: the copy could not be written.
    """
    copy.unlink(missing_ok=True)
    make_file(copy)
    source = sqlite3.connect(path, timeout=BUSY_TIMEOUT)
    target = sqlite3.connect(copy)
    try:
        source.backup(target)
    except sqlite3.Error as e:
        raise to_store_error(e, copy) from e
    finally:
        target.close()
        source.close()


def migrate_file(path: Path, scripts: Path | None = None, head: str = REVISIONS[-1]) -> None:
    """Give an empty database its schema, or apply every migration that it lacks, all in one transaction.

    Safe to call from several processes at once, and again after a kill. A database that holds data is copied to
    `PATH.bak-REVISION` first. The copy is removed once the new schema is in place, so that what a user deletes later
    does not live on in it; it stays when the migration fails. scripts: None for those of this release, which an empty
    database does not need.

    Raises StoreError: it did not succeed; the database is as it was.
    """
    try:
        with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT, mode=0o600):
            revision = read_revision(path)
            if revision != head:
                _back_up_and_migrate(path, scripts, revision)
    except Timeout as e:
        raise StoreError(
            f"another process has been updating {path} for more than {LOCK_TIMEOUT:.0f} s",
            "run the same command again when it has ended",
        ) from e
    except OSError as e:
        raise explain_write_error(path.parent, e) from e


def _back_up_and_migrate(path: Path, scripts: Path | None, revision: str | None) -> None:
    backup = path.with_name(f"{path.name}.bak-{revision}") if revision else None
    if backup:
        back_up(path, backup)
    try:
        _migrate(path, scripts, is_empty=revision is None)
    except (StoreError, exc.DBAPIError, sqlite3.Error) as e:
        error = e if isinstance(e, StoreError) else to_store_error(getattr(e, "orig", e), path)
        copy = f"; a copy from before is {backup}" if backup else ""
        raise type(error)(f"updating the database failed: {error.message}", error.hint + copy) from e
    if backup:
        backup.unlink()


def _migrate(path: Path, scripts: Path | None, *, is_empty: bool) -> None:
    engine = sa.create_engine("sqlite://", creator=lambda: _connect(path), poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            if is_empty and scripts is None:
                _create_schema(connection)
            else:
                # Alembic takes 0.35 s to import and is needed once a release
                from massmem.store.migrations import run_migrations

                run_migrations(connection, scripts)
                _check_references(connection, path)
            connection.commit()
    finally:
        engine.dispose()


def _create_schema(connection: sa.Connection) -> None:
    """Make what all migrations together make."""
    metadata.create_all(connection, checkfirst=False)
    for statement in VIEWS:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY NOT NULL)")
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISIONS[-1],))


def _connect(path: Path) -> sqlite3.Connection:
    # Without an isolation level sqlite3 begins and ends nothing by itself: our transaction covers new tables too.
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")
    return connection


def _check_references(connection: sa.Connection, path: Path) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(
            f"{path}: rows of {broken[0]!r} would lose what they belong to ({broken[2]!r})", "run the command again"
        )


SETTINGS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
"""PRAGMAs of every connection; the journal mode (WAL) is kept in the file."""

_READERS = 2

_GROUP_COMMIT = 64
"""Changes of one process that are committed together."""

_MAX_RANKED = 5_000
"""Messages that a search ranks, at most: rarer words come first until they match so many together."""

_MAX_NEWEST = 1_000
"""Messages with the rarest word that are read for a query of nothing but common ones; some may be reasoning."""

_MERGE_PAGES = 2_000
"""Pages of the search index that one transaction rewrites; other processes write between two of them."""

_MAX_VACUUM = 2**30
"""Bytes of the largest database that is rewritten when a session is deleted: it takes 20 s, others wait for 30."""

# FTS5's bm25() reads every row that matches any word of the query: 3 s among a million messages when `the` is one of
# them. So the rarer words of a query choose what is ranked, and a query of nothing but common words is not ranked. The
# count of matches stops where a word is too common to matter; then its length tells how rare it is.
_BEST = """
WITH counted AS MATERIALIZED (
    SELECT word.value AS term, (
        SELECT count(*) FROM (SELECT 1 FROM message_search WHERE message_search MATCH word.value LIMIT :ranked + 1)
    ) AS messages
    FROM json_each(:words) AS word
), ordered AS MATERIALIZED (
    SELECT term, row_number() OVER rarest AS place, sum(messages) OVER rarest AS together
    FROM counted WHERE messages > 0 WINDOW rarest AS (ORDER BY messages, length(term) DESC, term)
), chosen AS MATERIALIZED (
    SELECT (SELECT group_concat(term, ' OR ') FROM ordered WHERE together <= :ranked) AS rare,
           (SELECT term FROM ordered WHERE place = 1 AND together > :ranked) AS common
)
SELECT rowid AS row_id, bm25(message_search) AS score
FROM message_search WHERE message_search MATCH coalesce((SELECT rare FROM chosen), '""')
UNION ALL
SELECT row_id, -row_id AS score FROM (
    SELECT rowid AS row_id FROM message_search
    WHERE message_search MATCH coalesce((SELECT common FROM chosen), '""') ORDER BY rowid DESC LIMIT :newest
)
"""


_REFUSALS: dict[int, Refusal] = {
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: "duplicate",
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: "duplicate",
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: "missing parent",
}


async def open_sqlite(url: str, home: Path) -> SqlSessionStore:
    """Open, and when needed create or migrate, the database file. Raises as `massmem.store.open_store`."""
    path = parse_path(url)
    is_read_only = await asyncio.to_thread(_prepare_file, path, home)
    uri = _build_read_only_uri(path) if is_read_only else path.as_uri()
    engines = Engines(_create_engine(uri, 1), 1, _create_engine(uri, _READERS), _READERS, _GROUP_COMMIT)
    event.listen(engines.write, "begin", _begin_immediate)
    warning = f"{path} is read-only: its sessions can be listed, shown and searched, and nothing can be added"
    info = StoreInfo("sqlite", once=(warning,) if is_read_only else ())
    store = SqlSessionStore(Database(engines, SqliteDialect(path)), info)
    try:
        # Connects now, so that what is wrong with the file shows here and the first question does not wait for it.
        await store.get_session("")
    except BaseException:
        await store.close()
        raise
    return store


async def open_in_memory(info: StoreInfo) -> SqlSessionStore:
    """Open a store that ends with this process; nothing of it reaches a disk."""
    engine = _create_engine(":memory:", 1)  # the database lives as long as its one connection
    event.listen(engine, "begin", _begin_immediate)
    await asyncio.to_thread(metadata.create_all, engine)
    return SqlSessionStore(Database(Engines(engine, 1, engine, 0), SqliteDialect(None)), info)


def parse_path(url: str) -> Path:
    """Return the file that `sqlite:///relative`, `sqlite:////absolute` or `sqlite:///~/in-home` names.

    Raises InputError: the URL names no file.
    """
    name = url.removeprefix("sqlite:///")
    if name == url or name in ("", ":memory:") or "\x00" in name:
        raise InputError(f"store.url {url!r} names no file", "write it as sqlite:///~/.massmem/massmem.db")
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError as e:
        raise InputError(f"store.url {url!r}: {e}", "write the whole path, as in sqlite:////var/lib/massmem.db") from e


class _FromNow(UtcDateTime):
    """A time, as its distance from now: a file has no clock but that of the machine."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> datetime | None:
        return super().process_bind_param(now() + value, dialect)


@dataclass(frozen=True, slots=True)
class SqliteDialect:
    path: Path | None
    """The database file; None: it is in memory."""

    def insert(self, table: sa.Table) -> Insert:
        return insert(table)

    def time_from_now(self, name: str) -> sa.ColumnElement[Any]:
        return sa.bindparam(name, type_=_FromNow)

    def lock_session(self, connection: sa.Connection, session_id: str) -> None:
        """Nothing to do: a transaction that writes holds the lock of the whole file."""

    def index_messages(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        """Nothing to do: a trigger of the table does it."""

    def build_search(
        self, columns: sa.Select[*tuple[Any, ...]], query: str, scope: SearchScope, limit: int
    ) -> sa.Select[*tuple[Any, ...]] | None:
        words = quote_words(clean_text(query))
        if not words:
            return None
        # -1 is no limit: all messages of some sessions may be older than the newest of the store.
        newest = _MAX_NEWEST if scope == SearchScope(None, EVERYBODY) else -1
        best = sa.text(_BEST).bindparams(words=json.dumps(words), ranked=_MAX_RANKED, newest=newest)
        hits = best.columns(sa.column("row_id", sa.Integer), sa.column("score", sa.Float)).subquery()
        search = (
            columns.join_from(hits, chat_messages, hits.c.row_id == chat_messages.c.row_id)
            .where(chat_messages.c.kind.in_(SEARCHED_KINDS))
            .order_by(hits.c.score, chat_messages.c.row_id)
            .limit(limit)
        )
        if scope.session_ids is not None:
            search = search.where(chat_messages.c.session_id.in_(scope.session_ids))
        if scope.owner is not EVERYBODY:
            sessions = sa.select(chat_sessions.c.session_id).where(is_owned_by(scope.owner))
            search = search.where(chat_messages.c.session_id.in_(sessions))
        return search

    def erase(self, read: sa.Engine) -> bool:
        """Rewrite the file: deleted rows are overwritten (secure_delete), but not the places that SQLite had moved them
        from. Their words are in the search index until its parts are merged, and all of it is in the write-ahead log
        until that is emptied.
        """
        if self.path is None:
            return True
        with read.connect() as connection:
            _merge_search_index(connection)
            rewrite = _can_rewrite(connection, self.path)
            if rewrite:
                connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()
        return rewrite and not busy

    def find_refusal(self, error: BaseException | None) -> Refusal | None:
        return _REFUSALS.get(getattr(error, "sqlite_errorcode", None) or 0)

    def to_store_error(self, error: BaseException | None) -> StoreError:
        return to_store_error(error, self.path or Path("the memory of this process"))


def _prepare_file(path: Path, home: Path) -> bool:
    """Create the file when it is missing, and bring its schema up to date. Return whether it can only be read."""
    is_read_only = _is_read_only(path)
    if not is_read_only:
        make_home(home)
        make_folder(path.parent)
        make_file(path)
        _check_after_unclean_end(path)
    revision = read_revision(path)
    if revision == REVISIONS[-1]:
        return is_read_only
    if revision is not None and revision not in REVISIONS:
        raise version_error(str(path), revision, "file")
    if is_read_only:
        raise HomeError(
            f"{path} is read-only, and its schema must be updated before it can be read",
            "make it writable, or read a copy of it: set store.url to the copy",
        )
    migrate_file(path)
    return False


def _check_after_unclean_end(path: Path) -> None:
    """Check all pages of the database if the process that used it last did not close it.

    Raises:
        StoreDamagedError: pages are damaged; nothing more is written to the file.
        StoreError: it cannot be read.
    """
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as e:
                if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                return  # another process has it open: the log is its own
            connection.execute("ROLLBACK")
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as e:
        raise to_store_error(e, path) from e
    if result != "ok":
        raise StoreDamagedError(f"{path} is damaged: {result}", _RESTORE.format(**quote_recovery_paths(path)))


def _create_engine(uri: str, connections: int) -> sa.Engine:
    # Python's module begins no transactions by itself: reads need none, and writes begin as _begin_immediate says.
    options: dict[str, Any] = {"timeout": BUSY_TIMEOUT, "isolation_level": None, "check_same_thread": False}
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True, **options),
        poolclass=sa.QueuePool,
        pool_size=connections,
        max_overflow=0,
    )
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    for setting in SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def _begin_immediate(connection: sa.Connection) -> None:
    # A writer takes the lock at once: a transaction that starts as a reader cannot wait for it later.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _merge_search_index(connection: sa.Connection) -> None:
    merge = "INSERT INTO message_search(message_search, rank) VALUES ('merge', {})"
    pages, before = -_MERGE_PAGES, 0
    while True:
        connection.exec_driver_sql(merge.format(pages))
        changes = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        if pages > 0 and changes - before < 2:  # as SQLite's documentation tells when all is merged
            return
        pages, before = _MERGE_PAGES, changes


def _can_rewrite(connection: sa.Connection, path: Path) -> bool:
    """Return whether there is room to rewrite the file, and time before others that wait for it give up."""
    pages, free, size = [
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    ]
    needed = (pages - free) * size
    return needed <= _MAX_VACUUM and disk_usage(path).free > 2 * needed


def check_integrity(path: Path) -> list[str]:
    """Return the first ten problems that SQLite finds, or "ok"."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("PRAGMA integrity_check(10)").fetchall()
            orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(10)
    except sqlite3.Error as e:
        return [str(e)]
    return [*(str(text) for (text,) in rows), *(f"a row of {row[0]} refers to a missing row" for row in orphans)]
