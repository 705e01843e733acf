"""`massmem store backup` and `restore`: each store, beside writers, killed, on a full disk, with changed archives."""

import asyncio
import json
import random
import shutil
import signal
import time
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from massmem.config.calibrations import read_calibration, store_calibration
from massmem.core.records import EVERYBODY, LogEntry, SessionFilter
from massmem.store import open_store
from massmem.store.lookup import read_all_messages
from massmem.store.ports import Retention, SessionStore
from tests.contract.test_session_store import done, session
from tests.contract.test_session_store_state import lived_in, seen
from tests.support.calibrations import write_calibration
from tests.support.cli import call_massmem, massmem, start
from tests.support.memory_command import MemoryCommand
from tests.support.sample_turn import begin, turn_without_restart
from tests.support.small_disk import mount_small_disk
from tests.support.stores import NewPlace

TEAM = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""


@pytest.fixture
def team(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    return path


def use(team: Path, url: str) -> None:
    team.write_text(f'{TEAM}\nstore: {{url: "{url}", ttl: null, max_messages: 10000}}\n')


def store_command(*line: str, code: int = 0) -> str:
    """Run `massmem store`, and return stderr. The event loop of a test does not stand in the way."""
    result = massmem("store", *line, "--config", "team.yaml", text=True)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


async def open_default(home: Path) -> SessionStore:
    return await open_store(f"sqlite:///{home / '.massmem' / 'massmem.db'}", home / ".massmem")


def sort_jobs(values: list[object]) -> str:
    """Return the values as a text. The order of the jobs of an entry differs in stores."""
    for page in cast("list[list[LogEntry]]", values[-1]):
        page[:] = [entry.model_copy(update={"recordings": tuple(sorted(entry.recordings, key=str))}) for entry in page]
    return str(values).replace("TzInfo(0)", "datetime.timezone.utc")


async def fill(home: Path, turns: int = 3) -> None:
    store = await open_default(home)
    await store.create_session(session())
    for number in range(1, turns + 1):
        await store.append("session_a", number, [begin("ann", at=number, question=f"Question {number}?"), done(number)])
    await store.close()


def move_away(home: Path) -> None:
    (home / ".massmem").rename(home / f"before-{time.monotonic_ns()}")


@pytest.mark.slow
async def test_a_store_of_each_kind_comes_back_in_each(team: Path, new_place: NewPlace, home: Path) -> None:
    urls = [new_place(), new_place(), f"sqlite:///{home / 'other.db'}"]
    source = await open_store(urls[0], home / ".massmem")
    await lived_in(source)
    before = sort_jobs(await seen(source))
    use(team, urls[0])
    assert "1 session, 13 messages" in store_command("backup", "all.zip")
    for url in urls[1:]:
        use(team, url)
        assert "1 copied" in store_command("restore", "all.zip")
        assert "1 already there" in store_command("restore", "all.zip")
        target = await open_store(url, home / ".massmem")
        assert sort_jobs(await seen(target)) == before
        await target.close()
    await source.close()


@pytest.mark.slow
async def test_sessions_are_whole_in_a_backup_beside_a_writer(team: Path, new_place: NewPlace, home: Path) -> None:
    url = new_place()
    store = await open_store(url, home / ".massmem", Retention(None, 10_000))
    use(team, url)
    await store.create_session(session())
    written, is_over = 0, False

    async def write() -> None:
        nonlocal written
        while not is_over:
            written += 1
            await store.append("session_a", written, [begin("ann", at=written, question=f"No. {written}?")])
            await asyncio.sleep(0.1)
            await store.append("session_a", written, [done(written)])

    writing = asyncio.create_task(write())
    for number in range(3):
        await asyncio.to_thread(store_command, "backup", f"{number}.zip")
    is_over = True
    await writing
    await store.close()
    numbers = list[int]()
    for number in range(3):
        with zipfile.ZipFile(f"{number}.zip") as archive:
            archive.extract("massmem.db", home / str(number))
        copy = await open_store(f"sqlite:///{home / str(number) / 'massmem.db'}", home / str(number))
        record = await copy.get_session("session_a")
        messages = [message async for message in read_all_messages(copy, "session_a")]
        assert record is not None
        assert record.message_count == len(messages)
        assert [turn.turn for turn in await copy.list_turns("session_a", 0, 10_000)] == sorted(
            {m.turn for m in messages}
        )
        numbers.append(len(messages))
        await copy.close()
    assert numbers == sorted(numbers)
    assert numbers[0] > 0


def test_forgotten_pinned_and_edited_memories_come_back_like_that(
    team: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_say(home))
    memory = MemoryCommand(capsys)
    ids = {m["text"]: m["id"] for m in memory.json("list")["memories"]}
    first, second, third, *_ = ids
    memory("forget", ids[first], "--yes")
    memory("pin", ids[second])
    memory("edit", ids[third], "I have a cat called Felix.")
    before = {(m["text"], m["pinned"]) for m in memory.json("list")["memories"]}
    assert (second, True) in before
    config = home / ".massmem" / "config.yaml"
    config.write_text(
        'agents: [{id: a, backend: {type: openai, api_key: "sk-not-for-others"}}]\nserver: {jwt: {secret: ${S}}}\n'
    )
    store_command("backup", "all.zip")
    move_away(home)
    assert "config.yaml is the one of the backup" in store_command("restore", "all.zip")
    assert (
        config.read_text()
        == "agents: [{id: a, backend: {type: openai, api_key: null}}]\nserver: {jwt: {secret: ${S}}}\n"
    )
    assert {(m["text"], m["pinned"]) for m in memory.json("list")["memories"]} == before
    # An older backup does not bring back what was forgotten since.
    memory("forget", ids[second], "--yes")
    store_command("restore", "all.zip")
    assert {m["text"] for m in memory.json("list")["memories"]} == {text for text, _ in before} - {second}


def test_our_own_export_does_not_bring_back_what_was_forgotten(
    team: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_say(home))
    memory = MemoryCommand(capsys)
    ids = {m["text"]: m["id"] for m in memory.json("list")["memories"]}
    export = massmem("sessions", "export", "session_a", "--format", "json", "--config", "team.yaml")
    Path("session.json").write_bytes(export.stdout)
    gone, *others = ids
    memory("forget", ids[gone], "--yes")
    assert massmem("import", "session.json", "--config", "team.yaml").returncode == 0
    memory("record")
    assert {m["text"] for m in memory.json("list")["memories"]} == {*others}
    memory("forget", "--everywhere", ids[others[0]], "--yes")
    assert massmem("import", "session.json", "--config", "team.yaml").returncode == 0
    memory("record")
    assert {m["text"] for m in memory.json("list")["memories"]} <= {*others[1:]}
    memory("rebuild")
    assert {m["text"] for m in memory.json("list")["memories"]} <= {*others[1:]}


async def _say(home: Path) -> None:
    store = await open_default(home)
    await store.create_session(session())
    await store.append("session_a", 1, turn_without_restart())
    await store.close()


def test_calibrations_come_back_and_replace_none(team: Path, home: Path) -> None:
    asyncio.run(fill(home))
    other = team.with_name("other.yaml")
    other.write_text(TEAM.replace("id: ann", "id: bob"))
    gone, newer = (write_calibration(home, path, {}) for path in (team, other))
    store_command("backup", "all.zip")
    gone.unlink()
    store_calibration(home / ".massmem", read_calibration(newer).model_copy(update={"team": "newer"}))
    store_command("restore", "all.zip")
    assert [read_calibration(path).team for path in (gone, newer)] == ["team", "newer"]


def test_archive_that_is_not_whole_is_refused_and_changes_nothing(team: Path, home: Path, tmp_path: Path) -> None:
    asyncio.run(fill(home))
    store_command("backup", "all.zip")
    assert "exists already" in store_command("backup", "all.zip", code=2)
    whole = Path("all.zip").read_bytes()
    assert Path("all.zip").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.glob(".all*")] == []
    move_away(home)
    chance = random.Random(1)
    kinds = {f"cut {end}": whole[:end] for end in (0, 1, 100, len(whole) // 2, len(whole) - 1)}
    for place in chance.sample(range(200, len(whole) // 2), 20):
        kinds[f"changed {place}"] = whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
    with zipfile.ZipFile("all.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for name, change in {
        "added": {"../evil": b"x"},
        "other": {"massmem.db": b"SQLite format 3"},
        "no": {"manifest.json": b"[]"},
    }.items():
        with zipfile.ZipFile("changed.zip", "w") as archive:
            for file, data in (files | change).items():
                archive.writestr(file, data)
        kinds[name] = Path("changed.zip").read_bytes()
    start_of_entry = whole.index(b"PK\1\2")
    locked = bytearray(whole)
    for place in (6, start_of_entry + 8):
        locked[place] |= 1  # encrypted
    kinds["encrypted"] = bytes(locked)
    for kind, data in kinds.items():
        Path("broken.zip").write_bytes(data)
        with suppress(zipfile.BadZipFile, zlib.error, RuntimeError), zipfile.ZipFile("broken.zip") as archive:
            if {name: archive.read(name) for name in archive.namelist()} == files:
                continue  # a bit that fills up a block
        result = call_massmem("store", "restore", "broken.zip", "--config", "team.yaml")
        assert result.returncode == 2, kind
        assert b"is no whole backup of massmem" in result.stderr
    assert not (home / ".massmem").exists()
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.slow
def test_a_killed_backup_leaves_no_file_and_a_killed_restore_is_finished_by_the_next(team: Path, home: Path) -> None:
    asyncio.run(fill(home, 2_000))
    chance = random.Random(2)
    for _ in range(4):
        process = start("store", "backup", "all.zip", "--config", "team.yaml", cwd=team.parent)
        time.sleep(chance.uniform(0.5, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if Path("all.zip").exists():  # it was faster
            assert zipfile.ZipFile("all.zip").testzip() is None
            Path("all.zip").unlink()
    store_command("backup", "all.zip")
    assert sorted(path.name for path in team.parent.iterdir() if "all" in path.name) == ["all.zip"]
    move_away(home)
    for _ in range(4):
        process = start("store", "restore", "all.zip", "--config", "team.yaml", cwd=team.parent)
        time.sleep(chance.uniform(0.5, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    store_command("restore", "all.zip")
    assert "1 already there" in store_command("restore", "all.zip")

    async def count() -> int:
        store = await open_default(home)
        counts = await store.count_sessions(SessionFilter(owner=EVERYBODY))
        await store.close()
        return counts.messages

    assert asyncio.run(count()) == 4_000


@pytest.mark.slow
@pytest.mark.parametrize("size", ["64k", "300k", "700k"])
def test_a_full_disk_is_said_and_leaves_nothing(team: Path, home: Path, tmp_path: Path, size: str) -> None:
    asyncio.run(fill(home, 500))
    with mount_small_disk(tmp_path / "small", size) as small:
        err = store_command("backup", str(small / "all.zip"), code=3)
        assert "disk is full" in err
        assert [*small.iterdir()] == []
    store_command("backup", "all.zip")
    move_away(home)
    with mount_small_disk(home / ".massmem", size):
        assert "disk is full" in store_command("restore", "all.zip", code=3)
    shutil.rmtree(home / ".massmem")
    assert "1 copied" in store_command("restore", "all.zip")


def test_a_database_that_recover_wrote_is_restored_and_the_old_command_remains(team: Path, home: Path) -> None:
    asyncio.run(fill(home))
    shutil.copy(home / ".massmem" / "massmem.db", "old.db")
    move_away(home)
    assert "1 copied" in store_command("import", "old.db")
    result = massmem("store", "restore", "old.db", "--config", "team.yaml", "--json", text=True)
    assert json.loads(result.stdout)["there"] == 1
