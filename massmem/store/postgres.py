"""PostgreSQL: connections, locks, clock, full-text search, schema, errors."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR, Insert, insert

from massmem.core.errors import InputError, StoreDamagedError, StoreError, StoreUnavailable
from massmem.core.records import EVERYBODY
from massmem.store.encoding import split_query, split_words
from massmem.store.ports import SEARCHED_KINDS, StoreInfo, password_error
from massmem.store.schema import (
    KEY,
    REVISIONS,
    SESSION,
    CleanText,
    UtcDateTime,
    chat_messages,
    chat_sessions,
    metadata,
    version_error,
)
from massmem.store.sql import SqlSessionStore
from massmem.store.sql.database import Database, Engines, Refusal, Row, SearchScope

chat_messages.c.metadata.type = sa.JSON().with_variant(JSONB(), "postgresql")
for _index in (index for table in metadata.tables.values() for index in table.indexes):
    _index.dialect_kwargs["postgresql_where"] = _index.dialect_options["sqlite"]["where"]

message_search = sa.Table(
    "message_search",
    sa.MetaData(),
    sa.Column("session_id", KEY, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("words", TSVECTOR, nullable=False),
    sa.ForeignKeyConstraint(
        ["session_id", "seq"], [chat_messages.c.session_id, chat_messages.c.seq], ondelete="CASCADE"
    ),
    sa.Index("ix_message_search_words", "words", postgresql_using="gin"),
)
"""The full-text index."""

_MAX_BYTES = 900_000
"""Of one message's words: a tsvector holds a megabyte. What comes later in the message is not found."""

_MAX_POSITIONS, _LAST_POSITION = 255, 16_383
"""Of a word in a tsvector."""

_MAX_RANKED = 5_000
"""Messages that a search ranks, about: rarer words come first until they match so many together."""

_MAX_READ = 10_000
"""And at most, for a query of nothing but common words."""

_MAX_HIDDEN = 1_000
"""Messages of undone turns that may match better without keeping others from being found."""

# Frequencies are the server's own estimates (pg_stats); a word that is not among the commonest counts as rare.
# The weight of a word is BM25's: ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N messages.
_BEST = """
WITH common AS (
    SELECT frequent.word, frequent.share * c.reltuples AS messages
    FROM pg_stats s JOIN pg_class c ON c.oid = to_regclass('message_search')
    CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS frequent(word, share)
    WHERE s.schemaname = current_schema() AND s.tablename = 'message_search' AND s.attname = 'words'
), terms AS MATERIALIZED (
    SELECT wanted.term, wanted.term::tsquery AS query, coalesce(common.messages, 0) AS messages,
           sum(coalesce(common.messages, 0)) OVER rarest AS together, row_number() OVER rarest AS place
    FROM unnest(:terms, :words) AS wanted(term, word) LEFT JOIN common ON common.word = wanted.word
    WINDOW rarest AS (ORDER BY coalesce(common.messages, 0), wanted.term)
), chosen AS MATERIALIZED (
    SELECT string_agg(term, ' | ')::tsquery AS query FROM terms WHERE place = 1 OR together <= :ranked
), hits AS MATERIALIZED (
    SELECT session_id, seq, words FROM message_search
    WHERE words @@ (SELECT query FROM chosen) {conditions} LIMIT :read
), size AS MATERIALIZED (
    SELECT greatest((SELECT count(*) FROM hits), (SELECT max(messages) FROM terms),
                    (SELECT reltuples FROM pg_class WHERE oid = to_regclass('message_search'))) AS messages
), weights AS MATERIALIZED (
    SELECT terms.query, ln(1 + (size.messages - matches.messages + 0.5) / (matches.messages + 0.5)) AS weight
    FROM terms CROSS JOIN size CROSS JOIN LATERAL (
        SELECT greatest(count(*), terms.messages) AS messages FROM hits WHERE hits.words @@ terms.query
    ) AS matches
)
SELECT session_id, seq, (SELECT sum(ts_rank(hits.words, query, 1) * weight) FROM weights) AS score
FROM hits ORDER BY score DESC, session_id, seq LIMIT :most
"""
_OF_SESSIONS = "AND session_id = ANY(:sessions)"
_OF_OWNER = (
    "AND session_id IN (SELECT session_id FROM chat_sessions WHERE user_id IS NOT DISTINCT FROM cast(:owner AS text))"
)


