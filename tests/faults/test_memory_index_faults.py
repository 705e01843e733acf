"""The embedded index under kills, crowds, full disks and damage; its lock, and the script that cleans up behind it."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.core.errors import MemoryUnavailable
from massmem.memory.index_edge import ROOM, EdgeIndex
from massmem.memory.persistent import Selection
from tests.support.index_writer import (
    AT_ONCE,
    DIMS,
    SLICE,
    found_in,
    make_crowded_point,
    store_and_tidy,
    store_points,
    use,
)
from tests.support.small_disk import mount_small_disk
from tests.support.store_writer import count_faults, finish, kill_writers, read_notes, start
from tests.support.verdict import check

SCRIPT = Path(__file__).parents[2] / "scripts" / "cleanup_qdrant_lock.sh"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "index"


def list_expected(notes: list[str]) -> tuple[set[str], set[str]]:
    """What must be there, and what may be."""
    removed = {note[1:] for note in notes if note.startswith("-")}
    return {note for note in notes if not note.startswith("-")} - removed, removed


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.full)])
def test_kill_minus_9(folder: Path, tmp_path: Path, kills: int) -> None:
    notes = tmp_path / "notes"
    at_work = kill_writers(lambda n, book: start(store_points, folder, book, n * 100_000, 100_000, 30.0), notes, kills)
    acknowledged, removed = list_expected(read_notes(notes))
    found = [number for number in map(str, found_in(folder)) if number not in removed]
    counts = count_faults(acknowledged, found, in_flight=at_work * AT_ONCE)
    check(f"the index, {at_work} kills, {len(acknowledged)} acknowledged", counts)
    assert at_work == kills
    assert acknowledged


@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.full)])
def test_kill_minus_9_while_points_are_tidied(folder: Path, tmp_path: Path, kills: int) -> None:
    """Nothing is lost, nothing is there twice, also after a change, and nothing half-made is left."""
    notes = tmp_path / "notes"
    writer = lambda n, book: start(store_and_tidy, folder, book, n * 100_000, 100_000, 30.0)  # noqa: E731
    at_work = kill_writers(writer, notes, kills, longest=1.0)
    acknowledged, stored = read_notes(notes), found_in(folder)
    counts = count_faults(acknowledged, map(str, stored), in_flight=at_work * SLICE)
    check(f"the index, {at_work} kills while it is tidied, {len(acknowledged)} acknowledged", counts)
    assert at_work == kills
    index = EdgeIndex(folder, DIMS)
    assert not [*folder.glob("shard/temp_segments/*")]
    index.set_payload(stored, {"agent_id": "zoe"})
    assert index.count(Selection(agent_id="zoe")) == index.count(Selection()) == len(stored)
    index.close()


PAGE = 4096


def after_power_loss(folder: Path, flushed: Path, rng: random.Random, place: Path) -> Path:
    """A folder as a disk may hold it: the log of writes as it was synced, and of the rest any pages since `flushed`."""
    shutil.copytree(flushed, place, ignore=shutil.ignore_patterns("lock*", "wal"))
    shutil.copytree(folder / "shard" / "wal", place / "shard" / "wal")
    for path in (folder / "shard" / "segments").rglob("*"):
        old = place / path.relative_to(folder)
        if not path.is_file() or rng.random() < 0.3:
            continue
        if not old.exists() or old.stat().st_size != path.stat().st_size:
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, old)
            continue
        with path.open("rb") as new, old.open("r+b") as file:
            for start in range(0, min(path.stat().st_size, 256 * PAGE), PAGE):
                if rng.random() < 0.5:
                    new.seek(start)
                    file.seek(start)
                    file.write(new.read(PAGE))
    return place


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.full)])
def test_power_lost_after_a_sync(tmp_path: Path, times: int) -> None:
    rng = random.Random(3)
    acknowledged = 0
    for number in range(times):
        place = tmp_path / str(number)
        index = EdgeIndex(place / "index", DIMS)
        index.upsert([make_crowded_point(n) for n in range(rng.randint(1, 200))])
        index.flush()
        shutil.copytree(place / "index", place / "flushed")
        for _ in range(rng.randint(1, 30)):
            there = index.count(Selection())
            index.upsert([make_crowded_point(there + n) for n in range(rng.randint(1, 20))])
            if (place / "index" / "shard.json").read_bytes() != (place / "flushed" / "shard.json").read_bytes():
                shutil.rmtree(place / "flushed")  # it has flushed by itself, with an index of a field
                shutil.copytree(place / "index", place / "flushed")
        index.sync()
        there = index.count(Selection())
        left = after_power_loss(place / "index", place / "flushed", rng, place / "left")
        index.close()
        assert sorted(found_in(left)) == list(range(there))
        acknowledged += there
        shutil.rmtree(place)
    print(f"losses of power {times} acknowledged {acknowledged} lost 0")


_SYNC = """
import os, sys
from pathlib import Path
from massmem.memory.index_edge import EdgeIndex
from tests.support.index_writer import DIMS, make_crowded_point
index = EdgeIndex(Path(sys.argv[1]), DIMS)
index.upsert([make_crowded_point(1)])
os.write(1, b"before\\n")
index.sync()
os.write(1, b"after\\n")
os._exit(0)
"""


def test_a_sync_reaches_the_disk(folder: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    trace = tmp_path / "trace"
    calls = ["strace", "-f", "--seccomp-bpf", "-y", "-e", "trace=fsync,write", "-o", str(trace)]
    subprocess.run([*calls, sys.executable, "-c", _SYNC, str(folder)], check=True, timeout=60, stdout=subprocess.PIPE)
    text = trace.read_text()
    between = text[text.index("before") : text.index("after")]
    synced = {Path(line.split("<")[1].split(">")[0]) for line in between.splitlines() if " fsync(" in line}
    assert synced >= {path for path in (folder / "shard" / "wal").iterdir() if path.name.startswith("open")}
    assert folder in synced


def test_processes_take_turns(folder: Path, tmp_path: Path) -> None:
    writers = [start(store_points, folder, tmp_path / f"{n}.notes", n * 1000, 15, 60.0) for n in range(4)]
    assert finish(writers) == [0] * 4
    acknowledged, removed = list_expected(read_notes(tmp_path))
    check("four processes on the index", count_faults(acknowledged, map(str, found_in(folder))))
    assert len(acknowledged | removed) == 4 * 15


def test_whoever_comes_second_does_not_disturb_the_first(folder: Path) -> None:
    index = EdgeIndex(folder, DIMS)
    intruders = [start(use, folder) for _ in range(3)]
    stored = 0
    while any(intruder.is_alive() for intruder in intruders):
        index.upsert([make_crowded_point(stored)])
        index.flush()
        stored += 1
    assert finish(intruders) == [3] * 3
    index.upsert([make_crowded_point(stored)])
    index.close()
    assert len(found_in(folder)) == stored + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "small", str(3 * ROOM), in_use=True) as place:
        yield place


def test_a_full_disk(small_disk: Path) -> None:
    index = EdgeIndex(small_disk / "index", DIMS)
    index.upsert([make_crowded_point(n) for n in range(100)])
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        while shutil.disk_usage(small_disk).free > ROOM - 2**20:
            file.write(bytes(2**20))
            file.flush()
    stored = 100
    with pytest.raises(MemoryUnavailable, match="disk is full"):
        for number in range(1000, 100_000):
            index.upsert([make_crowded_point(number, os.urandom(20_000).hex())])
            stored += 1
    with pytest.raises(MemoryUnavailable, match="disk is full"):
        index.set_payload([1], {"won": True})
    with pytest.raises(MemoryUnavailable, match="disk is full"):
        index.delete(Selection(session_id="s1"))
    assert index.count(Selection()) == stored
    filler.unlink()
    index.upsert([make_crowded_point(5000)])
    index.close()
    assert len(found_in(small_disk / "index")) == stored + 1


def test_a_disk_too_full_to_begin(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(2 * ROOM + 2**20))
    with pytest.raises(MemoryUnavailable, match="disk is full"):
        EdgeIndex(small_disk / "index", DIMS)


def damage(path: Path, how: str) -> None:
    size = path.stat().st_size
    match how:
        case "empty":
            path.write_bytes(b"")
        case "half":
            os.truncate(path, size // 2)
        case "gone":
            path.unlink()
        case _:
            with path.open("r+b") as file:
                file.write(random.Random(1).randbytes(min(size, 64)))


@pytest.mark.parametrize("cases", [6, pytest.param(10_000, marks=pytest.mark.full)])
def test_damage(folder: Path, tmp_path: Path, cases: int) -> None:
    """Damage one file in one way at a time: the index works, or says that it cannot; no process dies of it."""
    index = EdgeIndex(folder, DIMS)
    index.upsert([make_crowded_point(n) for n in range(1200)])
    index.close()
    names = sorted(path.relative_to(folder) for path in (folder / "shard").rglob("*") if path.is_file())
    every = [(name, how) for name in [*names, Path("shard.json")] for how in ("empty", "half", "gone", "junk")]
    codes: Counter[int | None] = Counter()
    for name, how in random.Random(2).sample(every, min(cases, len(every))):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", "--sparse=always", str(folder), str(copy)], check=True)
        damage(copy / name, how)
        code = finish([start(use, copy)])[0]
        assert code in (0, 3), f"{name} {how}: {code}"
        codes[code] += 1
    print(f"damaged {codes.total()} works {codes[0]} refused {codes[3]}")
    assert codes[3]


def clean_up(place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), str(place)], capture_output=True, text=True, check=False)


def test_the_clean_up_refuses_while_the_index_is_open(folder: Path) -> None:
    index = EdgeIndex(folder, DIMS)
    done = clean_up(folder.parent)
    assert done.returncode == 1
    assert f"in use by process {os.getpid()}" in done.stdout
    assert (folder / "lock").exists()
    with pytest.raises(MemoryUnavailable, match=f"pid {os.getpid()}"):
        EdgeIndex(folder, DIMS, wait=0)
    index.close()


def test_the_clean_up_removes_what_a_kill_has_left(folder: Path, tmp_path: Path) -> None:
    writer = start(store_points, folder, tmp_path / "w.notes", 0, 100_000, 30.0)
    while not read_notes(tmp_path):
        time.sleep(0.005)
    assert writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(10)
    assert (folder / "lock.pid").read_text() == str(writer.pid)
    done = clean_up(folder.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 removed, 0 in use" in done.stdout
    assert not (folder / "lock").exists()
    assert not (folder / "lock.pid").exists()
    acknowledged, removed = list_expected(read_notes(tmp_path))
    assert {int(number) for number in acknowledged} <= set(found_in(folder)) | {int(n) for n in removed}


def test_the_clean_up_has_nothing_to_do(tmp_path: Path) -> None:
    done = clean_up(tmp_path / "nowhere")
    assert done.returncode == 0
    assert "nothing to do" in done.stderr


def test_a_stale_lock_stops_nobody(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "lock").write_text("")
    (folder / "lock.pid").write_text("1")
    EdgeIndex(folder, DIMS, wait=0).close()
