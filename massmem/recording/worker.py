"""The worker that turns the queue of recordings into memories, beside the turns and after them."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from massmem.config.models import RecordingConfig
from massmem.core.errors import MemoryUnavailable, StoreError
from massmem.core.records import RecordingJob, RecordingKind
from massmem.memory.extraction.extractor import Extractor
from massmem.memory.persistent import PersistentMemory
from massmem.recording.jobs import OUTAGE, DrainCounts, EpisodeWriter, FactWriter
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

BATCH = 128
"""Episodes that are written at once."""

_LATE_BATCH = 16
"""The same when there is an end: an embedder of a hundred languages takes 45 ms for a passage."""

_LOADING = 4.0
"""Most seconds beside those of the work for an embedder to load."""

_VERBATIM: tuple[RecordingKind, ...] = ("episode", "complete")
"""Kinds of rows that need no model."""
_GATHER = 0.1
"""Seconds for which the background waits for more rows to write at once, since a sync to the disk costs most."""
_POLL = 30.0
"""Seconds until the background looks at the queue again without being woken."""
_MEMORY_RETRY = 5.0
"""The same while the memory cannot be used."""


class Recorder:
    """Takes rows of the queue, oldest first, and marks them as done once the memory has confirmed.

    Killed at any point it leaves them pending. Recording a row again stores nothing twice.
    """

    def __init__(
        self,
        store: SessionStore,
        memory: PersistentMemory,
        extractor: Extractor | None = None,
        settings: Mapping[str, RecordingConfig] | None = None,
        session_id: str | None = None,
        *,
        leaves_facts: bool = False,
    ) -> None:
        """extractor: None when no model is configured; then only episodes are recorded. settings: by agent id.

        session_id: record this session only, not all of the store. leaves_facts: another process extracts them.
        """
        self._leaves_facts = leaves_facts
        self._store = store
        self._to_release = not memory.temporary
        self._episodes = EpisodeWriter(store, memory)
        self._facts = None if extractor is None else FactWriter(store, memory, extractor, settings or {})
        self._session_id = session_id
        self._task: asyncio.Task[None] | None = None
        self._woken, self._stopping = asyncio.Event(), asyncio.Event()
        self._stop_at: float | None = None
        # Extraction takes seconds and must not keep anyone from recording verbatim.
        self._writing, self._extracting = asyncio.Lock(), asyncio.Lock()
        self._waiting: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._problems: list[str] = []
        self._catching_up: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Record in the background until `stop`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Look at the queue now: something new is in it."""
        self._woken.set()

    def take_problems(self) -> list[str]:
        """Return why rows could not be recorded in the background since the last call."""
        problems, self._problems = self._problems, []
        return problems

    async def stop(self, seconds: float) -> None:
        """Stop within `seconds`; leave the rest to the next run."""
        if self._catching_up is not None:
            await asyncio.wait({self._catching_up}, timeout=seconds)
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)
        if self._task is None:
            return
        self._stop_at = time.monotonic() + seconds
        self._woken.set()
        self._stopping.set()
        await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        (result,) = await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if isinstance(result, Exception):
            log.error("recording ended early; the rest is left to the next run", exc_info=result)

    async def catch_up(self, session_id: str, turn: int, seconds: float) -> None:
        """Make this session's messages searchable, in `seconds` at most. A failure shows when the memory is asked.

        turn: the one that is running: its question is left for later, since the agents are sent it anyway.
        """
        waiting = self._waiting.setdefault((session_id, turn), asyncio.get_running_loop().create_future())
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(waiting)

    async def _catch_up(self) -> None:
        """Write for all waiting sessions together, since a sync to the disk costs most."""
        while self._waiting:
            async with self._writing:
                waiting_turns, self._waiting = self._waiting, {}
                try:
                    with suppress(*OUTAGE):
                        await self._release_held()
                        await self._record_sessions(dict(waiting_turns.keys()))
                finally:
                    for waiting in waiting_turns.values():
                        if not waiting.done():
                            waiting.set_result(None)

    async def _record_sessions(self, turns: Mapping[str, int]) -> None:
        """Read the queue once for all sessions; session by session only when it is longer than a batch.

        turns: the running turn of each session, by its id.
        """
        rows, more = await self._list_due(self._session_id)
        while True:
            if more:
                batches = await asyncio.gather(*(self._list_due(session_id) for session_id in turns))
                rows = [row for batch, _ in batches for row in batch]
            rows = [row for row in rows if _is_needed(row, turns)]
            if rows:
                await self._episodes.write(rows, DrainCounts())
            if not rows or not more:
                return

    async def _list_due(self, session_id: str | None) -> tuple[list[RecordingJob], bool]:
        has_extractor = self._facts is not None or self._leaves_facts
        kinds = _VERBATIM if has_extractor else (*_VERBATIM, "extract")
        size = BATCH if self._stop_at is None else _LATE_BATCH
        batches = await asyncio.gather(*(self._store.list_due_recordings(kind, size, session_id) for kind in kinds))
        return [row for batch in batches for row in batch], any(len(batch) == size for batch in batches)

    async def drain_for(self, seconds: float) -> None:
        """Work on the rows that are due for so many seconds. The rest, and what fails, stays in the queue.

        The first rows are written even when the embedder has to be loaded for them, unless it does not answer.
        """
        self._stop_at = time.monotonic() + seconds
        draining = asyncio.create_task(self.drain())
        await asyncio.wait({draining}, timeout=seconds + _LOADING)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)

    async def drain(self, on_progress: Callable[[DrainCounts], None] = lambda _: None) -> DrainCounts:
        """Work on the rows that are due until none is left. Raises StoreError."""
        counts = DrainCounts()
        try:
            async with self._extracting:
                await self._record_verbatim(counts, on_progress)
                facts = self._facts
                while facts and not self._is_late and await facts.write_next(self._session_id, counts):
                    on_progress(counts)
                    # New messages are searchable before the next model call.
                    await self._record_verbatim(counts, on_progress)
        except MemoryUnavailable as e:
            counts.unavailable = e.message
        return counts

    async def _run(self) -> None:
        last_problem = ""
        while not self._is_late:
            self._woken.clear()
            pause = _POLL
            try:
                counts = await self.drain()
                problem = counts.unavailable
                self._problems += counts.problems
                pause = _MEMORY_RETRY if problem else _POLL
            except StoreError as e:
                problem = e.message
            if problem and problem != last_problem:
                log.warning("nothing is recorded for now: %s", problem)
            last_problem = problem
            if self._stop_at is not None and not self._woken.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
                async with asyncio.timeout(_GATHER):
                    await self._stopping.wait()

    @property
    def _is_late(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    async def _record_verbatim(self, counts: DrainCounts, on_progress: Callable[[DrainCounts], None]) -> None:
        """Record episodes and the ends of turns, batch by batch, so that nobody waits for a long backlog."""
        await self._release_held()
        more = True
        while more and not self._is_late:
            async with self._writing:
                rows, more = await self._list_due(self._session_id)
                await self._episodes.write(rows, counts)
            if rows:
                on_progress(counts)

    async def _release_held(self) -> None:
        if self._to_release:
            await self._store.release_held_recordings()
            self._to_release = False


def _is_needed(row: RecordingJob, turns: Mapping[str, int]) -> bool:
    """Return whether a search in the running turns may find what the row becomes."""
    turn = turns.get(row.session_id)
    return turn is not None and (row.turn < turn or row.agent_id is not None)
