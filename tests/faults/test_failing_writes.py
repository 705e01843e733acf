"""Every write of a turn fails once: the file may grow no further, or the disk is full. One clear message, nothing that
was told is lost, and the next run goes on where this one stopped.
"""

import json
import resource
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.events import Event, TurnCompleted, TurnStarted, decode_event, read_event
from tests.support.cli import COMMAND, massmem, script, write_team
from tests.support.small_disk import mount_small_disk
from tests.support.verdict import check

STEP, MOST, PLENTY = 8_192, 400_000, 6_000_000
"""Bytes: the write-ahead log alone may take more than MOST when a slow machine stores a turn in many pieces."""

Room = Callable[[int], "subprocess.CompletedProcess[bytes]"]
"""Runs a turn with so many bytes of room for what it writes."""

QUESTION = "Why is the sky blue?"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A HOME on a disk of its own, of 8 MB."""
    with mount_small_disk(tmp_path / "disk", "8m") as folder:
        monkeypatch.setenv("HOME", str(folder))
        yield folder


def team(folder: Path) -> str:
    agent = script("It is " + "blue " * 300)
    return write_team(folder, agent, agent, agent, memory={"persistent_memory": {"embedding": {"model": "none"}}})


def read_log(home: Path) -> list[tuple[str, Event]]:
    """Session and event, in order."""
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        rows = db.execute("SELECT session_id, payload FROM events ORDER BY session_id, seq").fetchall()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return [(session, decode_event(payload)) for session, payload in rows]


def count_faults_after(home: Path, config: str, ran: "subprocess.CompletedProcess[bytes]") -> Counter[str]:
    """What there is after a run that may have failed, and after the next one."""
    lines = [json.loads(line) for line in ran.stdout.splitlines(keepends=True) if line.endswith(b"\n")]
    printed = [read_event(line) for line in lines if line["type"] != "error"]
    before = read_log(home)
    counts = Counter(runs=1, failed=int(ran.returncode != 0), lie=sum(not _in(event, before) for event in printed))
    # A turn that was stored whole has succeeded, although something beside the store could not be written.
    over = any(isinstance(event, TurnCompleted) for event in printed)
    counts["lie"] += int((ran.returncode == 0) != over)
    counts["unclear"] = int(ran.returncode != 0 and not _clear(ran.stderr.decode(), ran.returncode))
    begun = {session for session, event in before if isinstance(event, TurnStarted) and event.question == QUESTION}
    line = ["--session-id", *begun, *([QUESTION] if over else [])] if begun else [QUESTION]
    again = massmem("--config", config, *line, timeout=60)
    after = read_log(home)
    counts["unanswered"] = int(again.returncode != 0 or not again.stdout.startswith(b"It is blue"))
    counts["lost"] = sum(not _in(event, after) for _, event in before)
    ends = Counter((session, event.turn) for session, event in after if isinstance(event, TurnStarted))
    counts["ghost"] = sum(n - 1 for n in ends.values())
    counts["leak"] = (
        len({session for session, _ in after}) - len(begun | {session for session, _ in before}) - (not begun)
    )
    return counts


def _in(event: Event, log: list[tuple[str, Event]]) -> bool:
    return any(event == stored for _, stored in log) or event.type in ("agent_delta", "notice")


def _clear(stderr: str, code: int) -> bool:
    """One message that names the disk, with what to do, and no other noise."""
    lines = [line for line in stderr.splitlines() if line.startswith("massmem: ")]
    # A memory that cannot be opened is reported once, beside the error: it is no reason to stop.
    notices = [line for line in lines if "is remembered later" in line]
    messages = [line for line in lines if line not in notices]
    one = len(messages) == 1 and any(word in messages[0] for word in ("disk", "written", "grow")) and len(notices) <= 1
    return one and code in (2, 3) and "Traceback" not in stderr and "Logging error" not in stderr


def loop(home: Path, folder: Path, limits: list[int], room: Room, what: str) -> None:
    config, copy = team(folder), folder / "copy"
    assert massmem("--config", config, "Hello?", timeout=60).returncode == 0
    shutil.copytree(home / ".massmem", copy)
    total: Counter[str] = Counter()
    places: set[int] = set()
    for limit in limits:
        shutil.rmtree(home / ".massmem")
        shutil.copytree(copy, home / ".massmem")
        size = len(read_log(home))
        ran = room(limit)
        places.add(len(read_log(home)) - size)
        total.update(count_faults_after(home, config, ran))
    check(f"{what}, {len(limits)} runs, stopped at {len(places)} places", total, "unclear", "unanswered")
    assert 0 < total["failed"] < total["runs"]


FEW, MANY = [0, 98_304, PLENTY], [*range(0, MOST + 1, STEP), PLENTY]
LIMITS = [pytest.param(FEW, id="some"), pytest.param(MANY, id="all", marks=pytest.mark.full)]


@pytest.mark.parametrize("limits", LIMITS)
def test_files_that_may_not_grow(home: Path, tmp_path: Path, limits: list[int]) -> None:
    config = team(tmp_path)

    def run(most: int) -> "subprocess.CompletedProcess[bytes]":
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        line = [*COMMAND, "--config", config, "--output", "jsonl", QUESTION]
        return subprocess.run(
            line, capture_output=True, stdin=subprocess.DEVNULL, preexec_fn=limit, timeout=60, check=False
        )

    loop(home, tmp_path, limits, run, "files that may not grow")


@pytest.mark.parametrize("limits", LIMITS)
def test_a_disk_that_fills_up(disk: Path, tmp_path: Path, limits: list[int]) -> None:
    config = team(tmp_path)

    def run(free: int) -> "subprocess.CompletedProcess[bytes]":
        filler = disk / "filler"
        filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - free)))
        try:
            return massmem("--config", config, "--output", "jsonl", QUESTION, timeout=60)
        finally:
            filler.unlink()

    loop(disk, tmp_path, limits, run, "a disk that fills up")