def build_tsvector(text: str) -> str:
    """Return the words of a text with their positions, as PostgreSQL reads a tsvector."""
    positions: dict[str, list[int]] = {}
    size = 0
    for position, word in enumerate(split_words(text), 1):
        if word not in positions:
            size += len(word.encode()) + 8
            if size > _MAX_BYTES:
                break
            positions[word] = []
        if len(positions[word]) < _MAX_POSITIONS and position <= _LAST_POSITION:
            positions[word].append(position)
            size += 2
    return " ".join(
        f"'{word}':{','.join(map(str, numbers))}" if numbers else f"'{word}'" for word, numbers in positions.items()
    )


def build_tsqueries(query: str) -> dict[str, str]:
    """Return a tsquery for each word of the query, with the part of the word that tells how rare it is, the longest.

    Parts of one word (snake_case) must stand side by side.
    """
    return {" <-> ".join(f"'{part}'" for part in word): max(word, key=len) for word in split_query(query)}


WRITERS, READERS = 6, 4
"""Connections of one process."""

LOCK_TIMEOUT = 30
"""Seconds to wait for another process that writes the same session."""

MIGRATION_TIMEOUT = 60
"""Seconds to wait for another process that migrates the same database."""

# libpq's own; what the URL says comes first. A server that vanished without a word is noticed within a minute.
_CONNECT_OPTIONS = {
    "connect_timeout": "10",
    "application_name": "massmem",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_encoding": "UTF8",  # else a database in SQL_ASCII sends bytes for text
}

