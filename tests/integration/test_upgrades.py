"""Homes of earlier builds open: one of each schema and form of the index that differs, made by running that build.

The team was two scripted agents, the question "Minka was born on 3 May 2019. What is the code of the gate?".
"""

import json
import lzma
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import DepthDecided, read_event
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.store import open_store
from massmem.store.postgres import migrate_database, parse_url
from massmem.store.schema import REVISIONS
from tests.integration.test_migrations import shape as describe_database
from tests.support.cli import call_massmem
from tests.support.postgres_server import PostgresServer

HOMES = Path(__file__).parent.parent / "data" / "homes"
DATABASES = sorted(path.name.removesuffix(".db.xz") for path in HOMES.glob("*.db.xz"))
TEAM = """
agents:
  - id: red
    backend: {type: scripted, script: {answer: ["Still 4711."], vote: [{vote_for: "4711", reason: So it is.}]}}
"""


def put_home(home: Path, name: str) -> Path:
    database = home / ".massmem" / "massmem.db"
    database.parent.mkdir()
    database.write_bytes(lzma.decompress((HOMES / f"{name}.db.xz").read_bytes()))
    return database


def describe_schema(database: Path) -> dict[str, Any]:
    """Return columns of tables whatever their order, and the rest as SQLite has it."""
    with closing(sqlite3.connect(database)) as connection:
        schema: dict[str, Any] = {
            name: " ".join(sql.replace('"', "").split())
            for name, kind, sql in connection.execute("SELECT name, type, sql FROM sqlite_master WHERE sql <> ''")
            if kind != "table" and "alembic" not in name
        }
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
            # Alembic may write DEFAULT '0' where SQLAlchemy writes DEFAULT 0.
            schema[f"table {name}"] = {(row[1], row[3], str(row[4]).strip("'"), bool(row[5])) for row in rows}
    return schema


@pytest.fixture
async def schema_of_today(tmp_path: Path) -> dict[str, Any]:
    await (await open_store(f"sqlite:///{tmp_path}/new.db", tmp_path)).close()
    return describe_schema(tmp_path / "new.db")


@pytest.mark.parametrize("name", DATABASES)
async def test_a_home_of_each_schema_opens(home: Path, name: str, schema_of_today: dict[str, Any]) -> None:
    database = put_home(home, name)
    store = await open_store(f"sqlite:///{database}", database.parent)
    (session,) = await store.list_sessions()
    (turn,) = await store.list_turns(session.session_id)
    assert (turn.status, turn.question[:5]) == ("completed", "Minka")
    assert [event.type for event in await store.read_turn_events(session.session_id, 1)][-1] == "turn_completed"
    assert [hit.content for hit in await store.search_messages("Karin", owner=EVERYBODY, limit=1)] == [
        "Ask Karin at the gate."
    ]
    assert (await store.count_sessions(SessionFilter(owner=EVERYBODY))).bytes > 1_000
    await store.close()
    assert describe_schema(database) == schema_of_today
    assert [path.name for path in database.parent.glob("*.bak-*")] == []
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[-1],)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_database_of_an_earlier_build_on_postgres(postgres: PostgresServer) -> None:
    """As 0013 left it, with the column of 0006; real ones of seven builds were brought to the same shape by hand."""
    database = postgres.new_database()
    url, new = parse_url(postgres.url(database)), parse_url(postgres.url(postgres.new_database()))
    migrate_database(url)
    migrate_database(new)
    statements = (
        "DROP TABLE page_sessions",
        "CREATE TABLE ballots (choice TEXT)",
        "ALTER TABLE chat_sessions DROP size, DROP project, DROP origins",
        "ALTER TABLE turns DROP parent, DROP withdrawn",
        "ALTER TABLE requests ADD turn INTEGER NOT NULL",
        "ALTER INDEX idx_chat_messages_session_id RENAME TO ix_chat_messages_turn",
        "UPDATE alembic_version SET version_num = '0006'",
    )
    for statement in statements:
        postgres.execute(statement, database)
    migrate_database(url)
    assert describe_database(url) == describe_database(new)


@pytest.mark.parametrize("name", ["0001", "0003"])
def test_the_memories_of_an_earlier_home_are_searched_and_its_session_goes_on(
    home: Path, tmp_path: Path, name: str
) -> None:
    database = put_home(home, name)
    if name != "0001":  # that build had no index
        with tarfile.open(HOMES / f"{name}.memory.tar.xz") as archive:
            archive.extractall(database.parent, filter="data")
    (tmp_path / "team.yaml").write_text(TEAM)
    team = ("--config", str(tmp_path / "team.yaml"))
    listed = call_massmem("memory", "list", "--json", *team)
    texts = {memory["text"] for memory in json.loads(listed.stdout)["memories"]}
    assert "Minka was born on 3 May 2019. What is the code of the gate?" in texts
    assert not any("vote" in text for text in texts)
    hits = call_massmem("memory", "search", "when was Minka born?", "--origin", "user", "--json", *team)
    assert [hit["agent_id"] for hit in json.loads(hits.stdout)["memories"]] == ["user"]
    went_on = call_massmem("--continue", "--quiet", *team, "And today?")
    assert (went_on.returncode, went_on.stdout) == (0, b"Still 4711.\n"), went_on.stderr


def test_an_event_of_an_earlier_build_is_read() -> None:
    event = read_event(
        {"type": "depth_decided", "round": 1, "asked": ["a", "b"], "reason": "differ", "difference": "the year"}
    )
    assert isinstance(event, DepthDecided)
    assert event.text == "the year"
