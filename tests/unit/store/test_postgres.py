"""What SqlStore does with PostgreSQL beyond the contract."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from massmem.errors import StoreError
from massmem.store import open_store
from massmem.store.sql import SqlStore
from tests.contract.test_session_store import session
from tests.support.postgres_server import PostgresServer
from tests.support.sample_turn import answer, begin


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
async def store(postgres: PostgresServer, database: str, home: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(postgres.url(database), home)
    assert isinstance(opened, SqlStore)
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


async def answers(store: SqlStore) -> list[str]:
    return [e.content for e in await store.turn_events("session_a", 1) if e.type == "answer_submitted"]


async def test_every_connection_is_durable_and_in_utc(postgres: PostgresServer, database: str, home: Path) -> None:
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    postgres.execute(f"ALTER DATABASE {database} SET TimeZone = 'Asia/Tokyo'")
    store = await open_store(postgres.url(database), home)
    assert isinstance(store, SqlStore)
    for engine in (store._reader, store._writer):
        with engine.connect() as connection:
            for name, value in (("synchronous_commit", "on"), ("TimeZone", "UTC"), ("lock_timeout", "30s")):
                assert connection.exec_driver_sql(f"SHOW {name}").scalar() == value
    await store.create_session(session())
    assert await store.get_session("session_a") == session()
    await store.close()


async def test_sessions_do_not_wait_for_each_other(postgres: PostgresServer, database: str, store: SqlStore) -> None:
    await store.create_session(session("session_b"))
    with postgres.connect(database) as other, other.transaction():
        other.execute("SELECT 1 FROM chat_sessions WHERE session_id = 'session_a' FOR NO KEY UPDATE")
        blocked = asyncio.create_task(store.append("session_a", 1, [answer(1, "ann", "late")]))
        for number in range(5):
            await store.append("session_b", 1, [answer(1, "ann", f"{number}")])
        assert len(await store.turn_events("session_a", 1)) == 1
        assert not blocked.done()
    await blocked
    assert await answers(store) == ["late"]


async def test_connections_that_were_cut_off_are_replaced(
    postgres: PostgresServer, database: str, store: SqlStore
) -> None:
    for number in range(3):
        assert cut_off(postgres, database)
        await store.append("session_a", 1, [answer(1, "ann", f"{number}")])
        assert cut_off(postgres, database)
        assert await answers(store) == [str(n) for n in range(number + 1)]


async def test_a_write_that_is_cut_off_is_an_error_and_not_there(
    postgres: PostgresServer, database: str, store: SqlStore
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


async def test_a_step_that_was_undone_for_another_runs_again(
    postgres: PostgresServer, database: str, store: SqlStore
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


def test_the_package_is_missing(home: Path) -> None:
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


def test_alembic_is_not_loaded_when_there_is_nothing_to_do(postgres: PostgresServer, database: str, home: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from massmem.store import open_store\n"
        f"async def main(): await (await open_store({postgres.url(database)!r}, Path.home())).close()\n"
        "asyncio.run(main()); print('alembic' in sys.modules)"
    )
    environment = {**os.environ, "HOME": str(home)}
    loaded = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        ).stdout.strip()
        for _ in range(2)
    ]
    assert loaded == ["True", "False"]
