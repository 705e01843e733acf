"""What can still be read of a damaged SQLite store: the messages of its sessions, as files of JSON lines.

The original is copied first and never opened. Rows are read one stretch after the other, and a stretch that cannot be
read is halved until only what is damaged is left out. A message is read from the log, else from its table.
"""

import json
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from massmem.config.home import explain_write_error, make_file, make_folder
from massmem.core.errors import InputError
from massmem.core.events import EVENT
from massmem.core.ids import SESSION_ID
from massmem.store.projection import InsertRow, project
from massmem.store.sqlite import to_store_error

COLUMNS = ("session_id", "seq", "turn", "round", "kind", "role", "agent_id", "content", "created_at")
_STRETCH = 1_000

_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """incomplete: sessions of which messages are missing, or of which nobody can tell; lost: how many, as far as known.

    A session that cannot even be named is in none of these.
    """

    sessions: int
    messages: int
    lost: int
    incomplete: tuple[str, ...]


def recover(path: Path, folder: Path) -> RecoveryResult:
    """Write what can be read of the database at `path` to `folder`/SESSION.jsonl, one message a line, oldest first.

    The files are readable by their owner alone. Blocks on files.

    Raises:
        InputError: there is no such file, or the folder has something in it.
        StoreDamagedError: not even the list of its tables can be read.
        HomeError, StoreError: the folder cannot be written.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file", "name the database file that is damaged")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already", "name a new folder")
    make_folder(folder)
    try:
        with TemporaryDirectory(dir=folder, prefix=".copy-") as copies:
            copy = _copied(path, Path(copies))
            with closing(sqlite3.connect(copy)) as damaged, closing(_collected(copy.with_name("found.db"))) as found:
                damaged.text_factory = _text
                try:
                    damaged.execute("SELECT name FROM sqlite_master").fetchall()
                except sqlite3.DatabaseError as e:
                    raise to_store_error(e, path) from e
                expected = _collect(damaged, found)
                return _write(found, expected, folder)
    except OSError as e:
        raise explain_write_error(folder, e) from e


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _copied(path: Path, to: Path) -> Path:
    """With the write-ahead log, in which the newest commits are."""
    for name in (path.name, f"{path.name}-wal"):
        if path.with_name(name).exists():
            shutil.copyfile(path.with_name(name), to / name)
    return to / path.name


def _collected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute(f"CREATE TABLE messages ({', '.join(COLUMNS)}, PRIMARY KEY (session_id, seq)) WITHOUT ROWID")
    return connection


def _collect(damaged: sqlite3.Connection, found: sqlite3.Connection) -> dict[str, int]:
    """Returns how many messages each session should have, of those sessions whose own row can be read."""
    insert = f"INSERT OR IGNORE INTO messages VALUES ({', '.join('?' * len(COLUMNS))})"
    found.execute("BEGIN")
    for row in _readable(damaged, "events", "session_id, seq, turn, payload"):
        found.executemany(insert, _said(*row))
    for row in _readable(damaged, "chat_messages", ", ".join(COLUMNS)):
        found.execute(insert, row)
    expected: dict[str, int] = {}
    for name, status, messages in _readable(damaged, "chat_sessions", "session_id, status, message_count"):
        if status == "deleting":  # what a user has deleted does not come back
            found.execute("DELETE FROM messages WHERE session_id = ?", [name])
        else:
            expected[name] = messages
    found.execute("COMMIT")
    return expected


def _said(session_id: str, seq: int, turn: int, payload: str) -> list[_Row]:
    """The messages of an event, none when it is no event any more."""
    try:
        operations = project(session_id, turn, seq, EVENT.validate_json(payload))
    except ValidationError:
        return []
    rows = [op.row for op in operations if isinstance(op, InsertRow) and op.table == "chat_messages"]
    return [tuple(str(row[c]) if c == "created_at" else row[c] for c in COLUMNS) for row in rows]


def _readable(connection: sqlite3.Connection, table: str, columns: str) -> Generator[_Row]:
    for first in range(1, _last(connection, table) + 1, _STRETCH):
        stretches = [(first, first + _STRETCH - 1)]
        while stretches:
            low, high = stretches.pop()
            try:
                yield from connection.execute(
                    f"SELECT {columns} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ?", [low, high]
                ).fetchall()
            except sqlite3.DatabaseError:
                middle = (low + high) // 2
                if low < high:
                    stretches += [(middle + 1, high), (low, middle)]


def _last(connection: sqlite3.Connection, table: str) -> int:
    """The highest number of a row, from the table or from an index of it; 0 when neither can be read."""
    indexes = [""] + [f"INDEXED BY {row[1]}" for row in connection.execute(f"PRAGMA index_list({table})") if not row[4]]
    for index in indexes:
        try:
            return connection.execute(f"SELECT max(rowid) FROM {table} {index}").fetchone()[0] or 0
        except sqlite3.DatabaseError:
            continue
    return 0


def _write(found: sqlite3.Connection, expected: dict[str, int], folder: Path) -> RecoveryResult:
    counts: dict[str, int] = dict(found.execute("SELECT session_id, count(*) FROM messages GROUP BY session_id"))
    # A name that is no id was damaged itself, and would not do as the name of a file.
    names = sorted(name for name in {*counts, *expected} if SESSION_ID.fullmatch(str(name)))
    for name in names:
        path = folder / f"{name}.jsonl"
        make_file(path)
        with path.open("w", encoding="utf-8") as file:
            for row in found.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY seq", [name]):
                file.write(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False, default=str) + "\n")
    missing = {name: max(0, expected[name] - counts.get(name, 0)) for name in names if name in expected}
    incomplete = tuple(name for name in names if missing.get(name, 1))
    return RecoveryResult(len(names), sum(counts.get(name, 0) for name in names), sum(missing.values()), incomplete)
