"""Who lives and who is gone among the processes of one home."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

from massmem.session.process import Process

OWNER = "import sys, time; from pathlib import Path; from massmem.session.process import Process; process = Process(Path(sys.argv[1])); print(process.enter(), flush=True); time.sleep(60)"  # noqa: E501 - a program


def files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "locks").iterdir())


def test_nothing_is_written_before_the_first_owner(tmp_path: Path):
    process = Process(tmp_path)
    assert not (tmp_path / "locks").exists()
    first, second = process.enter(), process.enter()
    assert first != second
    assert len(files(tmp_path)) == 2
    for path in (tmp_path / "locks").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    process.close()
    process.close()
    assert files(tmp_path) == ["home"]


def test_owners_are_told_apart(tmp_path: Path):
    one, two, other = Process(tmp_path), Process(tmp_path), Process(tmp_path / "other")
    mine, theirs, far = one.enter(), two.enter(), other.enter()
    assert one.is_neighbour(theirs)
    assert not one.is_neighbour(far)
    assert not one.is_neighbour("")
    assert [one.is_gone(owner) for owner in (mine, theirs)] == [False, False]
    one.leave(mine)
    assert one.is_gone(mine)
    two.close()
    assert one.is_gone(theirs)
    for process in (one, other):
        process.close()


def test_a_process_lives_until_it_is_killed(tmp_path: Path):
    child = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    process = Process(tmp_path)
    process.enter()
    try:
        assert child.stdout is not None
        owner = child.stdout.readline().strip()
        assert process.is_neighbour(owner)
        assert not process.is_gone(owner)
    finally:
        child.kill()
        child.communicate()
    assert process.is_gone(owner)
    assert process.is_gone(owner), "also when its file has been removed"
    assert len(files(tmp_path)) == 2
    process.close()


def test_a_name_from_the_store_is_no_path(tmp_path: Path):
    process = Process(tmp_path)
    home = process.enter().partition(":")[0]
    assert not process.is_gone(f"{home}:../../other:1")
    assert files(tmp_path.parent) if (tmp_path.parent / "locks").exists() else True
    process.close()


def test_a_lock_that_was_removed_by_hand_is_made_again(tmp_path: Path):
    one, two = Process(tmp_path), Process(tmp_path)
    one.enter()
    for path in (tmp_path / "locks").glob("process_*"):
        path.unlink()
    owner = one.enter()
    assert not two.is_gone(owner)
    one.close()
    two.close()


def test_what_the_killed_have_left_is_removed_after_a_day(tmp_path: Path):
    process, alive = Process(tmp_path), Process(tmp_path)
    alive.enter()
    (folder,) = [tmp_path / "locks"]
    old, young = folder / "process_old.lock", folder / "process_young.lock"
    old.touch()
    young.touch()
    for path in folder.glob("process_*"):
        if path != young:
            os.utime(path, (time.time() - 200_000,) * 2)
    process.enter()
    assert not old.exists()
    assert young.exists()
    assert len(files(tmp_path)) == 4
    process.close()
    alive.close()


def test_without_a_home_there_are_no_files():
    process = Process(None)
    owner = process.enter()
    assert not process.is_gone(owner)
    process.leave(owner)
    assert process.is_gone(owner)
    process.close()
