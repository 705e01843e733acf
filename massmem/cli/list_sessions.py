"""`massmem --list-sessions`: the sessions of this machine, read from the registry without any store."""

import json
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from massmem.cli.streams import notify, write_out
from massmem.config.home import massmem_home
from massmem.core.errors import StoreError
from massmem.core.text import one_line
from massmem.session.registry import FORGETTING, Registry, RegistryEntry, newest_first, read_lease_owner, read_sessions

_LINE = "=" * 60
_HOW_TO_LOAD = 'To load a session, use: massmem --session-id <SESSION_ID> "Your question"'


def list_sessions(*, as_json: bool) -> int:
    """Write all sessions, newest first, to stdout and return the exit code.

    Raises:
        HomeError: the registry cannot be read.
        StoreError: nor can the default store, which lists nothing that the registry has.
    """
    entries = [_mark_interrupted(entry) for entry in _read_entries()]
    if (massmem_home() / FORGETTING).exists():
        entries = [replace(entry, description="") for entry in entries]
        notify("names are not shown: something is being forgotten; massmem sessions list finishes what was cut off")
    if as_json:
        rows = ",\n".join(json.dumps(asdict(entry)) for entry in entries)
        write_out(f"[\n{rows}\n]\n")
    elif not entries:
        write_out('No sessions yet. Start one with: massmem "your question"\n')
    else:
        blocks = "\n".join(_format_entry(entry) for entry in entries)
        write_out(f"Available Memory Sessions:\n{_LINE}\n\n{blocks}\n{_LINE}\n{_HOW_TO_LOAD}\n")
    return 0


def _read_entries() -> list[RegistryEntry]:
    """Return the sessions of the default store, and those that the registry has, as their SQLite stores have them."""
    home, stored = massmem_home(), list[RegistryEntry]()
    listed = Registry(home).read_entries()
    urls = {entry.store for entry in listed if entry.store.startswith("sqlite:///")}
    for database in {home / "massmem.db", *(Path(url.partition(":///")[2]).expanduser() for url in urls)}:
        try:
            stored += read_sessions(database)
        except StoreError as e:
            if not listed:
                raise
            notify(e.message)
    return newest_first({entry.session_id: entry for entry in (*listed, *stored)}.values())


def _mark_interrupted(entry: RegistryEntry) -> RegistryEntry:
    """Return the entry with the status that the session really has: a killed process leaves it active."""
    kind, _, name = entry.store.partition(":///")
    if entry.status != "active" or kind != "sqlite":
        return entry
    from massmem.session.lease import is_owner_gone  # it loads asyncio, which most lists do not need

    owner = read_lease_owner(Path(name).expanduser(), entry.session_id)
    return replace(entry, status="interrupted") if owner is not None and is_owner_gone(massmem_home(), owner) else entry


def _format_entry(entry: RegistryEntry) -> str:
    started = datetime.fromisoformat(entry.start_time).astimezone().isoformat(" ", "seconds")[:19]
    description = f"\n  Description: {one_line(entry.description, 500)}" if entry.description else ""
    return (
        f"Session ID: {entry.session_id}\n"
        f"  Status:  {one_line(entry.status, 500)}\n"
        f"  Started: {started}\n"
        f"  Model:   {one_line(entry.model, 500)}{description}\n"
        f"  Config:  {one_line(entry.config_path, 500)}\n"
    )
