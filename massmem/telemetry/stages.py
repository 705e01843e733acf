"""What came in and what went out, a line of JSON for each: stages `received` and `respond` of a turn.

For whoever watches a service: names, numbers and hashes, never a word that was said nor a value that was given.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from massmem.config.home import make_file, make_folder
from massmem.core.errors import MassmemError
from massmem.core.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting, now
from massmem.core.redact import redact_values
from massmem.telemetry.spans import hashed

SCHEMA_VERSION = 1
Stage = Literal["received", "respond"]

log = logging.getLogger(__name__)


def memory_payload(history_count: int, params: Collection[str], waiting_for: str | None) -> dict[str, Any]:
    """What the session remembers when the stage is reached: how many messages, and the names of what it was given."""
    return {"history_count": history_count, "params_keys": sorted(params), "waiting_for_param": waiting_for}


class Stages:
    """Appends to a file; any number of processes may write to the same one."""

    def __init__(self, path: str | None, keys: Sequence[str]) -> None:
        """path None: nothing is written. keys: their values are left out, wherever they stand in a payload."""
        self._path = None if path is None else Path(path).expanduser()
        self._keys = tuple(keys)

    @property
    def enabled(self) -> bool:
        return self._path is not None

    def write(self, stage: Stage, session_id: str, turn: int, payload: Mapping[str, Any]) -> None:
        """Blocking. Never fails a turn: what cannot be written is said in the log, once."""
        if self._path is None:
            return
        record = {
            "schema_version": SCHEMA_VERSION,
            "at": now().isoformat(),
            "stage": stage,
            "session": hashed(session_id),
            "turn": turn,
            "payload": redact_values(dict(payload), self._keys),
        }
        try:
            make_folder(self._path.parent)
            make_file(self._path)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")  # one write: lines of several processes do not mix
        except (OSError, MassmemError) as e:
            log.warning("telemetry.stages: %s", e)
            self._path = None


def respond_payload(end: Event) -> dict[str, Any]:
    """How a turn ended, from its last event."""
    match end:
        case TurnCompleted():
            about = {"winner": end.winner, "limit": end.limit, "confidence": end.confidence}
        case TurnFailed():
            about = {"exit_code": end.exit_code}
        case TurnAbandoned() | TurnWaiting() | TurnInterrupted():
            about = {}
        case _:
            return {"status": "running"}
    status = end.type.removeprefix("turn_")
    if isinstance(end, TurnInterrupted):
        return {"status": status, **about}
    used = end.usage
    counted = {"prompt": used.prompt, "completion": used.completion, "reported": used.reported, "cost": used.cost}
    return {"status": status, **about, "usage": counted}