# A server may be set up to acknowledge what is not on its disk yet. Stricter settings are left as they are.
_SETTINGS = f"""
SELECT set_config('TimeZone', 'UTC', false), set_config('lock_timeout', '{LOCK_TIMEOUT}s', false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""

# Others may still refer to the row; two transactions that append wait for each other.
_LOCK_SESSION = (
    sa.select(chat_sessions.c.session_id)
    .where(chat_sessions.c.session_id == SESSION)
    .with_for_update(key_share=True)
)  # fmt: skip
_WORDS = sa.cast(sa.bindparam("tsvector", type_=sa.Text), TSVECTOR)
_INDEX_MESSAGE = (
    insert(message_search)
    .values(
        session_id=sa.bindparam("of_session", type_=message_search.c.session_id.type),
        seq=sa.bindparam("of_seq", type_=sa.Integer),
        words=_WORDS,
    )
    .on_conflict_do_update(index_elements=["session_id", "seq"], set_={"words": _WORDS})
)

_EXAMPLE_URL = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"
_RETRY = "run the same command again when it is back; what was stored before is untouched"
_FREE_SPACE = "free some space there and run the same command again; what was stored before is untouched"
_CHECK_LOGIN = "check user, password and database in store.url; PGPASSWORD and ~/.pgpass are read as well"
# By SQLSTATE, of which the first two characters are the class: PostgreSQL's documentation, appendix A.
_PROBLEMS: dict[str, tuple[type[StoreError], str, str]] = {
    "08001": (StoreUnavailable, "{name} cannot be reached: {reason}", f"check that the server runs; {_RETRY}"),
    "08": (StoreUnavailable, "the connection to {name} was lost", _RETRY),
    "57P": (StoreUnavailable, "{name} is shutting down, starting or recovering", _RETRY),
    "57014": (StoreError, "{name} cancelled a request that took too long", "run the same command again"),
    "53100": (StoreError, "the disk of {name} is full", _FREE_SPACE),
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
        "let its owner run: GRANT CONNECT ON DATABASE, and GRANT CREATE, USAGE ON SCHEMA public, TO the user",
    ),
    "28": (StoreError, "{name} refuses the login: {reason}", _CHECK_LOGIN),
    "3D": (StoreError, "{name} does not exist", "create it with: createdb DATABASE"),
    "54": (StoreError, "a text is too large for {name}: {reason}", "cut it into pieces"),
    "58": (StoreError, "{name} could not read or write its files: {reason}", _FREE_SPACE),
    "XX": (
        StoreDamagedError,
        "{name} is damaged: {reason}",
        "look into the log of the server; restore it from a backup",
    ),
}
# A connection that is refused has no code: only the words of the library tell.
_REFUSALS = (
    ("password authentication failed|no password supplied|no pg_hba.conf entry|role .{0,200} does not exist", "28"),
    ("database .{0,200} does not exist", "3D"),
    ("permission denied", "42501"),
    ("too many clients|remaining connection slots", "53300"),
    ("Connection refused|No such file or directory|could not translate|timeout expired|unreachable|No route", "08001"),
    ("starting up|shutting down|in recovery mode|not yet accepting", "57P"),
)
_REFUSED_ROWS: dict[str, Refusal] = {
    "23505": "duplicate",
    "23503": "missing parent",
    "40001": "conflict",
    "40P01": "conflict",
}
_LOST = re.compile("closed|terminat|consuming input|lost|broken|SSL SYSCALL|reset by peer")


async def open_postgres(url: str) -> SqlSessionStore:
    """Connect, and create or migrate the tables when needed. Raises as `massmem.store.open_store`."""
    address = parse_url(url)
    target = address.set(query=_CONNECT_OPTIONS | dict(address.query))
    name = display_name(target)
    try:
        write = _create_engine(target, WRITERS)
        read = _create_engine(target, READERS, isolation_level="AUTOCOMMIT")
    except ImportError as e:
        raise InputError("store.url: PostgreSQL needs the package psycopg", "pip install 'massmem[postgres]'") from e
    database = Database(Engines(write, WRITERS, read, READERS), PostgresDialect(name))
    try:
        if await database.read(lambda connection: read_revision(connection, name)) != REVISIONS[-1]:
            await asyncio.to_thread(migrate_database, target)
    except BaseException:
        await database.close()
        raise
    return SqlSessionStore(database, StoreInfo("postgresql"))


def parse_url(url: str) -> sa.URL:
    """Return the parts of `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE`; options are those of libpq.

    The host may be the folder of a socket, as `%2Fvar%2Frun%2Fpostgresql`.

    Raises InputError: that is no such URL. The message shows nothing of it, since it may hold a password.
    """
    login, _, rest = url.partition("://")[2].partition("@")
    if ":" in login and "@" in rest:  # the rest of a password would be taken for a host or a database, and shown
        raise password_error()
    try:
        address = sa.make_url(url)
    except (exc.ArgumentError, ValueError) as e:
        raise InputError("store.url is no URL of a PostgreSQL database", f"write it as {_EXAMPLE_URL}") from e
    query = dict(address.query)
    if ssl := query.pop("ssl", None):  # of asyncpg
        query.setdefault("sslmode", {"true": "require", "false": "disable"}.get(str(ssl).lower(), ssl))
    if address.host and (host := unquote(address.host)).startswith("/"):
        query |= {"host": host} | ({"port": str(address.port)} if address.port else {})
        address = sa.URL.create("", address.username, address.password, database=address.database)
    return address.set(drivername="postgresql+psycopg", query=query)


def display_name(url: sa.URL) -> str:
    """Return the name of the database for messages: without password and options."""
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    socket = f"?host={url.query['host']}" if "host" in url.query else ""
    return f"postgresql://{user}{url.host or ''}{port}/{url.database or ''}{socket}"


def read_revision(connection: sa.Connection, name: str) -> str | None:
    """Return the schema revision of the database, None when there is nothing of massmem in it yet.

    Raises:
        StoreDamagedError: tables of another program have the names of ours.
        StoreVersionError: it has a schema that this massmem does not know.
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
    tables = set(sa.inspect(connection).get_table_names())
    if {"alembic_version", "chat_sessions"} <= tables:
        revision = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        if revision is not None and revision not in REVISIONS:
            raise version_error(name, revision, "database")
        return revision
    if taken := sorted(tables & {"alembic_version", *metadata.tables}):
        raise StoreDamagedError(
            f"{name} holds tables of another program (among them {', '.join(taken[:5])})",
            "give massmem a database of its own: createdb massmem",
        )
    return None


