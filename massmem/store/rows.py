"""What every store does with what it is given before it becomes rows: texts made storable, pages of a log joined.

Nothing here knows a database.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticSerializationError

from massmem.errors import SessionBusyError, StoreError
from massmem.events import EVENT, Event
from massmem.messages import clean_text
from massmem.records import LogEntry, RecordingRecord

Payload = tuple[Event, str]
"""An event and its JSON."""


def payload(event: Event) -> Payload:
    """The event as it is stored: without characters that a database refuses."""
    try:
        text = event.model_dump_json()
    except PydanticSerializationError:  # a lone surrogate
        text = ""
    if text and "\\u0000" not in text:
        return event, text
    event = EVENT.validate_python(clean(event.model_dump()))
    return event, event.model_dump_json()


def clean(value: Any) -> Any:
    """The value, of JSON, without characters that a database refuses."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean(key): clean(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [clean(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def missing(session_id: str) -> StoreError:
    """The error for a row that belongs to an unknown session."""
    return StoreError(
        f"session {session_id!r} is not in the store: it was deleted meanwhile, or never created",
        "see the sessions with: massmem --list-sessions",
    )


def leased(session_id: str) -> SessionBusyError:
    """The error for who writes under a lease, or lets go of one, that is somebody else's by now."""
    return SessionBusyError(
        f"another process has taken over {session_id}: the store could not be reached for too long",
        "see what became of the question with: massmem sessions show",
    )


def entries(log: Sequence[dict[str, Any]], queue: Sequence[RecordingRecord]) -> list[LogEntry]:
    """The page of the log with the rows of the queue, each at its event or, when that has gone, at the next one."""
    seqs = [row["seq"] for row in log]
    caused: list[list[RecordingRecord]] = [[] for _ in log]
    for recording in queue:
        caused[bisect_left(seqs, recording.seq)].append(recording)
    return [LogEntry(**row, recordings=tuple(rows)) for row, rows in zip(log, caused, strict=True)]
