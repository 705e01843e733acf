"""The database of a PostgreSQL store: its address, its schema, what it means when it cannot be used."""

import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.errors import InputError, StoreDamagedError, StoreError, StoreUnavailable, StoreVersionError
from massmem.store.schema import REVISIONS, metadata

LOCK_TIMEOUT = 60
"""Seconds to wait for another process that migrates the same database."""

_EXAMPLE = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"
_AGAIN = "run the same command again when it is back; what was stored before is untouched"
_ROOM = "free some space there and run the same command again; what was stored before is untouched"
_SETTINGS = "check user, password and database in store.url; PGPASSWORD and ~/.pgpass are read as well"
# By SQLSTATE, of which the first two characters are the class: PostgreSQL's documentation, appendix A.
_PROBLEMS: dict[str, tuple[type[StoreError], str, str]] = {
    "08001": (StoreUnavailable, "{name} cannot be reached: {reason}", f"check that the server runs; {_AGAIN}"),
    "08": (StoreUnavailable, "the connection to {name} was lost", _AGAIN),
    "57P": (StoreUnavailable, "{name} is shutting down, starting or recovering", _AGAIN),
    "57014": (StoreError, "{name} gave up a request that took too long", "run the same command again"),
    "53100": (StoreError, "the disk of {name} is full", _ROOM),
    "53200": (StoreError, "{name} is out of memory", "run the same command again later"),
    "53300": (
        StoreError,
        "{name} has no connection left",
        "close other programs that use it, or raise its max_connections",
    ),
    "55P03": (
        StoreError,
        "{name} is locked: another process has been writing this session for too long",
        "run the same command again when the other one has ended",
    ),
    "40": (StoreError, "{name} undid a step in favour of another one, again and again", "run the same command again"),
    "25006": (StoreError, "{name} is read-only, as a standby server is", "set store.url to the primary server"),
    "42501": (
        StoreError,
        "the user of {name} may not do that: {reason}",
        "let its owner run: GRANT CREATE, USAGE ON SCHEMA public TO the user",
    ),
    "28": (StoreError, "{name} does not let us in: {reason}", _SETTINGS),
    "3D": (StoreError, "{name} does not exist", "create it with: createdb DATABASE"),
    "54": (StoreError, "a text is too large for {name}: {reason}", "cut it into pieces"),
    "58": (StoreError, "{name} could not read or write its files: {reason}", _ROOM),
    "XX": (
        StoreDamagedError,
        "{name} is damaged: {reason}",
        "look into the log of the server; restore it from a backup",
    ),
}
# The server refuses before it knows how to send a code: only the words of the library tell.
_REFUSALS = (
    ("password authentication failed|no password supplied|no pg_hba.conf entry|role .* does not exist", "28"),
    ("database .* does not exist", "3D"),
    ("too many clients|remaining connection slots", "53300"),
    ("Connection refused|No such file or directory|could not translate|timeout expired|unreachable|No route", "08001"),
    ("starting up|shutting down|in recovery mode|not yet accepting", "57P"),
)


def address(url: str) -> sa.URL:
    """The parts of `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE`; options are those of libpq.

    Raises:
        InputError: that is no such URL. The message shows nothing of it, since it may hold a password.
    """
    try:
        found = sa.make_url(url)
    except (exc.ArgumentError, ValueError) as e:
        raise InputError("store.url is no URL of a PostgreSQL database", f"write it as {_EXAMPLE}") from e
    if "@" in f"{found.host}{found.database}":
        raise InputError(
            "store.url: a special character of the password must be written as its code",
            "%40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %25 for %",
        )
    return found.set(drivername="postgresql+psycopg")


def name_of(url: sa.URL) -> str:
    """How the database is called in messages: without password and options."""
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{user}{url.host or ''}{port}/{url.database or ''}"


def store_error(error: BaseException | None, name: str) -> StoreError:
    """The error to show for one of psycopg's, or of the pool's."""
    if isinstance(error, exc.TimeoutError):
        return StoreError(f"all connections to {name} are busy", "run the same command again later")
    code = getattr(error, "sqlstate", None) or _refusal(str(error))
    if code is None and getattr(error, "__module__", "").startswith("psycopg") and _lost(error):
        code = "08"
    for length in (5, 3, 2):
        if code and (problem := _PROBLEMS.get(code[:length])):
            kind, message, hint = problem
            return kind(message.format(name=name, reason=_one_line(error)), hint)
    return StoreError(f"{name} cannot be used: {_one_line(error)}", f"check that the server runs; {_AGAIN}")


def check(connection: sa.Connection, name: str) -> str | None:
    """The schema revision of the database, None when there is nothing of massmem in it yet.

    Raises:
        StoreDamagedError: tables of another program have the names of ours.
        StoreVersionError: it was written by a newer massmem.
        InputError: the database cannot hold every text.
    """
    encoding, schema = connection.execute(
        sa.text("SELECT current_setting('server_encoding'), current_schema()::text")
    ).one()
    if encoding != "UTF8":
        raise InputError(
            f"{name} holds text as {encoding}, which lacks many characters",
            "create it with: createdb --encoding UTF8 --template template0 DATABASE",
        )
    if schema is None:
        raise InputError(f"{name} has no schema to put tables into", "create the schema that search_path names")
    found = set(sa.inspect(connection).get_table_names())
    if {"alembic_version", "chat_sessions"} <= found:
        revision = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        if revision is not None and revision not in REVISIONS:
            raise StoreVersionError(
                f"{name} was written by a newer massmem (schema {revision!r}, this program knows up to "
                f"{REVISIONS[-1]!r})",
                "update massmem, or set store.url to another database",
            )
        return revision
    if taken := sorted(found & {"alembic_version", *metadata.tables}):
        raise StoreDamagedError(
            f"{name} holds tables of another program (among them {', '.join(taken[:5])})",
            "give massmem a database of its own: createdb massmem",
        )
    return None


def upgrade(url: sa.URL, scripts: Path | None = None, head: str = REVISIONS[-1]) -> None:
    """Apply every migration that the database lacks, all in one transaction: safe among processes and under a kill.

    scripts: None for those of this release.

    Raises:
        StoreError: it did not succeed; the database is as it was.
    """
    from massmem.store import migrate  # Alembic takes 0.35 s to import and is needed once per release

    name = name_of(url)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('massmem ' || current_schema()))")
            if check(connection, name) != head:
                migrate.upgrade(connection, scripts or migrate.SCRIPTS)
    except exc.DBAPIError as e:
        shown = store_error(e.orig, name)
        raise type(shown)(f"updating the database failed: {shown.message}", shown.hint) from e
    finally:
        engine.dispose()


def _refusal(text: str) -> str | None:
    return next((code for words, code in _REFUSALS if re.search(words, text)), None)


def _lost(error: BaseException | None) -> bool:
    return bool(re.search("closed|terminat|consuming input|lost|broken|SSL SYSCALL|reset by peer", str(error)))


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:500]
