"""Migrations: the same schema as schema.py, safe among processes, under a kill, and before a newer file."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import BaseModel

from massmem.config.home import make_file
from massmem.core.errors import StoreDamagedError, StoreError, StoreVersionError
from massmem.core.events import Event, HistoryCleared, TurnStarted
from massmem.core.records import EVERYBODY
from massmem.store import migrations, open_store, sqlite
from massmem.store.ports import SessionStore
from massmem.store.postgres import migrate_database, parse_url
from massmem.store.projection import InsertRow, UpdateTurn, count_seqs, project
from massmem.store.schema import REVISIONS, message_search, metadata
from tests.contract.test_session_store import KINDS, session
from tests.support.postgres_server import PostgresServer
from tests.support.sample_turn import answer, begin, event, whole_turn
from tests.support.store_writer import start

NOW = REVISIONS[-1]
LATER = f'''
"""A later release."""

import sqlalchemy as sa
from alembic import op

revision = "later"
down_revision = "{NOW}"


def upgrade() -> None:
    op.add_column("chat_sessions", sa.Column("pinned", sa.Boolean))
    op.execute("UPDATE chat_sessions SET pinned = true")
    {{then}}
'''


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


@pytest.fixture
async def full_database(database: Path) -> Path:
    """A database of this release, with one turn in it."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    await store.close()
    return database


def later_release(tmp_path: Path, then: str = "") -> Path:
    scripts = tmp_path / "scripts 100%"
    shutil.copytree(migrations.SCRIPTS, scripts)
    (scripts / "versions" / "9999_later.py").write_text(LATER.format(then=then))
    return scripts


def parts(database: Path) -> dict[str, str]:
    """Everything that makes up a schema, as SQLite keeps it, spelling of blanks and quotes aside."""
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: " ".join(sql.replace('"', "").split()) for name, sql in found if "alembic" not in name}


def backups(database: Path) -> list[str]:
    return [path.name for path in database.parent.glob("*.bak-*")]


def is_own_table(name: str | None, kind: str, _: object) -> bool:
    """Return whether a comparison looks at it: the search index has tables of its own."""
    return kind != "table" or name in metadata.tables


async def test_the_migrations_make_the_schema_of_an_empty_database(full_database: Path, tmp_path: Path) -> None:
    migrated = tmp_path / "migrated.db"
    make_file(migrated)
    sqlite.migrate_file(migrated, migrations.SCRIPTS)
    assert sqlite.read_revision(migrated) == sqlite.read_revision(full_database) == NOW
    engine = sa.create_engine(f"sqlite:///{migrated}")
    with engine.connect() as connection:
        options = {"include_name": is_own_table}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()
    made, declared = parts(migrated), parts(full_database)
    assert set(made) == set(declared)
    for name in declared:
        if not name.startswith("table ") or "VIRTUAL" in declared[name]:
            assert made[name] == declared[name]  # partial indexes, triggers and the search index to the letter


def test_the_program_knows_exactly_the_released_revisions() -> None:
    scripts = ScriptDirectory(str(migrations.SCRIPTS))
    assert [script.revision for script in reversed(list(scripts.walk_revisions()))] == list(REVISIONS)
    assert scripts.get_heads() == [REVISIONS[-1]]


