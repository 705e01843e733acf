"""What becomes of a row of the queue when it was worked on, and what a drain of the queue counts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from massmem.errors import MassmemError, MemoryUnavailable, StoreError
from massmem.events import now
from massmem.memory.persistent import PersistentMemory
from massmem.records import RecordingRecord
from massmem.redact import redact

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 8

NOT_THE_ROW = (MemoryUnavailable, StoreError)
"""Raised whatever the row holds: the drain ends, and the row stays as it is."""

BAD_ROW = (MassmemError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, OSError)
"""What a row that cannot be recorded may raise; anything else is a bug and shows as one."""

_FIRST_WAIT = 30.0
_LONGEST_WAIT = 3600.0
_REASON_LENGTH = 300


@dataclass(slots=True)
class Counts:
    """What a drain did. unavailable: why the memory could not be used; what is left then stays pending."""

    episodes: int = 0
    turns: int = 0
    extractions: int = 0
    facts: int = 0
    retried: int = 0
    failed: int = 0
    unavailable: str = ""


def wait_before(attempt: int) -> timedelta:
    """How long to wait before this attempt, counted from 1 for the first repetition."""
    return timedelta(seconds=min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (attempt - 1)))


async def finished(
    store: "SessionStore", memory: PersistentMemory, rows: Sequence[RecordingRecord], reason: str | None = None
) -> None:
    """Mark rows that the memory has stored; first they are on the disk, as the mark will be."""
    await memory.sync()
    await mark(store, memory, rows, reason)


async def mark(
    store: "SessionStore", memory: PersistentMemory, rows: Sequence[RecordingRecord], reason: str | None = None
) -> None:
    """For rows that are on the disk: they are done.

    In a memory that ends with this process they are only set aside for a run that keeps its memories.
    """
    if memory.temporary:
        reason = "kept for one run only: persistent_memory.on_disk is false"
    await store.finish_recordings(rows, reason, lasting=not memory.temporary)


async def failed(
    store: "SessionStore", row: RecordingRecord, error: Exception, counts: Counts, *, give_up: bool = True
) -> None:
    """Count an attempt; with `give_up` the last one is final."""
    attempt = row.attempts + 1
    text = error.message if isinstance(error, MassmemError) else f"{type(error).__name__}: {error}"
    reason = " ".join(redact(text).split())[:_REASON_LENGTH]
    given_up = give_up and attempt >= MOST_ATTEMPTS
    await store.fail_recording(row, reason, None if given_up else now() + wait_before(attempt))
    counts.failed += given_up
    counts.retried += not given_up
    after = "given up" if given_up else "tried again later"
    log.warning("%s of %s turn %d not recorded (%s): %s", row.kind, row.session_id, row.turn, after, reason)
