"""Outcomes of queue rows: a row is done, or it failed and is tried again later, or given up."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from massmem.core.errors import MassmemError, MemoryUnavailable, StoreError
from massmem.core.events import now
from massmem.core.records import RecordingJob
from massmem.core.redact import redact
from massmem.memory.persistent import PersistentMemory

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8

OUTAGE = (MemoryUnavailable, StoreError)
"""Errors that are not the row's fault: the drain ends, and the row stays as it is."""

ROW_ERRORS = (MassmemError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, OSError)
"""What a row that cannot be recorded may raise; anything else is a bug and shows as one."""

_FIRST_DELAY = 30.0
_MAX_DELAY = 3600.0
_REASON_LENGTH = 300


@dataclass(slots=True)
class DrainCounts:
    """What a drain of the queue did."""

    episodes: int = 0
    turns: int = 0
    extractions: int = 0
    facts: int = 0
    retried: int = 0
    failed: int = 0
    unavailable: str = ""
    """Why the memory could not be used; the rows that are left stay pending."""
    problems: list[str] = field(default_factory=list[str])
    """Why rows were retried or given up."""


def retry_delay(attempt: int) -> timedelta:
    """Return how long to wait before this repetition, counted from 1."""
    return timedelta(seconds=min(_MAX_DELAY, _FIRST_DELAY * 2 ** (attempt - 1)))


async def finish(
    store: "SessionStore", memory: PersistentMemory, rows: Sequence[RecordingJob], reason: str | None = None
) -> None:
    """Bring to the disk what the memory has stored, then mark its rows as done. reason: a note on them."""
    await memory.sync()
    await mark_done(store, memory, rows, reason)


async def mark_done(
    store: "SessionStore", memory: PersistentMemory, rows: Sequence[RecordingJob], reason: str | None = None
) -> None:
    """Mark rows whose memories are on the disk as done.

    A memory that ends with this process only holds them for a run that keeps its memories.
    """
    if memory.temporary:
        reason = "kept for one run only: persistent_memory.on_disk is false"
    await store.finish_recordings(rows, reason, lasting=not memory.temporary)


async def mark_failed(
    store: "SessionStore", row: RecordingJob, error: Exception, counts: DrainCounts, *, give_up: bool = True
) -> None:
    """Count a failed attempt and set when the next one is due. give_up: the last attempt is final."""
    attempt = row.attempts + 1
    text = error.message if isinstance(error, MassmemError) else f"{type(error).__name__}: {error}"
    reason = " ".join(redact(text).split())[:_REASON_LENGTH]
    final = give_up and attempt >= MAX_ATTEMPTS
    await store.fail_recording(row, reason, None if final else now() + retry_delay(attempt))
    counts.failed += final
    counts.retried += not final
    outcome = "given up" if final else "tried again later"
    counts.problems.append(reason)
    log.warning("%s of %s turn %d not recorded (%s): %s", row.kind, row.session_id, row.turn, outcome, reason)