async def test_a_newer_database_is_refused_and_not_touched(full_database: Path) -> None:
    with closing(sqlite3.connect(full_database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
        connection.commit()
    before = full_database.read_bytes()
    with pytest.raises(StoreVersionError, match=r"newer massmem .*'0099'"):
        await open_store(f"sqlite:///{full_database}", full_database.parent)
    assert full_database.read_bytes() == before


async def test_the_database_of_another_program_is_refused(database: Path) -> None:
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE recipes (id)")
        connection.commit()
    before = database.read_bytes()
    with pytest.raises(StoreDamagedError, match="another program"):
        await open_store(f"sqlite:///{database}", database.parent)
    assert database.read_bytes() == before


def test_alembic_is_loaded_neither_for_a_new_database_nor_for_one_that_is_up_to_date(home: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from massmem.store import open_store\n"
        "home = Path('~/.massmem').expanduser()\n"
        "async def main(): await (await open_store('sqlite:///~/.massmem/m.db', home)).close()\n"
        "asyncio.run(main()); new = 'alembic' in sys.modules\n"
        "asyncio.run(main()); print(new, 'alembic' in sys.modules)"
    )
    environment = {**os.environ, "HOME": str(home)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout == "False False\n"


async def test_an_upgrade_keeps_the_data_and_removes_its_backup(full_database: Path, tmp_path: Path) -> None:
    sqlite.migrate_file(full_database, later_release(tmp_path), "later")
    assert sqlite.read_revision(full_database) == "later"
    assert backups(full_database) == []
    with closing(sqlite3.connect(full_database)) as connection:
        assert connection.execute("SELECT session_id, message_count, pinned FROM chat_sessions").fetchall() == [
            ("session_a", 8, 1)
        ]


def first_release(tmp_path: Path) -> Path:
    scripts = tmp_path / "first"
    shutil.copytree(migrations.SCRIPTS, scripts)
    for later in sorted((scripts / "versions").glob("*.py"))[1:]:
        later.unlink()
    return scripts


@pytest.fixture
def old(database: Path, tmp_path: Path) -> Path:
    """A database of the first release: a turn that is done, one that its user stopped, and one under way."""
    database.parent.mkdir()
    make_file(database)
    sqlite.migrate_file(database, first_release(tmp_path), "0001")
    engine = sa.create_engine(f"sqlite:///{database}")
    tables = sa.MetaData()
    tables.reflect(engine, only=["chat_sessions", "chat_messages", "turns", "answers", "ballots"])
    row = {n: v for n, v in session().model_dump().items() if n in tables.tables["chat_sessions"].c}
    seq = 0
    with engine.begin() as connection:
        connection.execute(tables.tables["chat_sessions"].insert(), row)
        for turn, events in enumerate((whole_turn(), stopped_turn(), [begin("ann", question="Still running?")]), 1):
            for happened in events:
                seq += count_seqs(happened)
                for operation in project("session_a", turn, seq, happened):
                    match operation:
                        case InsertRow(table, values) if table != "recordings":
                            connection.execute(tables.tables[table].insert(), values)
                        case UpdateTurn(values):
                            of_turn = tables.tables["turns"].c.turn == turn
                            connection.execute(tables.tables["turns"].update().where(of_turn).values(values))
                        case _:
                            pass
    engine.dispose()
    return database


def stopped_turn() -> list[Event]:
    return [
        begin("ann", at=10, question="And why is it red at dusk?"),
        answer(11, "ann", "The way through the air is longer."),
        event(12, "turn_interrupted", by="user"),
    ]


async def test_a_database_of_the_first_release_gets_its_queue(old: Path, tmp_path: Path) -> None:
    migrated = await open_store(f"sqlite:///{old}", old.parent)
    assert sqlite.read_revision(old) == NOW
    assert backups(old) == []
    episodes = await migrated.list_due_recordings("episode", 100)
    complete = await migrated.list_due_recordings("complete", 100)
    counts = await migrated.count_recordings()
    await migrated.close()
    fresh = await open_store(f"sqlite:///{tmp_path / 'fresh.db'}", tmp_path)
    await fresh.create_session(session())
    for turn, events in enumerate((whole_turn(), stopped_turn(), [begin("ann", question="Still running?")]), 1):
        await fresh.append("session_a", turn, events)
    assert [e.message_id for e in episodes] == [e.message_id for e in await fresh.list_due_recordings("episode", 100)]
    assert sorted(e.position or 0 for e in episodes) == list(range(len(episodes)))
    assert [(c.turn, c.agent_id) for c in complete] == [(1, "ann")]
    # Facts of what was said before are not extracted unasked, and are known for when they are asked for.
    extracts = await fresh.list_due_recordings("extract", 100)
    assert counts.done == len({(row.turn, row.agent_id) for row in extracts}) == 3
    await fresh.close()


STORED = Path(__file__).with_name("stores")
"""Databases that earlier releases wrote, each with what that release read from it.

They hold a council of three agents whose last turn was undone, a session with params, one that waits for the user, one
with an abandoned turn, notes and a cleared history, and one that was cut off within a turn; recordings in every status,
a lease of a process that is gone, and messages that the search index did not hold yet.
"""


ADDED_LATER: dict[str, Any] = {
    **dict.fromkeys(("remember", "truncated", "answer_schema", "data", "session_only", "attachments"), True),
    **dict.fromkeys(("names", "agent_name", "winner_name", "history_hash", "early_stop", "not_asked"), True),
    **dict.fromkeys(("no_vote", "agreement"), True),
    **dict.fromkeys(
        ("retrying", "oldest", "imported", "work_cut", "removed_work", "work_until", "forgotten_facts"), True
    ),
    "usage": {"reasoning", "cache_written", "saved"},
}
"""Fields of events that the stored expectations do not know."""
RENAMED = {"tie_earliest": "tie", "earliest": "no_vote_held"}
"""How a winner was decided, as it was stored and as it is read."""


def dump(record: BaseModel) -> dict[str, Any]:
    later = {"description": True, "usage": True} if isinstance(record, TurnStarted) else {}
    later |= {"until": True} if isinstance(record, HistoryCleared) else {}
    return record.model_dump(mode="json", exclude=ADDED_LATER | later)


async def read_session(store: SessionStore, name: str) -> dict[str, Any]:
    """Everything that the store holds of a session, as JSON."""
    session, copy = await store.get_session(name), await store.export_session(name)
    assert session is not None and copy is not None
    turns, log = await store.list_turns(name), await store.export_log(name)
    numbers = [0, *(turn.turn for turn in turns)]
    return {
        "session": dump(session),
        "messages": [dump(message) for message in await store.read_messages(name)],
        "conversation": [message.seq for message in await store.read_conversation(name, None, 100)],
        "turns": [dump(turn) for turn in turns],
        "events": {str(turn): [dump(event) for event in await store.read_turn_events(name, turn)] for turn in numbers},
        "log": [[entry.seq, entry.turn, len(entry.payload)] for entry in log],
        "queue": [dump(row) for entry in log for row in entry.recordings],
        "state": dump(await store.load_state(name)),
        "due": {kind: [row.seq for row in await store.list_due_recordings(kind, 1000, name)] for kind in KINDS},
        "counts": dump(await store.count_recordings(name)),
        "lease_owner": await store.get_lease_owner(name),
        "abandoned": list(copy.abandoned),
    }


async def read_store(store: SessionStore, searches: Iterable[str]) -> dict[str, Any]:
    sessions = {
        session.session_id: await read_session(store, session.session_id) for session in await store.list_sessions()
    }
    return sessions | {
        "searches": {
            query: [message.id for message in await store.search_messages(query, owner=EVERYBODY)] for query in searches
        }
    }


@pytest.mark.parametrize("schema", ["schema_0007"])
async def test_database_of_an_earlier_release_reads_the_same(database: Path, schema: str) -> None:
    stored = (STORED / f"{schema}.json").read_text(encoding="utf-8")
    for old, new in RENAMED.items():
        stored = stored.replace(f'"by":"{old}"', f'"by":"{new}"')
    expected = json.loads(stored)
    database.parent.mkdir()
    shutil.copyfile(STORED / f"{schema}.db", database)
    for _ in range(2):
        store = await open_store(f"sqlite:///{database}", database.parent)
        assert await read_store(store, expected["searches"]) == expected
        await store.close()
    assert sqlite.read_revision(database) == NOW
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.append("session_a", 4, [begin("ann", question="Does it go on after the update?")])
    assert [message.turn for message in await store.search_messages("update", owner=EVERYBODY)] == [4]
    await store.close()


async def test_a_failed_upgrade_changes_nothing_and_names_the_backup(full_database: Path, tmp_path: Path) -> None:
    scripts = later_release(tmp_path, then='op.execute("INSERT INTO nowhere VALUES (1)")')
    before = parts(full_database)
    with pytest.raises(StoreError, match=r"no such table: nowhere") as caught:
        sqlite.migrate_file(full_database, scripts, "later")
    assert str(full_database.with_name(f"massmem.db.bak-{NOW}")) in caught.value.hint
    assert (parts(full_database), sqlite.read_revision(full_database)) == (before, NOW)
    assert sqlite.read_revision(full_database.with_name(f"massmem.db.bak-{NOW}")) == NOW
    await (await open_store(f"sqlite:///{full_database}", full_database.parent)).close()


async def test_an_upgrade_that_would_orphan_rows_is_undone(full_database: Path, tmp_path: Path) -> None:
    scripts = later_release(tmp_path, then='op.execute("DELETE FROM chat_sessions")')
    with pytest.raises(StoreError, match="would lose what they belong to"):
        sqlite.migrate_file(full_database, scripts, "later")
    assert sqlite.read_revision(full_database) == NOW


def killed_upgrade(database: Path, scripts: Path, notes: Path) -> None:
    os.environ["UPGRADE_NOTES"] = str(notes)
    sqlite.migrate_file(database, scripts, "later")


async def test_a_kill_within_an_upgrade(full_database: Path, tmp_path: Path) -> None:
    waits = "import os, time, pathlib; pathlib.Path(os.environ['UPGRADE_NOTES']).touch(); time.sleep(60)"
    scripts, reached = later_release(tmp_path, then=waits), tmp_path / "reached"
    upgrading = start(killed_upgrade, full_database, scripts, reached)
    while not reached.exists():
        assert upgrading.is_alive()
        time.sleep(0.01)
    upgrading.kill()
    upgrading.join()
    assert sqlite.read_revision(full_database) == NOW
    assert backups(full_database) == [f"massmem.db.bak-{NOW}"]
    (scripts / "versions" / "9999_later.py").write_text(LATER.format(then=""))
    sqlite.migrate_file(full_database, scripts, "later")
    assert sqlite.read_revision(full_database) == "later"
    assert backups(full_database) == []


def test_a_kill_within_the_first_migration(database: Path, tmp_path: Path) -> None:
    database.parent.mkdir()
    make_file(database)
    reached = tmp_path / "reached"
    waits = "import os, time, pathlib; pathlib.Path(os.environ['UPGRADE_NOTES']).touch(); time.sleep(60)"
    upgrading = start(killed_upgrade, database, later_release(tmp_path, then=waits), reached)
    while not reached.exists():
        assert upgrading.is_alive()
        time.sleep(0.01)
    upgrading.kill()
    upgrading.join()
    assert sqlite.read_revision(database) is None
    sqlite.migrate_file(database)
    assert sqlite.read_revision(database) == REVISIONS[-1]


# The same on PostgreSQL.


@pytest.fixture
def url(postgres: PostgresServer) -> sa.URL:
    return parse_url(postgres.url(postgres.new_database()))


def shape(url: sa.URL) -> dict[str, object]:
    """Everything that makes up a schema, as PostgreSQL tells it."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = sa.inspect(connection)
        indexes = connection.exec_driver_sql(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        made: dict[str, object] = {row.indexname: row.indexdef for row in indexes}
        for table in set(found.get_table_names()) - {"alembic_version"}:
            made[table] = [
                sorted((c["name"], repr(c["type"]), c["nullable"], c["default"]) for c in found.get_columns(table)),
                found.get_pk_constraint(table)["constrained_columns"],
                sorted(repr(key) for key in found.get_foreign_keys(table)),
                sorted(check["sqltext"] for check in found.get_check_constraints(table)),
            ]
    engine.dispose()
    return made


async def test_the_migrations_make_the_schema_on_postgres(url: sa.URL, postgres: PostgresServer) -> None:
    migrate_database(url)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        options = {"include_name": is_own_table}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()
    direct = parse_url(postgres.url(postgres.new_database()))
    engine = sa.create_engine(direct)
    metadata.create_all(engine)
    message_search.create(engine)
    engine.dispose()
    assert shape(url) == shape(direct)
    assert "btree (session_id, " in str(shape(url)["idx_chat_messages_session_id"])


def killed_server_upgrade(url: str, scripts: Path, notes: Path) -> None:
    os.environ["UPGRADE_NOTES"] = str(notes)
    migrate_database(parse_url(url), scripts, "later")


def test_a_kill_within_an_upgrade_on_postgres(url: sa.URL, tmp_path: Path, postgres: PostgresServer) -> None:
    waits = "import os, time, pathlib; pathlib.Path(os.environ['UPGRADE_NOTES']).touch(); time.sleep(60)"
    scripts, reached = later_release(tmp_path, then=waits), tmp_path / "reached"
    text = url.render_as_string(hide_password=False).replace("postgresql+psycopg", "postgresql")
    assert url.database is not None
    upgrading = start(killed_server_upgrade, text, scripts, reached)
    while not reached.exists():
        assert upgrading.is_alive()
        time.sleep(0.01)
    upgrading.kill()
    upgrading.join()
    (scripts / "versions" / "9999_later.py").write_text(LATER.format(then=""))
    migrate_database(url, scripts, "later")  # waits for the server to notice that the other one has gone
    assert postgres.execute("SELECT version_num FROM alembic_version", url.database) == [("later",)]
    with pytest.raises(StoreVersionError):
        migrate_database(url)


def test_a_failed_upgrade_changes_nothing_on_postgres(url: sa.URL, tmp_path: Path) -> None:
    migrate_database(url)
    before = shape(url)
    scripts = later_release(tmp_path, then='op.execute("INSERT INTO nowhere VALUES (1)")')
    with pytest.raises(StoreError, match=r"updating the database failed.*nowhere"):
        migrate_database(url, scripts, "later")
    assert shape(url) == before
