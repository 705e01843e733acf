"""Search in PostgreSQL: the same words as SQLite's, ranked by how rare they are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from massmem.core.messages import clean_text
from massmem.store import open_store
from massmem.store.postgres_search import build_tsqueries, build_tsvector
from massmem.store.sql import SqlSessionStore
from massmem.store.tokenizer import MAX_QUERY_WORDS
from tests.contract.test_session_store import done, session
from tests.support.postgres_server import PostgresServer
from tests.support.sample_turn import answer, begin


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
async def store(postgres: PostgresServer, database: str, home: Path) -> AsyncIterator[SqlSessionStore]:
    opened = await open_store(postgres.url(database), home)
    assert isinstance(opened, SqlSessionStore)
    await opened.create_session(session())
    await opened.append("session_a", 1, [begin("ann", question="?")])
    yield opened
    await opened.close()


def any_term(query: str) -> str:
    return " | ".join(build_tsqueries(query))


async def test_long_message_with_many_words_is_found(store: SqlSessionStore) -> None:
    words = " ".join(f"word{n}" for n in range(300_000))
    await store.append("session_a", 1, [answer(1, "ann", f"firstly {words} " + "x" * 5_000_000), done(text="ok")])
    (found,) = await store.search_messages("firstly")
    assert found.content.startswith("firstly word0 ")
    assert await store.search_messages("x" * 5_000_000) == []


async def test_same_words_are_found_as_in_sqlite(store: SqlSessionStore, tmp_path: Path) -> None:
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
        for each in (store, lite):
            await each.append("session_a", 1, [answer(1, "ann", text)])
    queries = ("cafe", "uber", "NAIVE", "angstrom", "snake_case", "snake", "case_snake", "kebab-case", "case")
    queries += ("it's", "e-mail", "example.org", "版本控制", "版本", "СИСТЕМА", "3.14", "14", "0x1f", "v", "- _ -")
    for query in queries:
        ours = {m.content for m in await store.search_messages(query)}
        assert ours == {m.content for m in await lite.search_messages(query)}, query
    await lite.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=300))
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


async def test_rare_words_count_for_more(store: SqlSessionStore) -> None:
    texts = [f"what did we decide about the plan number {n}" for n in range(30)] + ["Kubernetes it is"]
    await store.append("session_a", 1, [answer(1, "ann", text) for text in texts])
    found = await store.search_messages("what did we decide about Kubernetes", limit=3)
    assert found[0].content == "Kubernetes it is"
    assert len(found) == 3


MANY = """
INSERT INTO chat_messages
    (id, session_id, seq, turn, round, kind, role, content, final, escalated, metadata, created_at)
SELECT 'x' || n, 'session_a', n, 1, 1, 'assistant', 'assistant', 'common word', false, false, '{}', now()
FROM generate_series(100, 12100) n;
INSERT INTO message_search SELECT session_id, seq, '''common'':1 ''word'':2' FROM chat_messages WHERE seq >= 100
"""


async def test_rarer_words_choose_among_very_many_matches(
    postgres: PostgresServer, database: str, store: SqlSessionStore
) -> None:
    await store.append("session_a", 1, [answer(1, "ann", "common and seldom"), answer(2, "ann", "only seldom")])
    postgres.execute(MANY, database)
    postgres.execute("ANALYZE", database)
    found = await store.search_messages("common seldom")
    assert {m.content for m in found} == {"common and seldom", "only seldom"}
    assert len(await store.search_messages("common word", ["session_a"], limit=50)) == 50
    assert await store.search_messages("common", ["session_b"]) == []
