"""The store under kills, crowds, full disks and read-only folders: lost / ghosts / lies must all be 0."""

import asyncio
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.errors import HomeError, StoreError
from massmem.store import open_store
from massmem.store.schema import REVISIONS
from tests.contract.test_session_store import session
from tests.support.sample_turn import answer, begin
from tests.support.small_disk import mounted
from tests.support.store_writer import (
    append_answers,
    finish,
    judged,
    noted,
    start,
    stored,
    writers_killed,
)
from tests.support.verdict import check


@pytest.fixture
def database(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "640k") as place:
        yield place


def integrity(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO message_search(message_search) VALUES ('integrity-check')")
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


async def killed(database: Path, notes: Path, kills: int) -> None:
    await writers_killed(database, notes, kills, least=1)
    assert integrity(database) == "ok"


async def test_kill_minus_9(database: Path, tmp_path: Path) -> None:
    await killed(database, tmp_path / "notes", 20)


@pytest.mark.full
async def test_kill_minus_9_often(database: Path, tmp_path: Path) -> None:
    await killed(database, tmp_path / "notes", 200)


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
    acknowledged, found = noted(tmp_path), await stored(database)
    check(f"{processes} processes, {len(acknowledged)} acknowledged", judged(acknowledged, found))
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
    found = [text.partition(":")[2].split()[0] for text in await stored(database)]
    check(f"a full disk, {len(acknowledged)} acknowledged, {raised} refused", judged(acknowledged, found))
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


async def test_a_read_only_home(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk / 'massmem.db'}"
    await (await open_store(url, small_disk)).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for home in (small_disk, small_disk / "new"):
        with pytest.raises(HomeError, match="cannot be written") as caught:
            await open_store(url, home)
        assert caught.value.hint


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
