"""What SqlStore does with SQLite beyond the contract."""

import asyncio
import re
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

from massmem.errors import HomeError, InputError, StoreError
from massmem.messages import clean_text
from massmem.store import open_store, sqlite
from massmem.store.base import StoreInfo
from massmem.store.rows import payload as storable
from massmem.store.sql import SqlStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import START, answer, ballot, begin, whole_turn
from tests.support.sample_turn import event as make_event


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store("sqlite:///~/.massmem/massmem.db", database.parent)
    assert isinstance(opened, SqlStore)
    await opened.create_session(session())
    yield opened
    await opened.close()


def rows(database: Path, query: str, *parameters: object) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query, parameters).fetchall()


async def test_an_unknown_kind_of_store(home: Path) -> None:
    with pytest.raises(InputError, match="'mongodb'"):
        await open_store("mongodb://h", home)
    assert list(home.iterdir()) == []


async def test_only_the_owner_may_read(store: SqlStore, database: Path) -> None:
    await store.append("session_a", 1, whole_turn())
    assert database.parent.stat().st_mode & 0o777 == 0o700
    files = [path for path in database.parent.iterdir() if path.is_file()]
    assert {path.name for path in files} >= {"massmem.db", "massmem.db-wal", "massmem.db-shm"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


async def test_a_wide_open_home_is_closed(home: Path, database: Path) -> None:
    database.parent.mkdir(mode=0o755)
    database.touch(mode=0o644)
    await (await open_store(f"sqlite:///{database}", database.parent)).close()
    assert database.parent.stat().st_mode & 0o777 == 0o700
    assert database.stat().st_mode & 0o777 == 0o600


async def test_every_connection_is_durable_and_strict(store: SqlStore) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "busy_timeout": 30_000}
    with store._engine.connect() as one, store._engine.connect() as two:
        for connection in (one, two):
            for name, value in expected.items():
                assert connection.exec_driver_sql(f"PRAGMA {name}").scalar() == value, name


def last(statements: list[str]) -> str:
    return statements[-1] if statements else ""


def sent(store: SqlStore) -> list[str]:
    """Gets every statement, values in it, that the store sends from now on: without what triggers and indexes do."""
    statements: list[str] = []

    def note(statement: str) -> None:
        # SQLite tells of a statement again whenever it comes back to it from a trigger.
        if not statement.startswith("--") and "'main'." not in statement and statement != last(statements):
            statements.append(statement)

    event.listen(store._engine, "checkout", lambda driver, *_: driver.set_trace_callback(note))
    return statements


async def plans(store: SqlStore, database: Path) -> dict[str, list[str]]:
    """Every statement that a whole turn and all the reads of a turn send, with SQLite's plan for it."""
    seen = sent(store)
    thought = answer(1, "ann", "A").model_copy(update={"reasoning": "because"})
    await store.append("session_a", 1, [begin("ann"), thought, ballot(2, "ann", "ann")])
    await store.append("session_a", 1, [make_event(3, "ballots_voided", round=2, agents=("ann", "bob")), done()])
    await store.append("session_a", 2, [begin("ann")])
    await store.append(
        "session_a", 2, [make_event(3, "agent_delta", agent_id="ann", round=1, channel="text", text="x")]
    )
    await store.abandon_turn("session_a", 2)
    await store.last_turn("session_a")
    await store.turn_events("session_a", 1)
    await store.conversation("session_a", 9, 10)
    await store.conversation("session_a", None, 10)
    await store.messages("session_a", 3, 10)
    await store.get_session("session_a")
    await store.list_sessions(10)
    await store.turn_messages("session_a", 1)
    await store.messages_by_id(["0", "1"])
    await store.winners(["session_a"])
    for kind in ("episode", "complete", "extract"):
        rows = await store.due_recordings(kind, 10)
        await store.fail_recording(rows[0], "away", START)
        await store.finish_recordings(rows)
    with closing(sqlite3.connect(database)) as connection:
        return {
            statement: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            for statement in seen
            if not statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA"))
        }


# What is inserted; the agents of one turn.
SHORT = re.compile(r"SCAN (\d+ )?CONSTANT ROWS?|USE TEMP B-TREE FOR GROUP BY")


async def test_no_statement_reads_more_than_its_rows(store: SqlStore, database: Path) -> None:
    found = await plans(store, database)
    verbs = [re.match(r"\w+ (?:INTO )?(\w+)?", statement) for statement in found]
    assert len(found) >= 15, verbs
    listing = [steps for statement, steps in found.items() if "chat_sessions.created_at DESC" in statement]
    assert listing == [["SCAN chat_sessions USING INDEX ix_chat_sessions_created"]]  # a page of it, in its order
    for statement, steps in found.items():
        if steps not in listing:
            long = [step for step in steps if ("SCAN" in step or "TEMP B-TREE" in step) and not SHORT.fullmatch(step)]
            assert not long, (statement, steps)
    joined = str(found)
    assert "ix_chat_messages_conversation" in joined
    assert "ix_events_turn" in joined
    assert "ix_recordings_pending" in joined


async def test_the_number_of_statements_does_not_grow_with_the_batch(store: SqlStore) -> None:
    statements = sent(store)
    sizes: list[int] = []
    for events in ([answer(1, "ann", "A")], [answer(1, "ann", "A")] * 32):
        statements.clear()
        await store.append("session_a", 1, events)
        sizes.append(len(statements))
    assert sizes == [9, 9]


