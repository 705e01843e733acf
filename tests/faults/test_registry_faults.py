"""sessions.json under kills, crowds and full disks."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.core.errors import HomeError, StoreError
from massmem.session.registry import Registry, RegistryEntry
from tests.support.small_disk import mount_small_disk
from tests.support.store_writer import count_faults, finish, kill_writers, read_notes, register, start
from tests.support.verdict import check

WHEN = "2025-10-28T14:30:00+00:00"


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "small", "64k") as place:
        yield place


def list_expected(notes: list[str]) -> list[str]:
    removed = {note[1:] for note in notes if note.startswith("-")}
    return [note for note in notes if not note.startswith("-") and note not in removed]


def test_eight_processes_add_and_remove(folder: Path, tmp_path: Path) -> None:
    writers = [start(register, folder, tmp_path / f"{n}.notes", f"w{n}", 25, n % 2 == 0) for n in range(8)]
    assert finish(writers) == [0] * 8
    notes = read_notes(tmp_path)
    found = [entry.session_id for entry in Registry(folder).read_entries()]
    check(f"{len(notes)} operations, {len(found)} kept", count_faults(list_expected(notes), found))
    assert len(notes) == 8 * 25 + 4 * 12


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.full)])
def test_kill_minus_9(folder: Path, tmp_path: Path, kills: int) -> None:
    notes = tmp_path / "notes"
    at_work = kill_writers(lambda n, book: start(register, folder, book, f"w{n}", 100_000, False), notes, kills)
    acknowledged = read_notes(notes)
    found = [entry.session_id for entry in Registry(folder).read_entries()]
    check(f"{at_work} kills, {len(acknowledged)} acknowledged", count_faults(acknowledged, found, in_flight=at_work))
    assert at_work == kills
    assert acknowledged
    Registry(folder).upsert(RegistryEntry("after", WHEN))
    assert {p.name for p in folder.iterdir()} <= {"sessions.json", "sessions.json.lock"}


def test_a_full_disk(small_disk: Path) -> None:
    registry = Registry(small_disk)
    acknowledged: list[str] = []
    raised = 0
    for number in range(200):
        try:
            registry.upsert(RegistryEntry(f"s{number}", WHEN, description="x" * 200))
            acknowledged.append(f"s{number}")
        except StoreError as e:
            raised += 1
            assert "disk is full" in e.message
    kept = [entry.session_id for entry in registry.read_entries()]
    check(f"a full disk, {len(acknowledged)} acknowledged, {raised} refused", count_faults(acknowledged, kept))
    assert acknowledged
    assert raised


def test_a_read_only_home_can_still_be_listed(small_disk: Path) -> None:
    registry = Registry(small_disk)
    registry.upsert(RegistryEntry("s", WHEN))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert [entry.session_id for entry in registry.read_entries()] == ["s"]
    with pytest.raises(HomeError, match="cannot be written"):
        registry.upsert(RegistryEntry("t", WHEN))


_UPSERT = """
import sys
from pathlib import Path
from massmem.session.registry import RegistryEntry, Registry
Registry(Path(sys.argv[1])).upsert(RegistryEntry("s", "2025-10-28T14:30:00+00:00"))
"""


def test_an_entry_reaches_the_disk_with_its_folder(folder: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    trace = tmp_path / "trace"
    calls = ["strace", "-f", "-y", "-e", "trace=fsync,rename,renameat,renameat2", "-o", str(trace)]
    subprocess.run([*calls, sys.executable, "-c", _UPSERT, str(folder)], check=True, timeout=60)
    lines = [line for line in trace.read_text().splitlines() if str(folder) in line]
    steps = [line.partition("(")[0].split()[-1].rstrip("at2") for line in lines]
    assert steps == ["fsync", "rename", "fsync"], lines
    assert f"<{folder}/sessions.json.new>" in lines[0]
    assert f"<{folder}>" in lines[2]