def migrate_database(url: sa.URL, scripts: Path | None = None, head: str = REVISIONS[-1]) -> None:
    """Apply every migration that the database lacks, all in one transaction: safe among processes and under a kill.

    scripts: None for those of this release.

    Raises StoreError: it did not succeed; the database is as it was.
    """
    from massmem.store.migrations import run_migrations  # Alembic takes 0.35 s to import and is needed once a release

    name = display_name(url)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{MIGRATION_TIMEOUT}s'")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('massmem ' || current_schema()))")
            if read_revision(connection, name) != head:
                run_migrations(connection, scripts)
    except exc.DBAPIError as e:
        error = to_store_error(e.orig, name)
        raise type(error)(f"updating the database failed: {error.message}", error.hint) from e
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class PostgresDialect:
    name: str
    """The database in messages."""

    def insert(self, table: sa.Table) -> Insert:
        return insert(table)

    def time_from_now(self, name: str) -> sa.ColumnElement[Any]:
        moment = sa.func.clock_timestamp() + sa.bindparam(name, type_=sa.Interval)
        return sa.type_coerce(moment, UtcDateTime)

    def lock_session(self, connection: sa.Connection, session_id: str) -> None:
        connection.execute(_LOCK_SESSION, {"of_session": session_id})

    def index_messages(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        new = [
            {"of_session": row["session_id"], "of_seq": row["seq"], "tsvector": build_tsvector(row["content"])}
            for row in rows
            if row["kind"] in SEARCHED_KINDS
        ]
        if new:
            connection.execute(_INDEX_MESSAGE, new)

    def build_search(
        self, columns: sa.Select[*tuple[Any, ...]], query: str, scope: SearchScope, limit: int
    ) -> sa.Select[*tuple[Any, ...]] | None:
        tsqueries = build_tsqueries(query)
        if not tsqueries:
            return None
        texts = ARRAY(sa.Text)
        binds: list[sa.BindParameter[Any]] = [
            sa.bindparam("terms", list(tsqueries), type_=texts),
            sa.bindparam("words", list(tsqueries.values()), type_=texts),
            sa.bindparam("ranked", _MAX_RANKED),
            sa.bindparam("read", _MAX_READ),
            sa.bindparam("most", limit + _MAX_HIDDEN),
        ]
        conditions: list[str] = []
        if scope.session_ids is not None:
            conditions.append(_OF_SESSIONS)
            binds.append(sa.bindparam("sessions", list(scope.session_ids), type_=texts))
        if scope.owner is not EVERYBODY:
            conditions.append(_OF_OWNER)
            binds.append(sa.bindparam("owner", scope.owner.user_id, type_=CleanText))
        statement = sa.text(_BEST.format(conditions=" ".join(conditions)))
        m = chat_messages.c
        best = statement.bindparams(*binds).columns(m.session_id, m.seq, sa.column("score", sa.Float)).subquery()
        same_message = sa.and_(m.session_id == best.c.session_id, m.seq == best.c.seq)
        return columns.join_from(chat_messages, best, same_message).order_by(best.c.score.desc(), m.row_id).limit(limit)

    def erase(self, read: sa.Engine) -> bool:
        """Clear deleted rows out of the tables. The server overwrites their bytes, and its write-ahead log, later."""
        tables = ", ".join([*metadata.tables, message_search.name])
        with read.connect() as connection:
            connection.exec_driver_sql(f"VACUUM {tables}")
        return True

    def find_refusal(self, error: BaseException | None) -> Refusal | None:
        return _REFUSED_ROWS.get(getattr(error, "sqlstate", None) or "")

    def to_store_error(self, error: BaseException | None) -> StoreError:
        return to_store_error(error, self.name)


def to_store_error(error: BaseException | None, name: str) -> StoreError:
    """Return the error to show for one of psycopg. name: the database in messages."""
    reason = " ".join(str(error).split())[:500]
    code = getattr(error, "sqlstate", None) or _guess_sqlstate(error)
    for length in (5, 3, 2):
        if code and (problem := _PROBLEMS.get(code[:length])):
            kind, message, hint = problem
            return kind(message.format(name=name, reason=reason), hint)
    return StoreError(f"{name} cannot be used: {reason}", f"check that the server runs; {_RETRY}")


def _guess_sqlstate(error: BaseException | None) -> str | None:
    text = str(error)
    code = next((code for words, code in _REFUSALS if re.search(words, text)), None)
    if code is None and getattr(error, "__module__", "").startswith("psycopg") and _LOST.search(text):
        return "08"
    return code


def _create_engine(target: sa.URL, connections: int, **options: Any) -> sa.Engine:
    engine = sa.create_engine(
        target,
        pool_size=connections,
        max_overflow=0,
        pool_use_lifo=True,
        # One round trip per use: a connection that a restart of the server cut off is replaced unnoticed.
        pool_pre_ping=True,
        **options,
    )
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    autocommit = connection.autocommit
    connection.autocommit = True
    connection.execute(_SETTINGS)
    connection.autocommit = autocommit
