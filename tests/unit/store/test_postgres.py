"""What the store on PostgreSQL does beyond the contract: URLs, errors, connections, locks, retries, search."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from massmem.core.errors import InputError, StoreDamagedError, StoreError, StoreVersionError
from massmem.core.messages import clean_text
from massmem.core.records import EVERYBODY
from massmem.store import open_store
from massmem.store.encoding import MAX_QUERY_WORDS
from massmem.store.postgres import build_tsqueries, build_tsvector, display_name, parse_url, to_store_error
from massmem.store.schema import REVISIONS
from massmem.store.sql import SqlSessionStore
from tests.contract.test_session_store import done, session
from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.sample_turn import answer, begin


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
async def store(postgres: PostgresServer, database: str, home: Path) -> AsyncIterator[SqlSessionStore]:
    opened = await open_store(postgres.url(database), home)
    assert isinstance(opened, SqlSessionStore)
    await opened.create_session(session())
    await opened.append("session_a", 1, [begin("ann")])
    yield opened
    await opened.close()


def cut_off(postgres: PostgresServer, database: str) -> int:
    """End all connections to the database from the server's side."""
    ended = postgres.execute(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{database}'"
    )
    return len(ended)


async def answers(store: SqlSessionStore) -> list[str]:
    return [e.content for e in await store.read_turn_events("session_a", 1) if e.type == "answer_submitted"]


async def test_every_connection_is_durable_and_in_utc(postgres: PostgresServer, database: str, home: Path) -> None:
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    postgres.execute(f"ALTER DATABASE {database} SET TimeZone = 'Asia/Tokyo'")
    store = await open_store(postgres.url(database), home)
    assert isinstance(store, SqlSessionStore)
    for engine in (store._database._engines.read, store._database._engines.write):
        with engine.connect() as connection:
            for name, value in (("synchronous_commit", "on"), ("TimeZone", "UTC"), ("lock_timeout", "30s")):
                assert connection.exec_driver_sql(f"SHOW {name}").scalar() == value
    await store.create_session(session())
    assert await store.get_session("session_a") == session()
    await store.close()


async def test_sessions_do_not_wait_for_each_other(
    postgres: PostgresServer, database: str, store: SqlSessionStore
) -> None:
    await store.create_session(session("session_b"))
    with postgres.connect(database) as other, other.transaction():
        other.execute("SELECT 1 FROM chat_sessions WHERE session_id = 'session_a' FOR NO KEY UPDATE")
        blocked = asyncio.create_task(store.append("session_a", 1, [answer(1, "ann", "late")]))
        for number in range(5):
            await store.append("session_b", 1, [answer(1, "ann", f"{number}")])
        assert len(await store.read_turn_events("session_a", 1)) == 1
        assert not blocked.done()
    await blocked
    assert await answers(store) == ["late"]


async def test_connections_that_were_cut_off_are_replaced(
    postgres: PostgresServer, database: str, store: SqlSessionStore
) -> None:
    for number in range(3):
        assert cut_off(postgres, database)
        await store.append("session_a", 1, [answer(1, "ann", f"{number}")])
        assert cut_off(postgres, database)
        assert await answers(store) == [str(n) for n in range(number + 1)]


async def test_write_that_is_cut_off_is_an_error_and_stores_nothing(
    postgres: PostgresServer, database: str, store: SqlSessionStore
) -> None:
    with postgres.connect(database) as other, other.transaction():
        other.execute("SELECT 1 FROM chat_sessions FOR NO KEY UPDATE")
        (mine,) = other.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        waiting = asyncio.create_task(store.append("session_a", 1, [answer(1, "ann", "lost")]))
        blocked = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not postgres.execute(f"{blocked} AND datname = '{database}' AND pid <> {mine}"):
            await asyncio.sleep(0.01)
        with pytest.raises(StoreError, match=r"shutting down|was lost") as caught:
            await waiting
        assert "untouched" in caught.value.hint
    assert await answers(store) == []
    await store.append("session_a", 1, [answer(1, "ann", "again")])
    assert await answers(store) == ["again"]


