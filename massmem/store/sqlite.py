"""What is peculiar to SQLite: its files, its settings, its errors. Standard library only."""

import sqlite3
from pathlib import Path

from massmem.errors import InputError, StoreDamagedError, StoreError
from massmem.home import make_file

BUSY_TIMEOUT = 30.0
"""Seconds to wait for another process that writes."""

SETTINGS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
"""PRAGMAs of every connection; the journal mode (WAL) is kept in the file."""

_RESTORE = "move it away and restore a copy, or start anew; `sqlite3 FILE .recover` saves what can be read"
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


def store_error(error: BaseException | None, path: Path) -> StoreError:
    """The error to show for one of sqlite3's."""
    code = getattr(error, "sqlite_errorcode", None)
    kind, message, hint = _PROBLEMS.get(
        -1 if code is None else code & 0xFF, (StoreError, "{path} cannot be used: {reason}", "run the command again")
    )
    return kind(message.format(path=path, reason=error), hint)


def is_missing_parent(error: BaseException | None) -> bool:
    """Whether a row was refused because the row that it belongs to does not exist."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY


def is_duplicate(error: BaseException | None) -> bool:
    """Whether a row was refused because there is one with the same key."""
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE)


def revision(path: Path) -> str | None:
    """The schema revision of the database, None when there is nothing in it yet. The file is not changed.

    Raises:
        StoreDamagedError: not a database, or one of another program.
        StoreError: it cannot be read.
    """
    try:
        try:
            return _revision(path, "ro")
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
            # A writer was killed and its journal has to be rolled back, which a read-only connection may not.
            return _revision(path, "rw")
    except sqlite3.Error as e:
        raise store_error(e, path) from e


def _revision(path: Path, mode: str) -> str | None:
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
        raise store_error(e, copy) from e
    finally:
        target.close()
        source.close()
