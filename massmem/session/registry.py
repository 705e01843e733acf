"""`~/.massmem/sessions.json`: an index of the sessions on this machine, never state.

`--list-sessions` reads it, so nothing heavy is imported here. What is damaged in the file is passed over: the stores
have the sessions, and each is entered again when it is used.
"""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from massmem.config.home import lock_file, make_home, replace_file
from massmem.core.calls import parse_object
from massmem.core.errors import HomeError, StoreError
from massmem.core.ids import SESSION_ID
from massmem.core.messages import clean_text

if TYPE_CHECKING:
    from massmem.core.records import SessionRecord

FORGETTING = "forgetting"
"""Folder in the home with a file for each forgetting that has begun, see massmem.session.erasure."""


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """A session as the list shows it. Times are ISO 8601 in UTC."""

    session_id: str
    start_time: str
    end_time: str | None = None
    """None while the session is open."""
    status: str = "active"
    config_path: str = ""
    model: str = ""
    description: str = ""
    store: str = ""
    """The URL of its store, without a password."""


_TEXTS = (  # name, value when it is missing (None: it must be there), most characters that are kept
    ("session_id", None, 200),  # more than an id may have: a cut id must never become a valid one
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

    def read_entries(self) -> list[RegistryEntry]:
        """Return all sessions, newest first; none when there is no file. Raises HomeError: it cannot be read."""
        return newest_first(self._load().values())

    def upsert(self, *entries: RegistryEntry) -> None:
        """Add sessions, or replace the entries with the same ids.

        Raises:
            HomeError: the file or its folder cannot be written.
            StoreError: the disk is full, or another process keeps the file locked.
        """
        checked = {entry.session_id: _read_entry(asdict(entry)) for entry in entries}
        with self._lock():
            self._save((self._load() | checked).values())

    def remove(self, *session_ids: str) -> None:
        """Remove the sessions that are listed, and what is damaged in the file. Raises as `upsert`."""
        with self._lock():
            if self.path.exists():
                self._save(entry for entry in self._load().values() if entry.session_id not in session_ids)

    def set_aside(self) -> None:
        """Move the file away, so that the home is new again. Raises HomeError, StoreError."""
        with self._lock(), suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(f"{self.path.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"))

    def _load(self) -> dict[str, RegistryEntry]:
        try:
            return {entry.session_id: entry for entry in _parse(self.path.read_bytes())}
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise HomeError(f"{self.path} cannot be read: {e.strerror}", "check its owner and permissions") from e

    def _save(self, entries: Iterable[RegistryEntry]) -> None:
        lines = ",\n".join(json.dumps(asdict(entry)) for entry in entries)
        replace_file(self.path, f'{{"sessions": [\n{lines}\n]}}\n')

    def _lock(self) -> AbstractContextManager[None]:
        make_home(self._home)
        return lock_file(self.path)


def newest_first(entries: Iterable[RegistryEntry]) -> list[RegistryEntry]:
    return sorted(entries, key=lambda entry: (entry.start_time, entry.session_id), reverse=True)


def read_sessions(database: Path) -> list[RegistryEntry]:
    """Return the sessions of this machine's user in an SQLite store, newest first; none when there is no such file.

    They are read without SQLAlchemy.

    Raises StoreError: the file cannot be read.
    """
    if not database.exists():
        return []
    query = (
        "SELECT session_id, created_at, CASE status WHEN 'active' THEN NULL ELSE updated_at END, status, "
        "config_path, model, coalesce(nullif(title, ''), description) FROM chat_sessions WHERE user_id IS NULL "
        "ORDER BY created_at DESC, session_id DESC"
    )
    store = f"sqlite:///{database}"
    try:
        rows = _fetch(database, query)
    except sqlite3.Error as e:
        raise StoreError(f"the sessions in {database} cannot be read: {e}", "check it with: massmem doctor") from e
    return [
        RegistryEntry(
            name, _to_utc(start), end and _to_utc(end), status, path, model, _hide_secrets(description), store
        )
        for name, start, end, status, path, model, description in rows
    ]


