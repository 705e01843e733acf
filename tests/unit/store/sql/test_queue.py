"""What the queue of recordings keeps in the database."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.ids import make_message_id
from massmem.memory.persistent import Selection
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session
from tests.support.sample_turn import START, whole_turn


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "m.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(f"sqlite:///{database}", database.parent)
    await opened.create_session(session())
    await opened.append("session_a", 1, whole_turn())
    yield opened
    await opened.close()


async def test_finished_recordings_leave_the_index_of_pending_ones(store: SessionStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:

        def pending() -> int:
            query = "SELECT count(*) FROM recordings INDEXED BY ix_recordings_pending WHERE status = 'pending'"
            return connection.execute(query).fetchone()[0]

        before = pending()
        rows = await store.list_due_recordings("episode", 100)
        await store.finish_recordings(rows)
        assert pending() == before - len(rows) > 0


async def test_queue_holds_no_text_of_messages(store: SessionStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT * FROM recordings").fetchall()
    assert len(found) == 10
    assert "blue" not in str(found).lower()
    assert {row.message_id for row in await store.list_due_recordings("episode", 100)} == {
        make_message_id("session_a", row.seq) for row in await store.list_due_recordings("episode", 100)
    }


async def test_forgetting_removes_the_reason_of_a_failure(store: SessionStore, database: Path) -> None:
    (row, *_) = await store.list_due_recordings("episode", 1)
    await store.fail_recording(row, "cannot embed: my secret question", START)
    await store.forget_recordings(Selection(session_id="session_a"))
    with closing(sqlite3.connect(database)) as connection:
        kept = connection.execute("SELECT DISTINCT kind, status, reason FROM recordings ORDER BY kind").fetchall()
    assert kept == [
        ("complete", "pending", None), ("episode", "forgotten", None), ("extract", "forgotten", None)
    ]  # fmt: skip


async def test_queue_of_a_deleted_session_is_deleted(store: SessionStore, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("DELETE FROM chat_sessions")
        connection.commit()
    assert (await store.count_recordings()).pending == 0
