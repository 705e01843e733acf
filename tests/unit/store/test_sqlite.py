"""What the store on SQLite does beyond the contract: files, settings, errors, locks, full-text search."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from massmem.core.errors import HomeError, InputError, StoreDamagedError, StoreError
from massmem.core.records import EVERYBODY
from massmem.store import open_store, sqlite
from massmem.store.encoding import MAX_QUERY_WORDS
from massmem.store.ports import StoreInfo
from massmem.store.schema import chat_messages
from massmem.store.sql import SqlSessionStore
from massmem.store.sql.database import Database, Engines, SearchScope
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin, whole_turn

MANY = sqlite._MAX_RANKED + 200


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqlSessionStore]:
    opened = await open_store("sqlite:///~/.massmem/massmem.db", database.parent)
    assert isinstance(opened, SqlSessionStore)
    await opened.create_session(session())
    yield opened
    await opened.close()


@pytest.fixture
async def crowded_store(store: SqlSessionStore, database: Path) -> SqlSessionStore:
    """`common` is in very many messages of session_b, `rare` in the first of both sessions."""
    await store.create_session(session("session_b"))
    for name in ("session_a", "session_b"):
        await store.append(name, 1, [begin("ann"), answer(0, "ann", "rare and common")])
    with closing(sqlite3.connect(database)) as connection:
        columns: list[str] = [row[1] for row in connection.execute("PRAGMA table_info(chat_messages)")][1:]
        new = {"id": "'n' || n", "seq": "100 + n", "content": "'common ' || n", "final": "0"}
        values = ", ".join(new.get(column, column) for column in columns)
        connection.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) "
            f"INSERT INTO chat_messages ({', '.join(columns)}) SELECT {values} FROM chat_messages, numbers "
            "WHERE session_id = 'session_b' AND role = 'assistant'"
        )
        connection.commit()
    return store


def rows(database: Path, query: str, *parameters: object) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query, parameters).fetchall()


def test_url_names_its_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite.parse_path("sqlite:///~/.massmem/m.db") == home / ".massmem" / "m.db"
    assert sqlite.parse_path("sqlite:////var/x.db") == Path("/var/x.db")
    assert sqlite.parse_path("sqlite:///x y%20.db") == tmp_path / "x y%20.db"


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:x.db", "sqlite:///~nobody_/x"]
)
def test_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"store\.url"):
        sqlite.parse_path(url)


async def test_url_of_a_folder_is_refused(home: Path) -> None:
    with pytest.raises(HomeError, match="cannot be written"):
        await open_store(f"sqlite:///{home}", home / ".massmem")


async def test_files_are_readable_by_their_owner_only(store: SqlSessionStore, database: Path) -> None:
    await store.append("session_a", 1, whole_turn())
    assert database.parent.stat().st_mode & 0o777 == 0o700
    files = [path for path in database.parent.iterdir() if path.is_file()]
    assert {path.name for path in files} >= {"massmem.db", "massmem.db-wal", "massmem.db-shm"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def test_wide_open_home_is_closed(home: Path, database: Path) -> None:
    database.parent.mkdir(mode=0o755)
    database.touch(mode=0o644)
    await (await open_store(f"sqlite:///{database}", database.parent)).close()
    assert database.parent.stat().st_mode & 0o777 == 0o700
    assert database.stat().st_mode & 0o777 == 0o600


async def test_every_connection_is_durable_and_strict(store: SqlSessionStore) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "busy_timeout": 30_000}
    engines = store._database._engines
    for engine in (engines.write, engines.read):
        with engine.connect() as connection:
            for name, value in expected.items():
                assert connection.exec_driver_sql(f"PRAGMA {name}").scalar() == value, name


async def test_reads_do_not_wait_for_a_writer(store: SqlSessionStore, database: Path) -> None:
    await store.append("session_a", 1, [begin("ann"), done()])
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        blocked = asyncio.create_task(store.append("session_a", 2, [begin("ann")]))
        for _ in range(5):
            assert len(await store.read_conversation("session_a", None, 10)) == 2
        assert not blocked.done()
        other.execute("ROLLBACK")
        await blocked


async def test_lock_that_is_never_released_is_an_error(store: SqlSessionStore, database: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{database}", connect_args={"timeout": 0.05, "isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    impatient = SqlSessionStore(
        Database(Engines(engine, 1, engine, 0), sqlite.SqliteDialect(database)), StoreInfo("sqlite")
    )
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked: another process"):
            await impatient.append("session_a", 1, [begin("ann")])
        other.execute("ROLLBACK")
    await impatient.append("session_a", 1, [begin("ann")])
    await impatient.close()


async def test_cancelled_write_does_not_cost_the_connection(store: SqlSessionStore) -> None:
    connections: list[int] = []
    event.listen(store._database._engines.write, "connect", lambda *_: connections.append(1))
    for turn in range(1, 9):
        writing = asyncio.create_task(store.append("session_a", turn, [begin("ann")]))
        await asyncio.sleep(0.0005 * turn)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    await store.append("session_a", 99, [begin("ann")])
    assert connections == []


async def test_deltas_are_rows(store: SqlSessionStore, database: Path) -> None:
    await store.append("session_a", 1, whole_turn())
    assert rows(database, "SELECT count(*) FROM events WHERE type = 'agent_delta'") == [(3,)]


async def test_large_question_is_stored_whole(store: SqlSessionStore) -> None:
    question = "why? " * 2_000_000
    await store.append("session_a", 1, [begin("ann", question=question)])
    turn = await store.get_last_turn("session_a")
    assert turn is not None
    assert turn.question == question


async def test_search_index_follows_the_messages(store: SqlSessionStore, database: Path) -> None:
    def count(word: str) -> int:
        return rows(database, "SELECT count(*) FROM message_search WHERE message_search MATCH ?", word)[0][0]

    await store.append("session_a", 1, [begin("ann", question="Wie groß ist der Café-Turm?"), done(text="tall")])
    assert [count(word) for word in ("cafe", "turm", "tall", "absent")] == [1, 1, 1, 0]
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("UPDATE chat_messages SET content = 'small' WHERE final")
        connection.commit()
        assert [count(word) for word in ("tall", "small")] == [0, 1]
        connection.execute("DELETE FROM chat_sessions")
        connection.commit()
        connection.execute("INSERT INTO message_search(message_search, rank) VALUES ('integrity-check', 1)")
    assert [count(word) for word in ("cafe", "small")] == [0, 0]
    for table in ("chat_messages", "events", "turns"):
        assert rows(database, f"SELECT count(*) FROM {table}") == [(0,)], table


@given(query=st.text(max_size=200))
def test_query_becomes_quoted_words_only(query: str) -> None:
    search = sqlite.SqliteDialect(None).build_search(sa.select(chat_messages), query, SearchScope(None, EVERYBODY), 5)
    if search is None:
        return
    words = json.loads(search.compile().params["words"])
    for word in words:
        assert word[0] == word[-1] == '"'
        assert word[1:-1].replace("_", "a").isalnum()
    assert 0 < len(words) <= MAX_QUERY_WORDS


async def test_rarer_words_choose_what_is_ranked(crowded_store: SqlSessionStore) -> None:
    messages = await crowded_store.search_messages("what is common and rare", None, 2, owner=EVERYBODY)
    assert [(m.session_id, m.content) for m in messages] == [
        ("session_a", "rare and common"),
        ("session_b", "rare and common"),
    ]


async def test_search_for_a_word_that_is_everywhere_returns_the_newest(crowded_store: SqlSessionStore) -> None:
    messages = await crowded_store.search_messages("common", None, 3, owner=EVERYBODY)
    assert [m.content for m in messages] == [f"common {MANY - i}" for i in range(3)]


async def test_search_in_one_session_returns_its_oldest_messages_too(crowded_store: SqlSessionStore) -> None:
    messages = await crowded_store.search_messages("common", ["session_a"], 3, owner=EVERYBODY)
    assert [m.content for m in messages] == ["rare and common"]


async def test_search_for_an_unknown_word_returns_nothing(crowded_store: SqlSessionStore) -> None:
    assert await crowded_store.search_messages("unheard", None, 3, owner=EVERYBODY) == []


NAMES = ["FULL", "IOERR", "READONLY", "PERM", "CANTOPEN", "BUSY", "LOCKED", "NOTADB", "CORRUPT", "NOMEM", "TOOBIG"]


@pytest.mark.parametrize("name", NAMES)
def test_error_says_what_failed_and_what_to_do(name: str) -> None:
    error = sqlite3.OperationalError("the library's words")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}") | (7 << 8)  # extended codes keep the low byte
    shown = sqlite.to_store_error(error, Path("/x/m.db"))
    assert "/x/m.db" in shown.message
    assert shown.hint
    assert isinstance(shown, StoreDamagedError) == (name in {"NOTADB", "CORRUPT"})


def test_unknown_error_keeps_the_words_of_the_library() -> None:
    for error in (sqlite3.ProgrammingError("odd"), sqlite3.OperationalError("odd"), None):
        shown = sqlite.to_store_error(error, Path("/x/m.db"))
        assert type(shown) is StoreError
        assert str(error) in shown.message


def test_file_that_is_no_store_is_refused_and_not_touched(tmp_path: Path) -> None:
    text, foreign, broken = (tmp_path / f"{name}.db" for name in ("text", "foreign", "broken"))
    text.write_text("these are my notes, and not a database " * 100)
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE recipes (id)")
        connection.commit()
    whole = foreign.read_bytes()
    broken.write_bytes(whole[:100] + b"\xff" * 100 + whole[200:])
    for path, words in ((text, "not an SQLite database"), (foreign, "recipes"), (broken, "damaged")):
        before = path.read_bytes()
        with pytest.raises(StoreDamagedError, match=words):
            sqlite.read_revision(path)
        assert path.read_bytes() == before
    with pytest.raises(StoreError, match="cannot be opened"):
        sqlite.read_revision(tmp_path / "missing.db")


def test_backup_is_whole_and_private(tmp_path: Path) -> None:
    source, copy = tmp_path / "a.db", tmp_path / "b.db"
    copy.write_text("left by an earlier run")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t AS SELECT 42 AS n")
        connection.commit()
        sqlite.back_up(source, copy)  # what is still in the write-ahead log belongs to it
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT n FROM t").fetchall() == [(42,)]
    assert copy.stat().st_mode & 0o777 == 0o600