def read_lease_owner(database: Path, session_id: str) -> str | None:
    """Return who holds the lease of a session in an SQLite store, None when nobody does or it cannot be read."""
    try:
        rows = _fetch(database, "SELECT owner FROM leases WHERE session_id = ?", session_id)
    except sqlite3.Error:
        return None
    return str(rows[0][0]) if rows else None


def _fetch(database: Path, query: str, *parameters: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, parameters).fetchall()


def require_database(home: Path, url: str) -> None:
    """Check that the database of a store is there if the registry lists sessions in it.

    url: of the store; nothing is checked for one that is no SQLite file.

    Raises StoreError: the database is missing or empty. Whoever opened it would begin a new one.
    """
    if not url.startswith("sqlite:"):
        return
    from massmem.store.sqlite import parse_path  # SQLAlchemy takes longer to import than all the rest

    path, registry = parse_path(url), Registry(home)
    if path.exists() and path.stat().st_size > 0:
        return
    urls = [entry.store for entry in registry.read_entries()]
    count = sum(url.startswith("sqlite:///") and parse_path(url) == path for url in urls)
    if count:
        raise StoreError(
            f"{path} is {'empty' if path.exists() else 'missing'}, but {registry.path} lists {count} of its sessions",
            f"put {path.name} back from a copy; or begin anew with: massmem --new-home",
        )


def without_password(url: str) -> str:
    """Return the URL without the password, and without parameters, which may hold a password too."""
    return re.sub(r"(?<=://)([^:@/?]*):.*@", r"\1@", url).partition("?")[0]


def build_entry(session: "SessionRecord", store: str) -> RegistryEntry:
    """Return the entry of a stored session. store: the URL of the store."""
    ended = None if session.status == "active" else session.updated_at.isoformat(timespec="seconds")
    return RegistryEntry(
        session_id=session.session_id,
        start_time=session.created_at.isoformat(timespec="seconds"),
        end_time=ended,
        status=session.status,
        config_path=session.config_path,
        model=session.model,
        description=_hide_secrets(session.display_title or session.description),
        store=without_password(store),
    )


async def register_sessions(home: Path, url: str, sessions: Sequence["SessionRecord"]) -> None:
    """Enter those of the sessions that are this machine's user's in the registry.

    url: of the store. Raises HomeError, StoreError.
    """
    import asyncio  # it is loaded already where this runs, and reading the list does not need it

    if own := [build_entry(session, url) for session in sessions if session.user_id is None]:
        await asyncio.to_thread(Registry(home).upsert, *own)


def _parse(data: bytes) -> Iterator[RegistryEntry]:
    """Yield the entries of a file that are whole."""
    items = (parse_object(data.decode("utf-8-sig", "replace")) or {}).get("sessions")
    for item in cast("list[Any]", items) if isinstance(items, list) else ():
        with suppress(AttributeError, ValueError):
            yield _read_entry(item)


def _read_entry(item: Any) -> RegistryEntry:
    """Return an entry. The file may have been edited, and ids become parts of paths and commands.

    Raises AttributeError, ValueError: it is none.
    """
    session_id, start, *others = [_read_text(item.get(name, missing), length) for name, missing, length in _TEXTS]
    end = item.get("end_time")
    if not SESSION_ID.fullmatch(session_id):
        raise ValueError("an entry has an impossible session id")
    for time in (start, start if end is None else end):
        datetime.fromisoformat(_read_text(time, 40))
    return RegistryEntry(session_id, start, end, *others)


def _read_text(value: Any, max_length: int) -> str:
    if not isinstance(value, str):
        raise ValueError("an entry has a value that is no text")
    if len(value) <= max_length and value.isprintable():
        return value
    return clean_text(value[:max_length])


def _hide_secrets(text: str) -> str:
    """Programs read the list, and people paste it into reports."""
    from massmem.core.redact import redact  # its patterns take longer to load than a list to read

    return redact(text)


def _to_utc(stored: str) -> str:
    return datetime.fromisoformat(stored).replace(tzinfo=UTC).isoformat(timespec="seconds")
