"""How a log is written: events as JSON that every database accepts, and pages of a log for another store."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError

from massmem.core.events import EVENT, Event
from massmem.core.messages import clean_text
from massmem.core.records import LogEntry, RecordingJob


class EncodedEvent(NamedTuple):
    """An event as it is stored."""

    event: Event
    json: str


def encode_event(event: Event) -> EncodedEvent:
    """Return the event and its JSON, without characters that a database refuses."""
    try:
        text = event.model_dump_json()
    except PydanticSerializationError:  # a lone surrogate
        text = ""
    if text and "\\u0000" not in text:
        return EncodedEvent(event, text)
    event = EVENT.validate_python(clean_json(event.model_dump()))
    return EncodedEvent(event, event.model_dump_json())


def clean_json(value: Any) -> Any:
    """Return a JSON value without characters that a database refuses, in strings and in keys."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_json(key): clean_json(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [clean_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def build_log_page(log: Sequence[dict[str, Any]], recordings: Sequence[RecordingJob]) -> list[LogEntry]:
    """Return a page of a log with the recordings that its events queued.

    log: rows with seq, turn and payload, oldest first. A recording whose event is gone goes with the next event.
    """
    seqs = [row["seq"] for row in log]
    by_event: list[list[RecordingJob]] = [[] for _ in log]
    for recording in recordings:
        by_event[bisect_left(seqs, recording.seq)].append(recording)
    return [LogEntry(**row, recordings=tuple(rows)) for row, rows in zip(log, by_event, strict=True)]