async def test_transaction_that_was_rolled_back_for_another_runs_again(
    postgres: PostgresServer, database: str, store: SqlSessionStore
) -> None:
    postgres.execute(
        "CREATE SEQUENCE tries; CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('tries') % 3 <> 0 THEN RAISE EXCEPTION 'undone' USING ERRCODE = '40P01'; END IF; "
        "RETURN NEW; END $$;"
        "CREATE TRIGGER undo BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION undo()",
        database,
    )
    for text in ("one", "two"):
        await store.append("session_a", 1, [answer(1, "ann", text)])
    assert await answers(store) == ["one", "two"]
    assert postgres.execute("SELECT last_value FROM tries", database) == [(6,)]
    postgres.execute("ALTER SEQUENCE tries INCREMENT BY 3", database)
    postgres.execute("SELECT setval('tries', 1)", database)
    with pytest.raises(StoreError, match="again and again"):
        await store.append("session_a", 1, [answer(1, "ann", "three")])
    assert await answers(store) == ["one", "two"]


def test_missing_package_is_reported(home: Path) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from massmem.cli.main import main\n"
        "sys.exit(main(['store', 'migrate', '--to', 'postgresql://u:secret@h/d', '--from', 'sqlite:///~/m.db']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(home)},
    )
    assert result.returncode == 2
    assert "pip install 'massmem[postgres]'" in result.stderr
    assert "secret" not in result.stderr


async def test_alembic_is_not_loaded_when_the_schema_is_the_newest(
    postgres: PostgresServer, database: str, home: Path
) -> None:
    await (await open_store(postgres.url(database), home)).close()
    program = (
        "import asyncio, sys; from pathlib import Path; from massmem.store import open_store\n"
        f"async def main(): await (await open_store({postgres.url(database)!r}, Path.home())).close()\n"
        "asyncio.run(main()); print('alembic' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env={**os.environ, "HOME": str(home)}
    )
    assert (await process.communicate())[0] == b"False\n"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:p%40ss@h:5433/d?sslmode=require", "postgresql://u@h:5433/d"),
        ("postgres://h/d", "postgresql://h/d"),
        ("postgresql:///d?host=/run/postgresql&password=x", "postgresql:///d?host=/run/postgresql"),
        ("postgresql://u:x@%2Frun%2Fpg:5433/d", "postgresql://u@/d?host=/run/pg"),
        ("postgresql://u@/d", "postgresql://u@/d"),
    ],
)
def test_display_name_has_no_password(url: str, name: str) -> None:
    assert display_name(parse_url(url)) == name
    assert parse_url(url).drivername == "postgresql+psycopg"


def test_options_of_other_drivers_are_libpqs() -> None:
    assert parse_url("postgresql://h/d?ssl=true").query == {"sslmode": "require"}
    assert parse_url("postgresql://h/d?ssl=disable&sslmode=verify-full").query == {"sslmode": "verify-full"}
    assert parse_url("postgresql://%2Frun%2Fpg:5433/d").query == {"host": "/run/pg", "port": "5433"}


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_database_that_cannot_hold_every_text_is_refused(
    postgres: PostgresServer, home: Path, encoding: str
) -> None:
    name = postgres.new_database(f"TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(InputError, match=f"holds text as {encoding}") as caught:
        await open_store(postgres.url(name), home)
    assert "createdb --encoding UTF8" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cr@t@h/d",
        "postgresql://u:s3cr@t/#?@h/d",
        "postgresql://u:s3cret@h:port/d",
        "postgresql:s3cret",
    ],
)
def test_message_about_a_bad_url_does_not_repeat_it(url: str) -> None:
    with pytest.raises(InputError, match=r"store\.url") as caught:
        parse_url(url)
    assert "s3cr" not in caught.value.message + caught.value.hint


CODES = [
    "08006", "57P01", "57P03", "57014", "53100", "53200", "53300", "55P03", "40P01", "40001", "25006", "42501", "28P01",
    "3D000", "54000", "58030", "XX001",
]  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_error_says_what_failed_and_what_to_do(code: str) -> None:
    error = psycopg.errors.lookup(code)("the server's\nwords")
    shown = to_store_error(error, "postgresql://u@h/d")
    assert "postgresql://u@h/d" in shown.message
    assert shown.hint
    assert "\n" not in shown.message
    assert isinstance(shown, StoreDamagedError) == code.startswith("XX")


