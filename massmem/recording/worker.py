"""The worker that turns the queue of recordings into memories, beside the turns and after them."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from massmem.config.models import RecordingConfig
from massmem.core.errors import MemoryUnavailable, StoreError
from massmem.core.records import RecordingJob, RecordingKind
from massmem.memory.extraction.extractor import Extract, Summarize
from massmem.memory.persistent import PersistentMemory
from massmem.recording.episodes import EpisodeWriter
from massmem.recording.facts import FactWriter
from massmem.recording.queue import OUTAGE, DrainCounts

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

BATCH = 128
"""Episodes that are written at once."""

_SAID: tuple[RecordingKind, ...] = ("episode", "complete")
_GATHER = 0.1
"""Seconds for which the background waits for more to write at once: what costs most is the way to the disk."""
_LOOK_AGAIN = 30.0
_MEMORY_AGAIN = 5.0


class Recorder:
    """Takes rows of the queue, oldest first, and marks them done once the memory has confirmed.

    Killed at any point it leaves them pending, and recording them again stores nothing twice.
    """

    def __init__(
        self,
        store: "SessionStore",
        memory: PersistentMemory,
        extract: Extract | None = None,
        settings: Mapping[str, RecordingConfig] | None = None,
        session_id: str | None = None,
        summarize: Summarize | None = None,
    ) -> None:
        """extract None: no model is configured, episodes are all there is. settings: of each agent, by its id.

        session_id: record this session only, not all of the store. summarize: for large results of tools.
        """
        self._store = store
        self._to_release = not memory.temporary
        self._episodes = EpisodeWriter(store, memory)
        self._facts = None if extract is None else FactWriter(store, memory, extract, summarize, settings or {})
        self._session_id = session_id
        self._task: asyncio.Task[None] | None = None
        self._woken, self._stopping = asyncio.Event(), asyncio.Event()
        self._stop_at: float | None = None
        # Extraction takes seconds and must not keep anyone from recording verbatim.
        self._writing, self._extracting = asyncio.Lock(), asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._catching_up: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Record in the background until `stop`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Something new is in the queue."""
        self._woken.set()

    async def stop(self, seconds: float) -> None:
        """Go on for `seconds` at most, then leave the rest to the next run."""
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
        (ended,) = await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if isinstance(ended, Exception):
            log.error("recording ended early; the rest is left to the next run", exc_info=ended)

    async def catch_up(self, session_id: str, seconds: float) -> None:
        """Record what this session has said, for `seconds` at most. What keeps that from happening shows elsewhere."""
        waiting = self._waiting.setdefault(session_id, asyncio.get_running_loop().create_future())
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(waiting)

    async def _catch_up(self) -> None:
        """Sessions that wait at the same time are written together: what costs most is the way to the disk."""
        while self._waiting:
            async with self._writing:
                sessions, self._waiting = self._waiting, {}
                try:
                    with suppress(*OUTAGE):
                        await self._release_held()
                        await self._record_of(sessions)
                finally:
                    for waiting in sessions.values():
                        if not waiting.done():
                            waiting.set_result(None)

    async def _record_of(self, sessions: Collection[str]) -> None:
        """One look is enough for all of them, unless the queue is longer than that."""
        rows, more = await self._look(self._session_id)
        wanted = [row for row in rows if row.session_id in sessions]
        while wanted:
            await self._episodes.write(wanted, DrainCounts())
            looks = [await self._look(each) for each in sessions] if more else []
            wanted = [row for rows, _ in looks for row in rows]

    async def _look(self, session_id: str | None) -> tuple[list[RecordingJob], bool]:
        """What is to be written now, and whether there may be more of it."""
        kinds = (*_SAID, "extract") if self._facts is None else _SAID
        found = await asyncio.gather(*(self._store.list_due_recordings(kind, BATCH, session_id) for kind in kinds))
        return [row for rows in found for row in rows], any(len(rows) == BATCH for rows in found)

    async def drain(
        self, deadline: float | None = None, done: Callable[[DrainCounts], None] | None = None
    ) -> DrainCounts:
        """Work on what is due until nothing is left, or time.monotonic() passes `deadline`. done: called on the way.

        Raises:
            StoreError: the queue cannot be read or written.
        """
        counts = DrainCounts()
        try:
            async with self._extracting:
                await self._record_said(self._session_id, deadline, counts, done)
                facts = self._facts
                while facts and not self._late(deadline) and await facts.write_next(self._session_id, counts):
                    if done is not None:
                        done(counts)
                    # What was said meanwhile is searchable before the next model call.
                    await self._record_said(self._session_id, deadline, counts, done)
        except MemoryUnavailable as e:
            counts.unavailable = e.message
        return counts

    async def _run(self) -> None:
        told = ""
        while self._stop_at is None or time.monotonic() < self._stop_at:
            self._woken.clear()
            pause = _LOOK_AGAIN
            try:
                counts = await self.drain()
                problem = counts.unavailable
                pause = _MEMORY_AGAIN if problem else _LOOK_AGAIN
            except StoreError as e:
                problem = e.message
            if problem and problem != told:
                log.warning("nothing is recorded for now: %s", problem)
            told = problem
            if self._stop_at is not None and not self._woken.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
                async with asyncio.timeout(_GATHER):
                    await self._stopping.wait()

    def _late(self, deadline: float | None) -> bool:
        moment = time.monotonic()
        return any(end is not None and moment >= end for end in (deadline, self._stop_at))

    async def _record_said(
        self,
        session_id: str | None,
        deadline: float | None,
        counts: DrainCounts,
        done: Callable[[DrainCounts], None] | None = None,
    ) -> None:
        """Episodes and the turns that ended; batch by batch, so that nobody waits for a long backlog."""
        await self._release_held()
        more = True
        while more and not self._late(deadline):
            async with self._writing:
                rows, more = await self._look(session_id)
                await self._episodes.write(rows, counts)
            if rows and done is not None:
                done(counts)

    async def _release_held(self) -> None:
        if self._to_release:
            await self._store.release_held_recordings()
            self._to_release = False
