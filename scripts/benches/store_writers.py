"""Processes that commit turns to one database, through the store and, with the same rows, through bare sqlite3.

As a program, `python -m scripts.benches.store_writers FOLDER SESSION`, it is one of them: it reads lines `store
SECONDS` and `bare SECONDS`, works for that long and prints how often it committed and how often the file was locked.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from massmem.core.errors import SessionExistsError, StoreError
from massmem.core.events import Event, now
from massmem.core.records import SessionRecord
from massmem.store import open_store
from massmem.store.ports import SessionStore
from scripts.benches.process import PYTHON, BenchError, environment
from scripts.benches.rows import ROOT
from scripts.benches.session import TEAM, turn_events

STORE, BARE = "store", "bare"
BUSY_SECONDS = 30
_LIMIT = 60

_TABLES = ("events", "chat_messages", "turns", "answers", "ballots", "recordings")
"""What a turn adds rows to; its session's own row is changed besides, in both."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Commits of all processes together in a second, and how often one was told that the file is locked."""

    per_second: float
    locked: int


@contextmanager
def writers(folder: Path, count: int) -> Generator["Writers"]:
    """Start `count` processes on one empty folder; they wait to be told what to do."""
    command = [PYTHON, "-m", "scripts.benches.store_writers", str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([*command, f"session_{i}"], cwd=ROOT, env=environment(folder), **pipes) for i in range(count)
    ]
    try:
        yield Writers(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class Writers:
    def __init__(self, processes: Sequence["subprocess.Popen[str]"]) -> None:
        self._processes = processes
        for process in processes:
            self._line(process)  # ready

    def work(self, how: str, seconds: float) -> Rate:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{how} {seconds}\n")
            process.stdin.flush()
        done = [json.loads(self._line(process)) for process in self._processes]
        return Rate(sum(each["commits"] / each["seconds"] for each in done), sum(each["locked"] for each in done))

    def _line(self, process: "subprocess.Popen[str]") -> str:
        out: IO[str] | None = process.stdout
        assert out is not None
        line = out.readline()
        if not line:
            raise BenchError("a process that writes to the store stopped")
        return line


async def _work(folder: Path, name: str) -> None:
    store = await open_store(f"sqlite:///{folder / 'store.db'}", folder)
    moment = now()
    try:
        await store.create_session(SessionRecord(session_id=name, created_at=moment, updated_at=moment))
    except SessionExistsError as e:
        raise BenchError(f"{folder} is in use") from e
    events = turn_events(1, TEAM)
    await store.append(name, 1, events)
    rows = _rows_of(folder / "store.db", name)
    with closing(_bare(folder / "bare.db", name, rows)) as bare:
        print("ready", flush=True)
        turn = 1
        for line in sys.stdin:
            how, _, seconds = line.partition(" ")
            start, commits, locked = time.monotonic(), 0, 0
            while time.monotonic() < start + float(seconds):
                turn += 1
                done = _commit(bare, name, rows) if how == BARE else await _append(store, name, turn, events)
                commits, locked = commits + done, locked + (not done)
            told = {"commits": commits, "locked": locked, "seconds": time.monotonic() - start}
            print(json.dumps(told), flush=True)
    await store.close()


async def _append(store: SessionStore, name: str, turn: int, events: Sequence[Event]) -> bool:
    """False: the file was locked for too long. Each turn has its own time, by which its recordings are ordered."""
    moment = now()
    try:
        await store.append(name, turn, [event.model_copy(update={"at": moment}) for event in events])
    except StoreError as e:
        if "locked" not in e.message:
            raise
        return False
    return True


def _rows_of(database: Path, name: str) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that the turn of this session became."""
    with closing(sqlite3.connect(database, timeout=BUSY_SECONDS)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} WHERE session_id = ?", [name]).fetchall()
            for table in _TABLES
        }


def _bare(database: Path, name: str, rows: dict[str, list[tuple[Any, ...]]]) -> sqlite3.Connection:
    """Tables without keys, indexes and triggers, but for the session's own row."""
    connection = sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS chat_sessions (session_id TEXT PRIMARY KEY, updated_at TEXT)")
    connection.execute("INSERT INTO chat_sessions VALUES (?, '')", [name])
    for table, of_table in rows.items():
        columns = ", ".join(f"c{i}" for i in range(len(of_table[0])))
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
    connection.execute("COMMIT")
    return connection


def _commit(connection: sqlite3.Connection, name: str, rows: dict[str, list[tuple[Any, ...]]]) -> bool:
    """False: the file was locked for too long."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as e:
        if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    for table, of_table in rows.items():
        marks = ", ".join("?" * len(of_table[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", of_table)
    moment = now().isoformat()
    connection.execute("UPDATE chat_sessions SET updated_at = ? WHERE session_id = ?", [moment, name])
    connection.execute("COMMIT")
    return True


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), sys.argv[2]))
