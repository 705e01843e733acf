"""The store under kills, crowds, full disks and read-only folders: lost / ghosts / lies must all be 0."""

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.errors import HomeError, StoreDamagedError, StoreError
from massmem.core.records import EVERYBODY
from massmem.store import open_store
from massmem.store.schema import REVISIONS
from tests.contract.test_session_store import session
from tests.support.cli import massmem, script, write_team
from tests.support.sample_turn import answer, begin
from tests.support.small_disk import mount_small_disk
from tests.support.store_writer import (
    append_answers,
    count_faults,
    finish,
    kill_and_check_writers,
    read_notes,
    read_stored,
    start,
)
from tests.support.verdict import check


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "small", "640k") as place:
        yield place


def integrity(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO message_search(message_search) VALUES ('integrity-check')")
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.full)])
async def test_kill_minus_9(database: Path, tmp_path: Path, kills: int) -> None:
    await kill_and_check_writers(database, tmp_path / "notes", kills, least=1)
    assert integrity(database) == "ok"


FRESH = [
    pytest.param(8, 8, id="8, a session each"),
    pytest.param(8, 1, id="8 in one session"),
    pytest.param(32, 8, id="32 in 8 sessions", marks=pytest.mark.full),
]


@pytest.mark.parametrize(("processes", "sessions"), FRESH)
async def test_many_processes_on_a_fresh_home(database: Path, tmp_path: Path, processes: int, sessions: int) -> None:
    writers = [
        start(append_answers, database, tmp_path / f"{n}.notes", f"s{n % sessions}", f"w{n}", 40)
        for n in range(processes)
    ]
    assert finish(writers, 120) == [0] * processes
    acknowledged, found = read_notes(tmp_path), await read_stored(database)
    check(f"{processes} processes, {len(acknowledged)} acknowledged", count_faults(acknowledged, found))
    assert len(acknowledged) == 40 * processes
    assert integrity(database) == "ok"
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[-1],)]


async def test_a_full_disk(small_disk: Path) -> None:
    database = small_disk / "massmem.db"
    store = await open_store(f"sqlite:///{database}", small_disk)
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")])
    acknowledged: list[str] = []
    raised = 0
    for number in range(200):
        try:
            await store.append("session_a", 1, [answer(0, "ann", f"w-{number}" + " word" * 1000)])
            acknowledged.append(f"w-{number}")
        except StoreError as e:
            raised += 1
            assert "disk" in e.message
            assert "untouched" in e.hint
    await store.close()
    contents = [text.partition(":")[2].split()[0] for text in await read_stored(database)]
    check(f"a full disk, {len(acknowledged)} acknowledged, {raised} refused", count_faults(acknowledged, contents))
    assert acknowledged
    assert raised


async def test_a_disk_that_is_full_from_the_start(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * 1_000_000)
    with pytest.raises(StoreError, match="disk"):
        await open_store(f"sqlite:///{small_disk / 'massmem.db'}", small_disk)
    filler.unlink()
    await (await open_store(f"sqlite:///{small_disk / 'massmem.db'}", small_disk)).close()


async def test_read_only_store_can_be_read_and_refuses_changes(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk / 'massmem.db'}"
    store = await open_store(url, small_disk)
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann", question="Which penguin?")])
    await store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = await open_store(url, small_disk)
    assert "read-only" in store.info.once[0]
    assert [found.session_id for found in await store.list_sessions()] == ["session_a"]
    assert [message.content for message in await store.search_messages("penguin", owner=EVERYBODY)] == [
        "Which penguin?"
    ]
    with pytest.raises(StoreError, match="read-only"):
        await store.append("session_a", 1, [answer(0, "ann", "more")])
    await store.close()
    for name in ("new.db", "new/new.db"):
        with pytest.raises(HomeError, match="cannot be written") as caught:
            await open_store(f"sqlite:///{small_disk / name}", small_disk)
        assert caught.value.hint


async def test_commands_that_only_read_work_in_a_read_only_home(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(small_disk))
    team = write_team(small_disk, script("an answer"), memory={"persistent_memory": {"enabled": False}})
    assert massmem("--config", team, "Which penguin?").returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for command in (["list"], ["search", "penguin"], ["stats"]):
        shown = massmem("sessions", *command, "--config", team, text=True)
        assert shown.returncode == 0, shown.stderr
        assert "is read-only" in shown.stderr
        assert command == ["stats"] or "penguin" in shown.stdout
    assert massmem("--config", team, "More?").returncode in (2, 3)


