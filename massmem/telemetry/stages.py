"""The stages `received` and `respond` of each turn, as lines of JSON for those who operate a service.

They hold names, numbers and hashes; never the text of a message nor the value of a param.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from massmem.config.home import expand_home, make_file, make_folder
from massmem.core.errors import MassmemError
from massmem.core.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting, now
from massmem.core.redact import redact_values
from massmem.telemetry.spans import hash_name

SCHEMA_VERSION = 1
Stage = Literal["received", "respond"]

log = logging.getLogger(__name__)


def make_memory_payload(history_count: int, params: Collection[str], waiting_for: str | None) -> dict[str, Any]:
    """Return what the session remembers at a stage: how many messages, and the names of its params."""
    return {"history_count": history_count, "params_keys": sorted(params), "waiting_for_param": waiting_for}


class Stages:
    """Appends to a file; any number of processes may write to the same one."""

    def __init__(self, path: str | None, keys: Sequence[str]) -> None:
        """path: None when nothing is written. keys: their values are redacted wherever they stand in a payload."""
        self._path = None if path is None else expand_home(path)
        self._keys = tuple(keys)

    @property
    def is_enabled(self) -> bool:
        return self._path is not None

    def write(self, stage: Stage, session_id: str, turn: int, payload: Mapping[str, Any]) -> None:
        """Append a line. Blocking. Never fails a turn: the first failure is logged and ends the writing."""
        if self._path is None:
            return
        record = {
            "schema_version": SCHEMA_VERSION,
            "at": now().isoformat(),
            "stage": stage,
            "session": hash_name(session_id),
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


def make_respond_payload(end: Event) -> dict[str, Any]:
    """Return how a turn ended, from its last event."""
    match end:
        case TurnCompleted():
            details = {"winner": end.winner, "limit": end.limit, "confidence": end.confidence}
        case TurnFailed():
            details = {"exit_code": end.exit_code}
        case TurnAbandoned() | TurnWaiting() | TurnInterrupted():
            details = {}
        case _:
            return {"status": "running"}
    status = end.type.removeprefix("turn_")
    if isinstance(end, TurnInterrupted):
        return {"status": status, **details}
    used = end.usage
    counted = {"prompt": used.prompt, "completion": used.completion, "reported": used.reported, "cost": used.cost}
    return {"status": status, **details, "usage": counted}
