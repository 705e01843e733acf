"""Saves what can be read of a damaged SQLite store as a new store.

The original is copied first and never opened. In the copy a damaged header is restored, and pages are added that the
end of the file lacks. Rows are read one range after the other; a range that cannot be read is halved until only what is
damaged is left out. Where the program `sqlite3` is installed, its own recovery adds what stands on pages that no table
leads to any more.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from massmem.config.home import explain_write_error, make_folder
from massmem.core.errors import InputError, StoreDamagedError
from massmem.core.events import MessageAdded, decode_event
from massmem.core.ids import SESSION_ID
from massmem.core.records import LogEntry, SessionCopy, SessionRecord, SessionState
from massmem.isolation import run_program
from massmem.store.encoding import split_pages
from massmem.store.projection import InsertRow, project
from massmem.store.sqlite import open_sqlite

RECOVERED_STORE = "recovered.db"
"""Name of the new store in the folder."""

_COLUMNS = ("session_id", "seq", "turn", "kind", "content", "created_at")
"""Columns of chat_messages that are read."""

_ROLES: Mapping[str, Literal["user", "agent", "system"]] = {"user": "user", "assistant": "agent", "system": "system"}
"""Who speaks in a message that goes on without its event, by kind. Others mean nothing without it."""

_RANGE = 1_000
"""Rows that are read at once."""


_HEADER_SIZE, _MAGIC, _PAGE_SIZE = 100, b"SQLite format 3\0", 4_096
_EVENT_COLUMNS = "session_id, seq, turn, payload"
_LOST_EVENTS = "SELECT c0, c1, c2, c4 FROM lost_and_found WHERE nfield = 6 AND typeof(c4) = 'text'"
"""Rows of `events` that SQLite's recovery found on pages that belong to no table."""

_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    sessions: int
    """A session that cannot even be named is not counted."""
    messages: int
    lost: int
    """Messages that are missing, as far as their number is known."""
    incomplete: tuple[str, ...]
    """Ids of sessions that lack messages, or of which nobody can tell."""
    store: str
    """File of the new store."""


@dataclass(frozen=True, slots=True)
class _Salvage:
    rows: sqlite3.Connection
    """Tables `messages` (_COLUMNS, and from_log: its event is there too), `log` (_EVENT_COLUMNS) and `files`."""
    sessions: dict[str, dict[str, Any]]
    """Rows of chat_sessions by id."""

    def list_names(self) -> list[str]:
        """Return the ids of all sessions. A name that is no id was damaged itself, and would not do as a file name."""
        names = {name for (name,) in self.rows.execute("SELECT DISTINCT session_id FROM messages")}
        return sorted(name for name in names | {*self.sessions} if SESSION_ID.fullmatch(str(name)))


async def recover(path: Path, folder: Path) -> RecoveryResult:
    """Write what can be read of the database at `path` to the store `folder`/recovered.db. Only its owner may read it.

    Raises:
        InputError: there is no such file, or the folder is not empty.
        StoreDamagedError: not even the list of its tables can be read.
        HomeError, StoreError: the folder cannot be written.
    """
    await asyncio.to_thread(_check_paths, path, folder)
    try:
        with TemporaryDirectory(dir=folder, prefix=".copy-") as copies:
            salvage = await asyncio.to_thread(_salvage, path, Path(copies))
            with closing(salvage.rows):
                counts = await _write_store(salvage, folder)
    except OSError as e:
        raise explain_write_error(folder, e) from e
    missing = {name: max(0, row["message_count"] - counts.get(name, 0)) for name, row in salvage.sessions.items()}
    return RecoveryResult(
        sessions=len(counts),
        messages=sum(counts.values()),
        lost=sum(missing.values()),
        incomplete=tuple(name for name in counts if missing.get(name, 1)),
        store=str(folder / RECOVERED_STORE),
    )


def _check_paths(path: Path, folder: Path) -> None:
    """Make the folder. Raises as `recover`."""
    if not path.is_file():
        raise InputError(f"{path} is not a file", "name the database file that is damaged")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already", "name a new folder")
    make_folder(folder)


def _salvage(path: Path, copies: Path) -> _Salvage:
    """copies: a folder for copies. The caller closes the connection."""
    copy = _copy_database(path, copies)
    _repair_header(copy)
    rows, sessions, is_readable = _create_tables(copies / "rows.db"), dict[str, dict[str, Any]](), False
    for file in filter(None, (copy, _run_sqlite_recovery(copy))):
        with closing(sqlite3.connect(file)) as source:
            source.text_factory = partial(bytes.decode, errors="replace")
            if _try(source, "PRAGMA table_info(chat_messages)"):
                is_readable = True
                for name, row in _read_sessions(source):
                    sessions.setdefault(name, row)
                _collect(source, rows)
    if not is_readable:
        rows.close()
        raise StoreDamagedError(
            f"nothing of {path} can be read: the page that lists its tables is damaged", "restore a copy of the file"
        )
    with rows:
        for name in [name for name, row in sessions.items() if row["status"] == "deleting"]:
            # What a user has deleted does not come back.
            del sessions[name]
            for table in ("messages", "log", "files"):
                rows.execute(f"DELETE FROM {table} WHERE session_id = ?", [name])
    return _Salvage(rows, sessions)


