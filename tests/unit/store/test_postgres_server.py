import asyncio
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from massmem.errors import InputError, StoreDamagedError, StoreError, StoreVersionError
from massmem.store import open_store
from massmem.store.postgres_server import address, name_of, store_error
from massmem.store.schema import REVISIONS
from tests.support.postgres_server import PASSWORD, PostgresServer


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:p%40ss@h:5433/d?sslmode=require", "postgresql://u@h:5433/d"),
        ("postgres://h/d", "postgresql://h/d"),
        ("postgresql:///d?host=/run/postgresql&password=x", "postgresql:///d"),
        ("postgresql://u@/d", "postgresql://u@/d"),
    ],
)
def test_names_of_databases(url: str, name: str) -> None:
    assert name_of(address(url)) == name
    assert address(url).drivername == "postgresql+psycopg"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cr@t@h/d",
        "postgresql://u:s3cret@h:port/d",
        "postgresql:s3cret",
    ],
)
def test_a_url_that_is_written_wrongly_is_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match=r"store\.url") as caught:
        address(url)
    assert "s3cr" not in caught.value.message + caught.value.hint


CODES = [
    "08006", "57P01", "57P03", "57014", "53100", "53200", "53300", "55P03", "40P01", "40001", "25006", "42501", "28P01",
    "3D000", "54000", "58030", "XX001",
]  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_each_failure_says_what_and_what_to_do(code: str) -> None:
    error = psycopg.errors.lookup(code)("the server's\nwords")
    shown = store_error(error, "postgresql://u@h/d")
    assert "postgresql://u@h/d" in shown.message
    assert shown.hint
    assert "\n" not in shown.message
    assert isinstance(shown, StoreDamagedError) == code.startswith("XX")


def test_an_unforeseen_failure_keeps_the_words_of_the_library() -> None:
    for error in (psycopg.ProgrammingError("odd"), ValueError("odd"), None):
        shown = store_error(error, "postgresql://h/d")
        assert type(shown) is StoreError
        assert str(error) in shown.message


async def refused(url: str, home: Path) -> StoreError | InputError:
    with pytest.raises((StoreError, InputError)) as caught:
        await open_store(url, home)
    assert caught.value.hint
    return caught.value


async def test_who_is_not_let_in_is_told_without_the_password(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    right, wrong = quote(PASSWORD, safe=""), quote(PASSWORD[:-1] + "x", safe="")
    await (await open_store(postgres.tcp_url(database, right), home)).close()
    error = await refused(postgres.tcp_url(database, wrong), home)
    assert "password authentication failed" in error.message
    for text in (error.message, error.hint, repr(error.__cause__), str(error.__cause__)):
        assert PASSWORD[:-1] not in text
        assert wrong not in text
    assert "does not exist" in (await refused(postgres.url("nowhere"), home)).message
    stranger = postgres.url(database).replace("massmem@", "stranger@")
    assert "does not let us in" in (await refused(stranger, home)).message


async def test_no_server(home: Path) -> None:
    error = await refused("postgresql://u:secret@127.0.0.1:1/d", home)
    assert "postgresql://u@127.0.0.1:1/d" in error.message
    assert "server runs" in error.hint
    assert "secret" not in error.message


async def test_a_database_that_cannot_hold_every_text(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database("ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    error = await refused(postgres.url(database), home)
    assert isinstance(error, InputError)
    assert "LATIN1" in error.message


@pytest.mark.parametrize("table", ["events", "alembic_version"])
async def test_the_database_of_another_program(postgres: PostgresServer, home: Path, table: str) -> None:
    database = postgres.new_database()
    postgres.execute(f"CREATE TABLE {table} (version_num text)", database)
    error = await refused(postgres.url(database), home)
    assert isinstance(error, StoreDamagedError)
    assert table in error.message
    assert postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database) == [(table,)]


async def test_tables_of_others_that_are_not_in_the_way(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    postgres.execute("CREATE TABLE recipes (id int)", database)
    await (await open_store(postgres.url(database), home)).close()
    assert postgres.execute("SELECT version_num FROM alembic_version", database) == [(REVISIONS[-1],)]


async def test_a_newer_database_is_refused_and_not_touched(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    await (await open_store(postgres.url(database), home)).close()
    postgres.execute("UPDATE alembic_version SET version_num = '0099'", database)
    error = await refused(postgres.url(database), home)
    assert isinstance(error, StoreVersionError)
    assert postgres.execute("SELECT version_num FROM alembic_version", database) == [("0099",)]


async def test_a_user_who_may_not_make_tables(postgres: PostgresServer, home: Path) -> None:
    database = postgres.new_database()
    postgres.execute("DROP ROLE IF EXISTS guest")
    postgres.execute("CREATE ROLE guest LOGIN")
    postgres.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database)
    error = await refused(postgres.url(database).replace("massmem@", "guest@"), home)
    assert "may not do that" in error.message
    assert "GRANT" in error.hint


async def test_two_that_migrate_at_once(postgres: PostgresServer, home: Path) -> None:
    url = postgres.url(postgres.new_database())
    for store in await asyncio.gather(*(open_store(url, home) for _ in range(4))):
        assert await store.list_sessions() == []
        await store.close()
