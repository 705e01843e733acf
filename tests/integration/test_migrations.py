"""Migrations: safe among processes, under a kill, and before a newer file."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from massmem.config.home import make_file
from massmem.core.errors import StoreDamagedError, StoreError, StoreVersionError
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.store import migrations, open_store, sqlite
from massmem.store.postgres import migrate_database, parse_url
from massmem.store.schema import EARLIER, REVISIONS
from tests.contract.test_session_store import session
from tests.support.postgres_server import PostgresServer
from tests.support.sample_turn import whole_turn
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


def test_the_program_knows_exactly_the_released_revisions() -> None:
    scripts = ScriptDirectory(str(migrations.SCRIPTS))
    assert [*EARLIER, *(script.revision for script in reversed(list(scripts.walk_revisions())))] == list(REVISIONS)
    assert scripts.get_heads() == [REVISIONS[-1]]


async def test_database_with_a_newer_schema_is_refused_and_not_touched(full_database: Path) -> None:
    with closing(sqlite3.connect(full_database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
        connection.commit()
    before = full_database.read_bytes()
    with pytest.raises(StoreVersionError, match=r"a newer massmem .*'0099'"):
        await open_store(f"sqlite:///{full_database}", full_database.parent)
    assert full_database.read_bytes() == before


async def test_bytes_of_sessions_that_were_not_counted_are_counted(full_database: Path) -> None:
    with closing(sqlite3.connect(full_database)) as connection:
        connection.execute("ALTER TABLE chat_sessions DROP COLUMN size")
        connection.execute("UPDATE alembic_version SET version_num = '0013'")
        connection.commit()
        stored = connection.execute("SELECT sum(length(payload)) FROM events").fetchone()[0]
    store = await open_store(f"sqlite:///{full_database}", full_database.parent)
    counted = await store.count_sessions(SessionFilter(owner=EVERYBODY))
    await store.close()
    assert counted.bytes == stored > 0


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