def _copy_database(path: Path, to: Path) -> Path:
    for name in (path.name, f"{path.name}-wal"):
        if path.with_name(name).exists():
            shutil.copyfile(path.with_name(name), to / name)
    return to / path.name


def _repair_header(path: Path) -> None:
    """Restore the header of a database if it is damaged, and add the pages that the end of the file lacks."""
    with path.open("r+b") as file:
        header = file.read(_HEADER_SIZE).ljust(_HEADER_SIZE, b"\0")
        size = path.stat().st_size
        if not _is_valid(header):
            header = _build_header(-(-size // _PAGE_SIZE))
            file.seek(0)
            file.write(header)
        needed = _read_page_size(header) * int.from_bytes(header[28:32], "big")
        if size < needed <= 64 * size:  # a larger number would be damage too
            file.truncate(needed)


def _is_valid(header: bytes) -> bool:
    """Return whether the fields of the header are as in every file of massmem (sqlite.org/fileformat.html, 1.3)."""
    page_size = _read_page_size(header)
    return (
        header[:16] == _MAGIC
        and 512 <= page_size <= 65_536
        and page_size.bit_count() == 1
        and {*header[18:20]} <= {1, 2}
        and header[20:24] == bytes((0, 64, 32, 32))
        and 1 <= int.from_bytes(header[44:48], "big") <= 4
        and int.from_bytes(header[56:60], "big") == 1
    )


def _read_page_size(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    return 65_536 if size == 1 else size


def _build_header(pages: int) -> bytes:
    """Return the header of a file with so many pages: as massmem's files have it, without free pages."""
    header = bytearray(_HEADER_SIZE)
    header[:16] = _MAGIC
    header[16:24] = _PAGE_SIZE.to_bytes(2, "big") + bytes((2, 2, 0, 64, 32, 32))
    for start, value in ((24, 1), (28, pages), (40, 1), (44, 4), (56, 1), (92, 1), (96, 3_040_000)):
        header[start : start + 4] = value.to_bytes(4, "big")
    return bytes(header)


def _run_sqlite_recovery(path: Path) -> Path | None:
    """Run `.recover` of the program sqlite3. Return the file that it made, None when there is no such program."""
    program, shell = shutil.which("sqlite3"), shutil.which("sh")
    if program is None or shell is None:
        return None
    target = path.with_name("sqlite-recovery.db")
    # Free pages hold what was deleted.
    pipeline = '"$0" -batch "$1" ".recover --ignore-freelist" | "$0" -batch "$2"'
    with suppress(InputError):
        run_program([shell, "-c", pipeline, program, str(path), str(target)], 86_400)
    return target if target.exists() else None


def _create_tables(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous=OFF")
    key = "PRIMARY KEY (session_id, seq)) WITHOUT ROWID"
    connection.execute(f"CREATE TABLE messages ({', '.join(_COLUMNS)}, from_log, {key}")
    connection.execute(f"CREATE TABLE log ({_EVENT_COLUMNS}, {key}")
    connection.execute("CREATE TABLE files (session_id, hash, data, PRIMARY KEY (session_id, hash))")
    return connection


def _collect(source: sqlite3.Connection, rows: sqlite3.Connection) -> None:
    """Add the log and the messages of a database to `rows`, as far as they are not there."""
    insert = f"INSERT OR IGNORE INTO messages VALUES ({', '.join('?' * len(_COLUMNS))}, ?)"
    for event in (*_read_rows(source, "events", _EVENT_COLUMNS), *_try(source, _LOST_EVENTS)):
        messages = _project_messages(*event)
        if messages is not None:
            rows.execute("INSERT OR IGNORE INTO log VALUES (?, ?, ?, ?)", event)
            rows.executemany(insert, [(*message, True) for message in messages])
    for message in _read_rows(source, "chat_messages", ", ".join(_COLUMNS)):
        rows.execute(insert, (*message, False))
    for session_id, name, data in _read_rows(source, "files", "session_id, hash, data", at_once=1):
        if isinstance(data, bytes) and sha256(data).hexdigest() == name:
            rows.execute("INSERT OR IGNORE INTO files VALUES (?, ?, ?)", (session_id, name, data))


def _project_messages(session_id: object, seq: object, turn: object, payload: Any) -> list[_Row] | None:
    """Return the messages of an event; None: it is no event any more."""
    if not (isinstance(session_id, str) and isinstance(seq, int) and isinstance(turn, int)):
        return None
    try:
        changes = project(session_id, turn, seq, decode_event(payload))
    except (ValueError, TypeError):
        return None
    messages = [change.row for change in changes if isinstance(change, InsertRow) and change.table == "chat_messages"]
    return [tuple(str(row[c]) if c == "created_at" else row[c] for c in _COLUMNS) for row in messages]


def _read_sessions(source: sqlite3.Connection) -> Generator[tuple[str, dict[str, Any]]]:
    """Yield the ids and rows of sessions. Older schemas lack some columns."""
    names = [row[1] for row in source.execute("PRAGMA table_info(chat_sessions)")]
    columns = [name for name in names if name in SessionRecord.model_fields]
    for values in _read_rows(source, "chat_sessions", ", ".join(columns)) if columns else ():
        row = dict(zip(columns, values, strict=True))
        if isinstance(row["session_id"], str) and isinstance(row.get("message_count"), int):
            yield row["session_id"], row


def _read_rows(connection: sqlite3.Connection, table: str, columns: str, at_once: int = _RANGE) -> Generator[_Row]:
    for first in range(1, _find_last_row(connection, table) + 1, at_once):
        ranges = [(first, first + at_once - 1)]
        while ranges:
            low, high = ranges.pop()
            try:
                yield from connection.execute(
                    f"SELECT {columns} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ?", [low, high]
                ).fetchall()
            except sqlite3.DatabaseError:
                middle = (low + high) // 2
                if low < high:
                    ranges += [(middle + 1, high), (low, middle)]


def _find_last_row(connection: sqlite3.Connection, table: str) -> int:
    """Return the highest row number, from the table or from an index of it; 0: neither can be read."""
    indexes = [f"INDEXED BY {row[1]}" for row in _try(connection, f"PRAGMA index_list({table})") if not row[4]]
    for index in ("", *indexes):
        for (last,) in _try(connection, f"SELECT max(rowid) FROM {table} {index}"):
            return last or 0
    return 0


def _try(connection: sqlite3.Connection, query: str) -> list[_Row]:
    """Return the rows of a query; none where the tables that it reads are damaged or missing."""
    try:
        return connection.execute(query).fetchall()
    except sqlite3.DatabaseError:
        return []


def _select(salvage: _Salvage, table: str, columns: Iterable[str], session_id: str) -> Iterable[_Row]:
    return salvage.rows.execute(
        f"SELECT {', '.join(columns)} FROM {table} WHERE session_id = ? ORDER BY seq", [session_id]
    )


async def _write_store(salvage: _Salvage, folder: Path) -> dict[str, int]:
    """Return how many messages the new store has of each session."""
    counts: dict[str, int] = {}
    store = await open_sqlite(f"sqlite:///{folder / RECOVERED_STORE}", folder)
    try:
        for name in salvage.list_names():
            entries, counts[name] = await asyncio.to_thread(_build_log, salvage, name)
            session = _build_session(name, salvage.sessions.get(name), entries)
            if session is not None:
                copy = SessionCopy(session=session, state=SessionState())
                await store.import_session(copy, split_pages(entries), _read_files(salvage, name))
    finally:
        await store.close()
        await asyncio.to_thread((folder / f"{RECOVERED_STORE}.lock").unlink, missing_ok=True)
    return counts


def _build_log(salvage: _Salvage, session_id: str) -> tuple[list[LogEntry], int]:
    """Return the log of a session, and how many messages it has.

    A message of the conversation that has lost its event gets one that adds it.
    """
    entries = [
        LogEntry(seq=seq, turn=turn, payload=payload)
        for _, seq, turn, payload in _select(salvage, "log", _EVENT_COLUMNS.split(", "), session_id)
    ]
    turns, count = {entry.turn for entry in entries}, 0
    for _, seq, turn, kind, content, created_at, from_log in _select(
        salvage, "messages", (*_COLUMNS, "from_log"), session_id
    ):
        role = _ROLES.get(kind)
        if not from_log and role is not None and isinstance(content, str):
            # Without its other events there is no turn: the message stands outside of turns.
            event = MessageAdded(role=role, text=content, at=_parse_time(created_at))
            entries.append(LogEntry(seq=seq, turn=turn if turn in turns else 0, payload=event.model_dump_json()))
        elif not from_log:
            continue
        count += 1
    return sorted(entries, key=lambda entry: entry.seq), count


def _build_session(name: str, row: dict[str, Any] | None, entries: Sequence[LogEntry]) -> SessionRecord | None:
    """Return the session of a row; without a row, one with the times of the log. None: there is no log either."""
    times = [decode_event(entries[end].payload).at for end in (0, -1)] if entries else []
    try:
        dates = {field: _parse_time((row or {})[field]) for field in ("created_at", "updated_at")}
        origins = json.loads((row or {}).get("origins", "[]"))
        return SessionRecord.model_validate({**(row or {}), **dates, "origins": origins})
    except (KeyError, TypeError, ValueError):
        return SessionRecord(session_id=name, created_at=times[0], updated_at=times[1]) if times else None


def _parse_time(text: str) -> datetime:
    """Raises ValueError, TypeError: it is damaged."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


async def _read_files(salvage: _Salvage, session_id: str) -> AsyncGenerator[dict[str, bytes]]:
    for name, data in salvage.rows.execute("SELECT hash, data FROM files WHERE session_id = ?", [session_id]):
        yield {name: data}
