"""The list of sessions, from the registry alone: no store, no database library."""

import json
import sys
from dataclasses import fields
from datetime import datetime
from functools import lru_cache, partial

from massmem.cli.streams import write_out
from massmem.home import massmem_home
from massmem.registry import Entry, Registry, RegistryDamaged, sessions_in
from massmem.render.printable import one_line

_LINE = "=" * 60
_HOW_TO_LOAD = 'To load a session, use: massmem --session-id <SESSION_ID> "Your question"'
# Thousands of sessions share a few models and configurations.
_shown = lru_cache(maxsize=1024)(partial(one_line, limit=500))
_NAMES = tuple(field.name for field in fields(Entry))


def list_sessions(*, as_json: bool) -> int:
    """Write all sessions, newest first, to stdout and return the exit code.

    Raises:
        HomeError, StoreError: the registry cannot be read, nor made anew.
    """
    entries = _entries()
    if as_json:
        rows = ",\n".join(json.dumps({name: getattr(entry, name) for name in _NAMES}) for entry in entries)
        write_out(f"[\n{rows}\n]\n")
    elif not entries:
        write_out('No sessions yet. Start one with: massmem "your question"\n')
    else:
        blocks = "\n".join(_block(entry) for entry in entries)
        write_out(f"Available Memory Sessions:\n{_LINE}\n\n{blocks}\n{_LINE}\n{_HOW_TO_LOAD}\n")
    return 0


def _entries() -> list[Entry]:
    """What the registry says; when it is missing or damaged, what the store in its usual place holds."""
    home = massmem_home()
    registry, database = Registry(home), home / "massmem.db"
    try:
        if registry.path.exists():
            return registry.entries()
    except RegistryDamaged as e:
        found = sessions_in(database)
        registry.rebuild(found)
        sys.stderr.write(f"massmem: {e.message}\n  {e.hint}; the list was made anew from {database}\n")
        return found
    return sessions_in(database)


def _block(entry: Entry) -> str:
    started = datetime.fromisoformat(entry.start_time).astimezone().isoformat(" ", "seconds")[:19]
    description = f"\n  Description: {_shown(entry.description)}" if entry.description else ""
    return (
        f"Session ID: {entry.session_id}\n"
        f"  Status:  {_shown(entry.status)}\n"
        f"  Started: {started}\n"
        f"  Model:   {_shown(entry.model)}{description}\n"
        f"  Config:  {_shown(entry.config_path)}\n"
    )