def test_unknown_error_keeps_the_words_of_the_library() -> None:
    for error in (psycopg.ProgrammingError("odd"), ValueError("odd"), None):
        shown = to_store_error(error, "postgresql://h/d")
        assert type(shown) is StoreError
        assert str(error) in shown.message


async def open_and_fail(url: str, home: Path) -> StoreError | InputError:
    with pytest.raises((StoreError, InputError)) as caught:
        await open_store(url, home)
    assert caught.value.hint
    return caught.value


async def test_refused_login_is_reported_without_the_password(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    right, wrong = quote(PASSWORD, safe=""), quote(PASSWORD[:-1] + "x", safe="")
    await (await open_store(postgres.tcp_url(database, right), home)).close()
    error = await open_and_fail(postgres.tcp_url(database, wrong), home)
    assert "password authentication failed" in error.message
    for text in (error.message, error.hint, repr(error.__cause__), str(error.__cause__)):
        assert PASSWORD[:-1] not in text
        assert wrong not in text
    assert "does not exist" in (await open_and_fail(postgres.url("nowhere"), home)).message
    stranger = postgres.url(database).replace("massmem@", "stranger@")
    assert "refuses the login" in (await open_and_fail(stranger, home)).message


async def test_missing_server_is_reported(home: Path) -> None:
    error = await open_and_fail("postgresql://u:secret@127.0.0.1:1/d", home)
    assert "postgresql://u@127.0.0.1:1/d" in error.message
    assert "server runs" in error.hint
    assert "secret" not in error.message


@pytest.mark.parametrize("table", ["events", "alembic_version"])
async def test_database_with_our_table_names_is_refused(postgres: PostgresServer, home: Path, table: str) -> None:
    database = postgres.new_database()
    postgres.execute(f"CREATE TABLE {table} (version_num text)", database)
    error = await open_and_fail(postgres.url(database), home)
    assert isinstance(error, StoreDamagedError)
    assert table in error.message
    assert postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database) == [(table,)]


