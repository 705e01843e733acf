"""A disk that is full, at each size: what a command says is true, what is queued is called so, and nothing crashes."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from massmem.memory.index_shared import SharedIndex
from tests.support.cli import massmem
from tests.support.forked import processes
from tests.support.recorded_sessions import TEAM, record_sessions
from tests.support.small_disk import mount_small_disk

SESSION = "session_20260101_100000"
OWL, NEW = "The owl of the mill is called Bertram.", "The owl of the mill is called Quillon."
MB = 2**20
SHORT = (1, 12, 40)
"""Megabytes that are free: too few for the index, too few to open a copy of it, too few to write."""
SIZES = [SHORT, pytest.param((0, 2, 4, 8, 16, 20, 24, 28, 32, 48, 63, 66, 80, 120), marks=pytest.mark.full)]
QUEUED = 7


@pytest.fixture
def disk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small disk as HOME, and a recorded session in `copy` beside it."""
    monkeypatch.chdir(tmp_path)
    folder = record_sessions(home, {SESSION: [(OWL, "It is."), ("And the cat?", "Tom.")]})
    Path("team.yaml").write_text(Path("team.yaml").read_text().replace("embedding", "session_name: null, embedding"))
    folder.rename(tmp_path / "copy")
    with mount_small_disk(tmp_path / "small", "200m", in_use=True) as place:
        monkeypatch.setenv("HOME", str(place))
        yield place


def fill(disk: Path, free: int) -> None:
    """Begin anew, with a copy that has holes, as many programs make it; leave so many megabytes."""
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    subprocess.run(["cp", "-r", "--sparse=always", "copy", str(disk / ".massmem")], check=True)
    with (disk / "filler").open("wb") as file:
        for _ in range(max(0, shutil.disk_usage(disk).free // MB - free)):
            file.write(bytes(MB))


def recall_texts() -> set[str]:
    """Ask; return what the agents are shown."""
    massmem("What is the owl of the mill called?", "--debug", *TEAM)
    files = Path(".massmem").rglob("recall_turn_*.json")
    return {memory["text"] for file in files for memory in json.loads(file.read_text())["shown"]}


def list_memories() -> dict[str, dict[str, Any]]:
    result = massmem("memory", "list", "--json", *TEAM)
    assert result.returncode == 0, result.stderr
    return {memory["text"]: memory for memory in json.loads(result.stdout)["memories"]}


def read_values(words: str) -> list[dict[str, Any]]:
    """Return the values of the one topic that the words name, as `memory history` has them."""
    (topic,) = json.loads(massmem("memory", "history", words, "--json", *TEAM).stdout)["topics"]
    return topic["values"]


@pytest.mark.parametrize("sizes", SIZES)
def test_change_of_a_memory_is_made_or_queued_or_refused(disk: Path, sizes: tuple[int, ...]):
    fill(disk, 100)
    memory_id = list_memories()[OWL]["id"]
    codes: dict[int, list[int]] = {}
    for free in sizes:
        for command in (("edit", memory_id, NEW), ("pin", memory_id), ("add", NEW), ("forget", memory_id, "--yes")):
            fill(disk, free)
            result = massmem("memory", *command, *TEAM, text=True)
            codes.setdefault(free, []).append(result.returncode)
            assert result.returncode in (0, 3, QUEUED), (free, command, result.stderr)
            assert ("queued" in result.stderr) == (result.returncode == QUEUED)
            assert result.returncode == 0 or "disk is full" in result.stderr or command[0] == "add", result.stderr
            if result.returncode == QUEUED and command[0] in ("edit", "pin"):
                memory = list_memories()[NEW if command[0] == "edit" else OWL]
                assert memory["note"].startswith("queued")
                assert memory["pinned"] == (command[0] == "pin")
                shown = json.loads(massmem("memory", "show", memory_id, "--json", *TEAM).stdout)
                assert shown["text"] == memory["text"]
                (value,) = read_values("owl of the mill")
                expected = ("Quillon", True) if command[0] == "edit" else ("Bertram", True)
                assert (value["value"], value["note"].startswith("queued")) == expected
                if command[0] == "edit" and free == SHORT[-1]:
                    assert recall_texts() == {NEW}, "agents are shown what the log has"
                again = massmem("memory", *command, *TEAM, text=True)
                assert again.returncode == QUEUED, "the same change is queued once"
            if result.returncode == QUEUED and command[0] == "forget":
                shown = massmem("memory", "list", *TEAM, text=True)
                assert OWL not in shown.stdout, (free, shown)
            (disk / "filler").unlink()
            memories, is_changed = list_memories(), result.returncode != 3
            if command[0] == "forget":
                assert (OWL in memories) == (not is_changed), free
            else:
                assert (NEW in memories) == (is_changed and command[0] != "pin"), (free, command)
            assert not any(memory["note"] for memory in memories.values())
            assert any(memory["pinned"] for memory in memories.values()) == (is_changed and command[0] == "pin")
    print(codes)
    assert codes[sizes[-1]][0] == (QUEUED if sizes == SHORT else 0)


@pytest.mark.parametrize("sizes", SIZES)
def test_no_command_dies_without_a_word(disk: Path, sizes: tuple[int, ...]):
    commands = [
        ("And the dog?",),
        ("memory", "list"),
        ("memory", "search", "owl"),
        ("memory", "record"),
        ("memory", "rebuild"),
        ("memory", "stats"),
        ("sessions", "rename", SESSION, "Owls"),
        ("sessions", "fork", SESSION),
        ("sessions", "delete", SESSION, "--yes"),
        ("doctor",),
    ]
    for free in sizes:
        for command in commands:
            fill(disk, free)
            result = massmem(*command, *TEAM, text=True)
            assert result.returncode in (0, 1, 2, 3), (free, command, result.stderr)
            assert result.returncode == 0 or "disk" in result.stderr + result.stdout, (free, command)


def hold(folder: Path, holds: Event, ends: Event) -> None:
    index = SharedIndex(folder, 0)
    holds.set()
    ends.wait()
    index.close()


def test_change_while_another_process_has_the_index(disk: Path):
    """One that serves it, and one that is stopped and does not answer."""
    fill(disk, 100)
    holds, ends = processes.Event(), processes.Event()
    holder = processes.Process(target=hold, args=(disk / ".massmem" / "memory" / "words", holds, ends), daemon=True)
    holder.start()
    assert holds.wait(60)
    memory_id = list_memories()[OWL]["id"]
    assert massmem("memory", "edit", memory_id, NEW, *TEAM).returncode == 0
    assert NEW in list_memories()
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        refused = massmem("memory", "edit", memory_id, OWL, *TEAM, text=True)
        queued = massmem("memory", "add", "A cat.", "--json", *TEAM, text=True)
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    assert (refused.returncode, "does not answer" in refused.stderr) == (3, True)
    assert (queued.returncode, json.loads(queued.stdout)["memory"]["note"][:7]) == (QUEUED, "queued:")
    assert {NEW, "A cat."} < {*list_memories()}
    ends.set()
    holder.join()
