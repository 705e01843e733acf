"""The list of sessions, from the registry alone: no store, no database library."""

import json
import sys
from dataclasses import fields
from datetime import datetime

from massmem.cli.home import massmem_home
from massmem.cli.streams import write_out
from massmem.registry import Entry, Registry, RegistryDamaged, sessions_in
from massmem.render.printable import one_line

_LINE = "=" * 60
_HOW_TO_LOAD = 'To load a session, use: massmem --session-id <SESSION_ID> "Your question"'
_NAMES = tuple(field.name for field in fields(Entry))


def list_sessions(*, as_json: bool) -> int:
    """Write all sessions, newest first, to stdout and return the exit code.

    Raises:
        HomeError, StoreError: the registry cannot be read, nor made anew.
    """
    entries = _entries()
    if as_json:
        rows = [{name: getattr(entry, name) for name in _NAMES} for entry in entries]
        write_out(json.dumps(rows, indent=1) + "\n")
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
    started = datetime.fromisoformat(entry.start_time).astimezone()
    lines = [
        f"Session ID: {entry.session_id}",
        f"  Status:  {one_line(entry.status)}",
        f"  Started: {started:%Y-%m-%d %H:%M:%S}",
        f"  Model:   {one_line(entry.model)}",
    ]
    if entry.description:
        lines.append(f"  Description: {one_line(entry.description)}")
    lines.append(f"  Config:  {one_line(entry.config_path, 500)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"