async def copy_as_after_a_kill(database: Path, folder: Path) -> Path:
    """Return a copy of a database whose process has not closed it."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann"), *(answer(0, "ann", "word " * 900) for _ in range(200))])
    await store.close()
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.append("session_a", 1, [answer(0, "ann", "more")])
    folder.mkdir()
    for path in (database, database.with_name(f"{database.name}-wal")):
        shutil.copyfile(path, folder / path.name)
    await store.close()
    return folder / database.name


async def test_damage_is_found_when_the_store_is_opened_after_a_kill(database: Path, tmp_path: Path) -> None:
    copy = await copy_as_after_a_kill(database, tmp_path / "copy")
    with closing(sqlite3.connect(database)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'requests'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(copy.read_bytes())
    data[(page - 1) * size : page * size] = b"\xa5" * size
    copy.write_bytes(data)
    with pytest.raises(StoreDamagedError, match="is damaged") as damaged:
        await open_store(f"sqlite:///{copy}", copy.parent)
    assert f"massmem store recover {copy} --to {copy}.recovered" in damaged.value.hint


async def test_sound_store_opens_after_a_kill_and_while_another_has_it_open(database: Path, tmp_path: Path) -> None:
    copy = await copy_as_after_a_kill(database, tmp_path / "copy")
    first = await open_store(f"sqlite:///{copy}", copy.parent)
    await first.append("session_a", 1, [answer(0, "ann", "again")])
    second = await open_store(f"sqlite:///{copy}", copy.parent)
    assert len(await second.read_messages("session_a")) == 203
    await second.close()
    await first.close()


@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "missing"])
def test_lost_database_is_not_taken_for_a_new_home(home: Path, tmp_path: Path, is_empty: bool) -> None:
    team = write_team(tmp_path, script("an answer"), memory={"persistent_memory": {"enabled": False}})
    assert massmem("--config", team, "One?").returncode == 0
    database, registry = home / ".massmem" / "massmem.db", home / ".massmem" / "sessions.json"
    entries = registry.read_bytes()
    for path in database.parent.glob("massmem.db*"):
        path.unlink()
    if is_empty:
        database.touch()
    for command in (["--config", team, "Two?"], ["sessions", "list", "--config", team]):
        refused = massmem(*command, text=True)
        assert refused.returncode == 3, refused.stderr
        assert "lists 1 of its sessions" in refused.stderr
        assert "--new-home" in refused.stderr
    assert (database.exists() and database.stat().st_size == 0) == is_empty
    assert registry.read_bytes() == entries
    anew = massmem("--new-home", "--config", team, "Two?", text=True)
    assert (anew.returncode, anew.stdout.strip()) == (0, "an answer"), anew.stderr
    assert [path.read_bytes() for path in registry.parent.glob("sessions.json.before-*")] == [entries]
    assert massmem("--config", team, "--continue", "Three?").returncode == 0


async def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / ".massmem", Path("/proc/nobody/.massmem")):
        with pytest.raises(HomeError, match="cannot be written"):
            await open_store(f"sqlite:///{home / 'massmem.db'}", home)


async def test_a_damaged_page_is_named_and_nothing_is_overwritten(database: Path) -> None:
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann"), *(answer(0, "ann", "word " * 900) for _ in range(200))])
    await store.close()
    with closing(sqlite3.connect(database)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(database.read_bytes())
    data[(page - 1) * size : page * size] = b"\xa5" * size
    database.write_bytes(data)
    store = await open_store(f"sqlite:///{database}", database.parent)
    with pytest.raises(StoreError, match=r"massmem\.db is damaged"):
        await store.append("session_a", 1, [answer(0, "ann", "more")])
    await store.close()
    assert database.read_bytes() == data


async def test_the_event_loop_goes_on_while_a_write_waits(database: Path) -> None:
    store = await open_store(f"sqlite:///{database}", database.parent)
    await store.create_session(session())
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.append("session_a", 1, [begin("ann")]))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        other.execute("ROLLBACK")
    await waiting
    await store.close()