async def test_other_tables_in_the_database_stay(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    postgres.execute("CREATE TABLE recipes (id int)", database)
    await (await open_store(postgres.url(database), home)).close()
    assert postgres.execute("SELECT version_num FROM alembic_version", database) == [(REVISIONS[-1],)]


async def test_newer_database_is_refused_and_not_touched(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    await (await open_store(postgres.url(database), home)).close()
    postgres.execute("UPDATE alembic_version SET version_num = '0099'", database)
    error = await open_and_fail(postgres.url(database), home)
    assert isinstance(error, StoreVersionError)
    assert postgres.execute("SELECT version_num FROM alembic_version", database) == [("0099",)]


async def test_user_who_may_not_create_tables_is_told_so(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    postgres.execute("DROP ROLE IF EXISTS guest")
    postgres.execute("CREATE ROLE guest LOGIN")
    postgres.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database)
    error = await open_and_fail(postgres.url(database).replace("massmem@", "guest@"), home)
    assert "may not do that" in error.message
    assert "GRANT" in error.hint


async def test_stores_can_be_opened_at_the_same_time(postgres: PostgresServer, home: Path) -> None:
    url = postgres.url(postgres.new_database())
    for store in await asyncio.gather(*(open_store(url, home) for _ in range(4))):
        assert await store.list_sessions() == []
        await store.close()


@pytest.fixture
async def store_with_messages(postgres: PostgresServer, database: str, home: Path) -> AsyncIterator[SqlSessionStore]:
    opened = await open_store(postgres.url(database), home)
    assert isinstance(opened, SqlSessionStore)
    await opened.create_session(session())
    await opened.append("session_a", 1, [begin("ann", question="?")])
    yield opened
    await opened.close()


def any_term(query: str) -> str:
    return " | ".join(build_tsqueries(query))


async def test_long_message_with_many_words_is_found(store_with_messages: SqlSessionStore) -> None:
    words = " ".join(f"word{n}" for n in range(300_000))
    await store_with_messages.append(
        "session_a", 1, [answer(1, "ann", f"firstly {words} " + "x" * 5_000_000), done(text="ok")]
    )
    (found,) = await store_with_messages.search_messages("firstly", owner=EVERYBODY)
    assert found.content.startswith("firstly word0 ")
    assert await store_with_messages.search_messages("x" * 5_000_000, owner=EVERYBODY) == []


async def test_same_words_are_found_as_in_sqlite(store_with_messages: SqlSessionStore, tmp_path: Path) -> None:
    texts = [
        "Café ÜBER naïve Ångström",
        "snake_case and kebab-case",
        "it's e-mail@example.org",
        "版本控制 система",
        "3.14 v2 0x1F",
    ]
    lite = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    await lite.create_session(session())
    await lite.append("session_a", 1, [begin("ann")])
    for text in texts:
        for each in (store_with_messages, lite):
            await each.append("session_a", 1, [answer(1, "ann", text)])
    queries = ("cafe", "uber", "NAIVE", "angstrom", "snake_case", "snake", "case_snake", "kebab-case", "case")
    queries += (
        "cafe\u0301",
        "nai\u0308ve",
        "A\u030angstro\u0308m",
        "it's",
        "e-mail",
        "example.org",
        "版本控制",
        "版本",
        "СИСТЕМА",
        "3.14",
        "14",
        "0x1f",
        "v",
        "- _ -",
    )
    for query in queries:
        ours = {m.content for m in await store_with_messages.search_messages(query, owner=EVERYBODY)}
        assert ours == {m.content for m in await lite.search_messages(query, owner=EVERYBODY)}, query
        assert ours or not set(query) & {"\u0301", "\u0308", "\u030a"}, (
            query
        )  # accents of their own, as macOS writes them
    await lite.close()


@given(text=st.text(max_size=300))
@example(text="0\u03000")
def test_server_accepts_any_text_and_any_query(postgres: PostgresServer, text: str) -> None:
    text = clean_text(text)
    with postgres.connect() as connection:
        row = connection.execute(
            "SELECT %s::tsvector, %s::tsvector @@ %s::tsquery", [*[build_tsvector(text)] * 2, any_term(text)]
        )
        (_, matches) = row.fetchone() or (None, None)
        assert matches is bool(any_term(text))


def test_query_has_at_most_so_many_words() -> None:
    assert build_tsqueries("- _ ?!") == {}
    assert build_tsqueries("Snake_Case Café") == {"'snake' <-> 'case'": "snake", "'cafe'": "cafe"}
    assert len(build_tsqueries(" ".join(f"w{n}" for n in range(1000)))) == MAX_QUERY_WORDS


async def test_rare_words_count_for_more(store_with_messages: SqlSessionStore) -> None:
    texts = [f"what did we decide about the plan number {n}" for n in range(30)] + ["Kubernetes it is"]
    await store_with_messages.append("session_a", 1, [answer(1, "ann", text) for text in texts])
    messages = await store_with_messages.search_messages(
        "what did we decide about Kubernetes", limit=3, owner=EVERYBODY
    )
    assert messages[0].content == "Kubernetes it is"
    assert len(messages) == 3


MANY = """
INSERT INTO chat_messages
    (id, session_id, seq, turn, round, kind, role, content, final, escalated, metadata, created_at)
SELECT 'x' || n, 'session_a', n, 1, 1, 'assistant', 'assistant', 'common word', false, false, '{}', now()
FROM generate_series(100, 12100) n;
INSERT INTO message_search SELECT session_id, seq, '''common'':1 ''word'':2' FROM chat_messages WHERE seq >= 100
"""


async def test_rarer_words_choose_among_very_many_matches(
    postgres: PostgresServer, database: str, store_with_messages: SqlSessionStore
) -> None:
    await store_with_messages.append(
        "session_a", 1, [answer(1, "ann", "common and seldom"), answer(2, "ann", "only seldom")]
    )
    postgres.execute(MANY, database)
    postgres.execute("ANALYZE", database)
    messages = await store_with_messages.search_messages("common seldom", owner=EVERYBODY)
    assert {m.content for m in messages} == {"common and seldom", "only seldom"}
    assert len(await store_with_messages.search_messages("common word", ["session_a"], limit=50, owner=EVERYBODY)) == 50
    assert await store_with_messages.search_messages("common", ["session_b"], owner=EVERYBODY) == []
