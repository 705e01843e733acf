"""The file of an SQLite store: its schema, its backup, what it means when it cannot be used."""

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import exc

from massmem.config.home import explain_write_error, make_file
from massmem.core.errors import StoreDamagedError, StoreError
from massmem.store.schema import REVISIONS

BUSY_TIMEOUT = 30.0
"""Seconds to wait for another process that writes."""

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that migrates the same file."""

_RESTORE = (
    "save what can be read with: massmem store recover FILE --to FOLDER; "
    "then move the file away, and restore a copy or start anew"
)
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
    """Return the error to show for one of sqlite3."""
    code = getattr(error, "sqlite_errorcode", None)
    kind, message, hint = _PROBLEMS.get(
        -1 if code is None else code & 0xFF, (StoreError, "{path} cannot be used: {reason}", "run the command again")
    )
    return kind(message.format(path=path, reason=error), hint)


def read_revision(path: Path) -> str | None:
    """Return the schema revision of the database, None for an empty one. The file is not changed.

    Raises:
        StoreDamagedError: not a database, or one of another program.
        StoreError: it cannot be read.
    """
    try:
        try:
            return _query_revision(path, "ro")
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
            # A writer was killed and its journal has to be rolled back, which a read-only connection may not.
            return _query_revision(path, "rw")
    except sqlite3.Error as e:
        raise to_store_error(e, path) from e


def _query_revision(path: Path, mode: str) -> str | None:
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_TIMEOUT)
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

    Raises:
        StoreError: the copy could not be written.
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
    """Apply every migration that the database at `path` lacks, all in one transaction.

    Safe to call from several processes at once, and again after a kill. A database that holds data is copied to
    `PATH.bak-REVISION` first. The copy is removed once the new schema is in place, so that what a user deletes later
    does not live on in it; it stays when the migration fails. scripts: None for those of this release.

    Raises:
        StoreError: it did not succeed; the database is as it was.
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
        _migrate(path, scripts)
    except (StoreError, exc.DBAPIError, sqlite3.Error) as e:
        error = e if isinstance(e, StoreError) else to_store_error(getattr(e, "orig", e), path)
        copy = f"; a copy from before is {backup}" if backup else ""
        raise type(error)(f"updating the database failed: {error.message}", error.hint + copy) from e
    if backup:
        backup.unlink()


def _migrate(path: Path, scripts: Path | None) -> None:
    from massmem.store.migrations import run_migrations  # Alembic takes 0.35 s to import and is needed once a release

    engine = sa.create_engine("sqlite://", creator=lambda: _connect(path), poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            run_migrations(connection, scripts)
            _check_references(connection, path)
            connection.commit()
    finally:
        engine.dispose()


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
