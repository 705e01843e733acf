"""Brings a database file to the newest schema with Alembic. Imported only when there is something to do."""

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from filelock import FileLock, Timeout
from sqlalchemy import exc

from massmem.errors import StoreError
from massmem.home import unwritable
from massmem.store import sqlite
from massmem.store.schema import REVISIONS

SCRIPTS = Path(__file__).with_name("migrations")
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that migrates the same file."""


def upgrade(path: Path, scripts: Path = SCRIPTS, head: str = REVISIONS[-1]) -> None:
    """Apply every migration that the database at `path` lacks, all in one transaction.

    Safe to call from several processes at once, and again after a kill. A database that holds data is copied to
    `PATH.bak-REVISION` first; the copy is removed once the new schema is in place, so that what a user deletes
    later does not live on in it, and stays when the migration fails.

    Raises:
        StoreError: it did not succeed; the database is as it was.
    """
    try:
        with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT, mode=0o600):
            found = sqlite.revision(path)
            if found != head:
                _upgrade(path, scripts, found)
    except Timeout as e:
        raise StoreError(
            f"another process has been updating {path} for more than {LOCK_TIMEOUT:.0f} s",
            "run the same command again when it has ended",
        ) from e
    except OSError as e:
        raise unwritable(path.parent, e) from e


def _upgrade(path: Path, scripts: Path, found: str | None) -> None:
    backup = path.with_name(f"{path.name}.bak-{found}") if found else None
    if backup:
        sqlite.back_up(path, backup)
    try:
        _run(path, scripts)
    except exc.DBAPIError as e:
        raise _failed(sqlite.store_error(e.orig, path), backup) from e
    except (sqlite3.Error, CommandError) as e:
        raise _failed(sqlite.store_error(e, path), backup) from e
    if backup:
        backup.unlink()


def _failed(error: StoreError, backup: Path | None) -> StoreError:
    kept = f"; a copy from before is {backup}" if backup else ""
    return type(error)(f"updating the database failed: {error.message}", error.hint + kept)


def _run(path: Path, scripts: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    engine = sa.create_engine("sqlite://", creator=lambda: _connect(path), poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            _check_references(connection)
            connection.commit()
    finally:
        engine.dispose()


def _connect(path: Path) -> sqlite3.Connection:
    # Without an isolation level sqlite3 begins and ends nothing by itself: our transaction covers new tables too.
    connection = sqlite3.connect(path, timeout=sqlite.BUSY_TIMEOUT, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")
    return connection


def _check_references(connection: sa.Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise CommandError(f"rows of {broken[0]!r} would lose what they belong to ({broken[2]!r})")
