"""Which messages are ranked when a query has words that very many messages have."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.store import open_store
from massmem.store.base import SessionStore
from massmem.store.sqlite_search import _RANKED  # pyright: ignore[reportPrivateUsage]  - the bound that is crossed
from tests.contract.test_session_store import session
from tests.support.sample_turn import answer, begin

MANY = _RANKED + 200


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    """`common` is in very many messages of session_b, `rare` in the first of session_a."""
    database = tmp_path / "massmem.db"
    opened = await open_store(f"sqlite:///{database}", tmp_path)
    for name in ("session_a", "session_b"):
        await opened.create_session(session(name))
        await opened.append(name, 1, [begin("ann"), answer(0, "ann", "rare and common")])
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
    yield opened
    await opened.close()


async def test_the_rarer_words_choose(store: SessionStore) -> None:
    found = await store.search_text("what is common and rare", None, 2)
    assert [(m.session_id, m.content) for m in found] == [
        ("session_a", "rare and common"), ("session_b", "rare and common"),
    ]  # fmt: skip


async def test_of_a_word_that_is_everywhere_the_newest_come_first(store: SessionStore) -> None:
    found = await store.search_text("common", None, 3)
    assert [m.content for m in found] == [f"common {MANY - i}" for i in range(3)]


async def test_the_oldest_of_one_session_are_found_all_the_same(store: SessionStore) -> None:
    found = await store.search_text("common", ["session_a"], 3)
    assert [m.content for m in found] == ["rare and common"]


async def test_a_word_that_nobody_said(store: SessionStore) -> None:
    assert await store.search_text("unheard", None, 3) == []