async def test_reads_do_not_wait_for_a_writer(store: SqlStore, database: Path) -> None:
    await store.append("session_a", 1, [begin("ann"), done()])
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        blocked = asyncio.create_task(store.append("session_a", 2, [begin("ann")]))
        for _ in range(5):
            assert len(await store.conversation("session_a", None, 10)) == 2
        assert not blocked.done()
        other.execute("ROLLBACK")
        await blocked


async def test_a_lock_that_is_never_released_is_an_error(store: SqlStore, database: Path) -> None:
    hurried = sa.create_engine(f"sqlite:///{database}", connect_args={"timeout": 0.05, "isolation_level": None})
    event.listen(hurried, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
    impatient = SqlStore(hurried, sqlite.dialect(database), StoreInfo("sqlite"))
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked: another process"):
            await impatient.append("session_a", 1, [begin("ann")])
        other.execute("ROLLBACK")
    await impatient.append("session_a", 1, [begin("ann")])
    await impatient.close()


async def test_a_cancelled_write_does_not_cost_the_connection(store: SqlStore) -> None:
    connections: list[int] = []
    event.listen(store._engine, "connect", lambda *_: connections.append(1))
    for turn in range(1, 9):
        writing = asyncio.create_task(store.append("session_a", turn, [begin("ann")]))
        await asyncio.sleep(0.0005 * turn)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    await store.append("session_a", 99, [begin("ann")])
    assert connections == []


async def test_answers_ballots_and_deltas_as_rows(store: SqlStore, database: Path) -> None:
    await store.append("session_a", 1, whole_turn())
    answers = "SELECT agent_id, number, content FROM answers JOIN chat_messages USING (session_id, seq, agent_id)"
    assert rows(database, answers + " ORDER BY number") == [
        ("ann", 1, "Rayleigh scattering."),
        ("bob", 2, "Blue light scatters more."),
        ("ann", 3, "Rayleigh scattering, in short."),
    ]
    ballots = "SELECT agent_id, choice, void FROM ballots ORDER BY seq"
    assert rows(database, ballots) == [("bob", "bob", 1), ("ann", "ann", 0), ("bob", "ann", 0)]
    assert rows(database, "SELECT count(*) FROM events WHERE type = 'agent_delta'") == [(3,)]


async def test_the_search_index_follows_the_messages(store: SqlStore, database: Path) -> None:
    def found(word: str) -> int:
        return rows(database, "SELECT count(*) FROM message_search WHERE message_search MATCH ?", word)[0][0]

    await store.append("session_a", 1, [begin("ann", question="Wie groß ist der Café-Turm?"), done(text="tall")])
    await store.search_text("Turm")
    assert [found(word) for word in ("cafe", "turm", "tall", "absent")] == [1, 1, 1, 0]
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("UPDATE chat_messages SET content = 'small' WHERE final")
        connection.commit()
        assert [found(word) for word in ("tall", "small")] == [0, 1]
        connection.execute("DELETE FROM chat_sessions")
        connection.commit()
        connection.execute("INSERT INTO message_search(message_search) VALUES ('integrity-check')")
    assert [found(word) for word in ("cafe", "small")] == [0, 0]
    for table in ("chat_messages", "events", "turns", "answers", "ballots"):
        assert rows(database, f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_messages_wait_for_a_search_or_for_many_others_to_be_indexed(store: SqlStore, database: Path) -> None:
    def indexed() -> list[int]:
        return [id_ for (id_,) in rows(database, "SELECT id FROM message_search_docsize ORDER BY id")]

    for turn in range(1, 4):
        await store.append("session_a", turn, [begin("ann", question=f"question {turn}"), done(text=f"answer {turn}")])
    assert indexed() == []
    assert [m.content for m in await store.search_text("question")] == ["question 1", "question 2", "question 3"]
    assert indexed() == [1, 2, 3, 4, 5, 6]
    await store.create_session(session("session_b"))
    await store.append("session_b", 1, [begin("bob", question="question 4"), done(text="answer 4")])
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        # Of session_a all is indexed, of session_b nothing: both leave an index that is whole.
        for name in ("session_b", "session_a"):
            connection.execute("DELETE FROM chat_sessions WHERE session_id = ?", [name])
            connection.commit()
            connection.execute("INSERT INTO message_search(message_search, rank) VALUES ('integrity-check', 1)")
    assert indexed() == []
    await store.create_session(session("session_c"))
    added = [make_event(0, "message_added", role="user", text=f"remark {number}") for number in range(600)]
    await store.append("session_c", 1, added)
    assert len(indexed()) == 600


async def test_a_large_question_is_stored_whole(store: SqlStore) -> None:
    question = "why? " * 2_000_000
    await store.append("session_a", 1, [begin("ann", question=question)])
    turn = await store.last_turn("session_a")
    assert turn is not None
    assert turn.question == question


async def test_the_url_of_a_folder(home: Path) -> None:
    with pytest.raises(HomeError, match="cannot be written"):
        await open_store(f"sqlite:///{home}", home / ".massmem")


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_any_text_can_be_stored(text: str) -> None:
    stored, payload = storable(begin("ann", question=text))
    payload.encode()
    assert getattr(stored, "question") == clean_text(text)  # noqa: B009  an Event is a union
