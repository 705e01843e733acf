"""`~/.massmem/sessions.json`: an index of the sessions on this machine. Never state: the stores hold that.

It is read on the way to `--list-sessions`, so nothing heavy is imported here. A file that cannot be read whole is
never overwritten: a copy is kept beside it, and `rebuild` makes it anew from what the stores hold.
"""

import json
import os
import re
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.config.home import explain_write_error, make_home
from massmem.core.errors import HomeError, MassmemError, StoreError
from massmem.core.ids import SESSION_ID
from massmem.core.messages import clean_text

if TYPE_CHECKING:
    from massmem.core.records import SessionRecord

LOCK_TIMEOUT = 30.0
"""Seconds to wait for another process that writes the registry."""


class RegistryDamaged(MassmemError):
    """The file is not what massmem writes. kept: where its bytes are kept; call `rebuild` to go on."""

    def __init__(self, message: str, kept: Path) -> None:
        super().__init__(message, f"its bytes are kept in {kept}")
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Entry:
    """A session as the list shows it. Times are ISO 8601 in UTC; end_time is None while it is open.

    store: the URL of the store that holds it, without a password.
    """

    session_id: str
    start_time: str
    end_time: str | None = None
    status: str = "active"
    config_path: str = ""
    model: str = ""
    description: str = ""
    store: str = ""


_NAMES = tuple(field.name for field in fields(Entry))
_TEXTS = (  # name, value when it is missing (None: damage), longest text that is kept
    ("session_id", None, 200),  # more than an id may have, so that cutting never makes one valid
    ("start_time", None, 40),
    ("status", "active", 40),
    ("config_path", "", 4096),
    ("model", "", 200),
    ("description", "", 200),
    ("store", "", 4096),
)


class Registry:
    """The index in `home`. All methods block on files: call them in a thread from async code."""

    def __init__(self, home: Path) -> None:
        self.path = home / "sessions.json"
        self._home = home

    def entries(self) -> list[Entry]:
        """All sessions, newest first; empty when there is no file.

        Raises:
            RegistryDamaged: see `rebuild`.
            HomeError: the file cannot be read.
        """
        try:
            return _newest_first(self._load())
        except _Unreadable:
            with self._lock():
                return _newest_first(self._load_or_keep())

    def upsert(self, entry: Entry) -> None:
        """Add a session, or replace the entry with the same id.

        Raises:
            RegistryDamaged: see `rebuild`.
            HomeError: the file or its folder cannot be written.
            StoreError: the disk is full, or another process keeps the file locked.
        """
        checked = _entry(_row(entry))
        with self._lock():
            known = self._load_or_keep()
            known[entry.session_id] = checked
            self._save(known.values())

    def remove(self, session_id: str) -> None:
        """Forget a session, when it is there. Raises as `upsert`."""
        with self._lock():
            known = self._load_or_keep()
            if known.pop(session_id, None):
                self._save(known.values())

    def replace(self, entries: Iterable[Entry]) -> None:
        """Write exactly these entries, whatever was there. Raises HomeError, StoreError."""
        checked = _by_id(entries)
        with self._lock():
            self._save(checked.values())

    def rebuild(self, entries: Iterable[Entry]) -> None:
        """Write the entries found in the stores; what another process has written since the damage stays.

        Raises as `replace`.
        """
        checked = _by_id(entries)
        with self._lock():
            try:
                newer = self._load()
            except _Unreadable:
                newer = {}
            self._save((checked | newer).values())

    def _load(self) -> dict[str, Entry]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise HomeError(f"{self.path} cannot be read: {e.strerror}", "check its owner and permissions") from e
        return {entry.session_id: entry for entry in _parse(data)}

    def _load_or_keep(self) -> dict[str, Entry]:
        """Under the lock: the entries, or a copy of the damaged file and RegistryDamaged.

        The file itself stays in place until `rebuild` replaces it: when the process dies in between, the next
        one finds it damaged again and not missing.
        """
        try:
            return self._load()
        except _Unreadable as e:
            kept = self._keep()
            raise RegistryDamaged(f"{self.path} is damaged: {e}", kept) from e

    def _keep(self) -> Path:
        data = self.path.read_bytes()
        for copy in self._home.glob(f"{self.path.name}.damaged-*"):
            if copy.read_bytes() == data:
                return copy
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        copy = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        try:
            _write_through(copy, data)
            _sync_folder(self._home)
        except OSError as e:
            copy.unlink(missing_ok=True)
            raise explain_write_error(copy, e) from e
        return copy

    def _save(self, entries: Iterable[Entry]) -> None:
        lines = ",\n".join(json.dumps(_row(entry)) for entry in entries)
        # One name is enough: only the holder of the lock writes it, and what a killed one left is overwritten.
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        try:
            temporary.unlink(missing_ok=True)
            _write_through(temporary, f'{{"sessions": [\n{lines}\n]}}\n'.encode())
            temporary.replace(self.path)
            _sync_folder(self._home)
        except OSError as e:
            temporary.unlink(missing_ok=True)
            raise explain_write_error(self.path, e) from e

    @contextmanager
    def _lock(self) -> Generator[None]:
        from filelock import FileLock, Timeout  # it loads asyncio, 45 ms that reading the list does not need

        make_home(self._home)
        lock = FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT, mode=0o600, poll_interval=0.01)
        try:
            lock.acquire()
        except Timeout as e:
            raise StoreError(
                f"{self.path} is locked: another process has been writing it for more than {LOCK_TIMEOUT:.0f} s",
                "run the same command again when it has ended",
            ) from e
        except OSError as e:
            raise explain_write_error(self.path, e) from e
        try:
            yield
        finally:
            lock.release()


