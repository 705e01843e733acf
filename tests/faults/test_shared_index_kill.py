"""SIGKILL of the process that has the index while others search and write: nothing is lost, and nobody hangs."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from massmem.core.errors import MemoryUnavailable
from massmem.memory import index_shared
from massmem.memory.index_shared import SharedIndex
from massmem.memory.persistent import Selection
from tests.support.index_writer import DIMS, found_in, make_crowded_point
from tests.support.points import EVERYWHERE
from tests.support.store_writer import Notes, Process, count_faults, finish, read_notes, start
from tests.support.verdict import check

USERS = 4
LONGEST = 20.0
"""Seconds in which a call ends, also when the processes that serve it are killed one after the other."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ("deep" * 40) / "index"  # longer than the address of a socket


def use(folder: Path, notes: Path, first: int, until: Path) -> None:
    """Store points, find each at once, delete some for good, until the file exists; note each when it is stored."""
    book = Notes(notes)
    with closing(SharedIndex(folder, DIMS, 10)) as index:
        number = first
        while not until.exists():
            number, began = number + 1, time.monotonic()
            index.upsert([make_crowded_point(number)])
            book.add(str(number))
            assert index.read_payloads([number])
            assert index.search_words({1000: 1.0}, EVERYWHERE, 3)
            if number % 40 == 0:
                book.add(f"-{number}")
                index.delete(Selection(ids=(str(number),)))
                assert not index.read_payloads([number])
            assert time.monotonic() - began < LONGEST


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.full)])
def test_holder_is_killed(folder: Path, tmp_path: Path, kills: int) -> None:
    notes, enough = tmp_path / "notes", tmp_path / "enough"
    notes.mkdir()
    writers: list[Process] = []
    killed = 0
    while killed < kills:
        writers = [writer for writer in writers if writer.is_alive() or writer.exitcode != -signal.SIGKILL]
        while len(writers) < USERS:
            number = killed * USERS + len(writers) + 1
            writers.append(start(use, folder, notes / f"{number}.notes", number * 1_000_000, enough))
        time.sleep(0.15)
        holder = folder / "lock.pid"
        pids = {writer.pid for writer in writers if writer.is_alive()}
        assert {writer.exitcode for writer in writers} <= {None, -signal.SIGKILL}
        if holder.exists() and (pid := int(holder.read_text() or 0)) in pids and (folder / "socket").exists():
            os.kill(pid, signal.SIGKILL)
            killed += 1
    enough.touch()
    assert set(finish(writers, 120)) <= {0, -signal.SIGKILL}
    written = read_notes(notes)
    removed = {note[1:] for note in written if note.startswith("-")}
    acknowledged = {note for note in written if not note.startswith("-")} - removed
    numbers = [number for number in map(str, found_in(folder)) if number not in removed]
    check(f"{kills} kills of the holder, {len(acknowledged)} acknowledged", count_faults(acknowledged, numbers, kills))


HOLDER = f"""
import sys
from pathlib import Path
from massmem.memory.index_shared import SharedIndex
index = SharedIndex(Path(sys.argv[1]), {DIMS})
print("open", flush=True)
sys.stdin.read()
"""


def test_holder_that_hangs_is_named_in_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_shared, "_PATIENCE", 1)
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"open\n"
        with closing(SharedIndex(folder, DIMS)) as index, ExitStack() as stack:
            stack.callback(holder.kill)  # one that is stopped does not end by itself
            index.upsert([make_crowded_point(1)])
            holder.send_signal(signal.SIGSTOP)
            os.waitpid(holder.pid, os.WUNTRACED)  # until it stands still: a thread may be answering yet
            for _ in range(2):
                with pytest.raises(MemoryUnavailable, match=rf"\(pid {holder.pid}\), which does not answer"):
                    index.count(Selection())
            with pytest.raises(MemoryUnavailable, match="does not answer"):
                SharedIndex(folder, DIMS)
            holder.send_signal(signal.SIGCONT)
            assert index.count(Selection()) == 1
            holder.kill()
            assert index.count(Selection()) == 1


def test_only_the_owner_gets_to_the_socket(folder: Path) -> None:
    with closing(SharedIndex(folder, DIMS)):
        assert folder.stat().st_mode & 0o077 == 0
        assert (folder / "socket").stat().st_mode & 0o077 == 0
    assert not (folder / "socket").exists()


@pytest.mark.parametrize("message", [b"", b"nonsense", b"[1, 2]", b'["close", [], {}]', b'["_shard", [], {}]'])
def test_odd_messages_change_nothing(folder: Path, message: bytes) -> None:
    with closing(SharedIndex(folder, DIMS)) as index, closing(SharedIndex(folder, DIMS)) as other:
        connection = other._connect()  # pyright: ignore[reportPrivateUsage]
        connection.send_bytes(message)
        with pytest.raises(EOFError) if b"_" not in message and b"close" not in message else closing(connection):
            assert b"MemoryUnavailable" in connection.recv_bytes()
        other.upsert([make_crowded_point(1)])
        assert index.count(Selection()) == 1