def sessions_in(database: Path) -> list[Entry]:
    """The sessions that an SQLite store holds, newest first; read without SQLAlchemy. Empty when there is no such file.

    Raises:
        StoreError: it cannot be read.
    """
    if not database.exists():
        return []
    query = (
        "SELECT session_id, created_at, CASE status WHEN 'active' THEN NULL ELSE updated_at END, status, "
        "config_path, model, coalesce(nullif(description, ''), title) FROM chat_sessions "
        "ORDER BY created_at DESC, session_id DESC"
    )
    store = f"sqlite:///{database}"
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return [_stored(row, store) for row in connection.execute(query)]
    except sqlite3.Error as e:
        raise StoreError(f"the sessions in {database} cannot be read: {e}", "check it with: massmem doctor") from e


def without_password(url: str) -> str:
    """The URL without what follows the user's name, and without parameters, which may hold a password too."""
    return re.sub(r"(?<=://)([^:@/?]*):.*@", r"\1@", url).partition("?")[0]


def entry_of(session: "SessionRecord", store: str) -> Entry:
    """The entry of a stored session. store: the URL of the store."""
    ended = None if session.status == "active" else session.updated_at.isoformat(timespec="seconds")
    return Entry(
        session_id=session.session_id,
        start_time=session.created_at.isoformat(timespec="seconds"),
        end_time=ended,
        status=session.status,
        config_path=session.config_path,
        model=session.model,
        description=_described(session.description or session.title),
        store=without_password(store),
    )


class _Unreadable(ValueError):
    """Why the bytes are not a registry."""


def _parse(data: bytes) -> list[Entry]:
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as e:
        raise _Unreadable(str(e)) from e
    found = content.get("sessions") if isinstance(content, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(found, list):
        raise _Unreadable("it has no list of sessions")
    return [_entry(item) for item in found]  # pyright: ignore[reportUnknownVariableType]


def _entry(item: Any) -> Entry:
    """Checked, because the file may have been edited: ids become parts of paths and commands."""
    try:
        session_id, start, *others = [_text(item.get(name, missing), most) for name, missing, most in _TEXTS]
        end = item.get("end_time")
        if not SESSION_ID.fullmatch(session_id):
            raise _Unreadable("an entry has an impossible session id")
        datetime.fromisoformat(start)
        if end is not None:
            datetime.fromisoformat(end)
    except (TypeError, AttributeError, ValueError) as e:
        raise _Unreadable(str(e)) from e
    return Entry(session_id, start, end, *others)


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise _Unreadable("an entry has a value that is no text")
    if len(value) <= most and value.isprintable():
        return value
    return clean_text(value[:most])


def _row(entry: Entry) -> dict[str, str | None]:
    return {name: getattr(entry, name) for name in _NAMES}


def _by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.session_id: _entry(_row(entry)) for entry in entries}


def _stored(row: tuple[Any, ...], store: str) -> Entry:
    session_id, start, end, status, config_path, model, description = row
    ended = _utc(end) if end else None
    return Entry(session_id, _utc(start), ended, status, config_path, model, _described(description), store)


def _described(text: str) -> str:
    """The list is read by programs and pasted into reports: without secrets."""
    from massmem.core.redact import redact  # its patterns take longer to load than a list to read

    return redact(text)


def _utc(stored: str) -> str:
    return datetime.fromisoformat(stored).replace(tzinfo=UTC).isoformat(timespec="seconds")


def _newest_first(entries: dict[str, Entry]) -> list[Entry]:
    return sorted(entries.values(), key=lambda entry: (entry.start_time, entry.session_id), reverse=True)


def _write_through(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows has no handle of a folder, its renames are durable by themselves
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
