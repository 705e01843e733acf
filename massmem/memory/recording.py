"""The worker that turns the queue of recordings into memories, beside the turns and after them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from massmem.config.models import RecordingConfig
from massmem.errors import (
    ContentRefused,
    ContextOverflow,
    EmbeddingError,
    InputError,
    MalformedResponse,
    MassmemError,
    MemoryUnavailable,
    ProviderError,
    StoreError,
)
from massmem.events import now
from massmem.memory.extraction import Extraction, Origin, RecordedMessage
from massmem.memory.persistent import PersistentMemory
from massmem.memory.recorded import Conversation, conversation_of, episodes_of
from massmem.records import RecordingKind, RecordingRecord
from massmem.redact import redact

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

log = logging.getLogger(__name__)

Extract = Callable[[Sequence[RecordedMessage], Origin], Awaitable[Extraction]]
"""Asks a model for facts. Raises MassmemError."""

MOST_ATTEMPTS = 8
BATCH = 128
"""Episodes that are written at once."""

_FIRST_WAIT = 30.0
_LONGEST_WAIT = 3600.0
_LOOK_AGAIN = 30.0
_MEMORY_AGAIN = 5.0
_REASON_LENGTH = 300
_ALL_ALIKE = 3
"""Texts in a row that an embedder refuses before it is taken to be away."""

_NOT_THE_ROW = (MemoryUnavailable, StoreError)
# After any other failure of a provider the next request would fare no better.
_ITS_OWN_FAULT = (MalformedResponse, ContentRefused, ContextOverflow)
# What a row that cannot be recorded may raise, whatever it holds; anything else is a bug and shows as one.
_BAD_ROW = (MassmemError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, OSError)


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
    ) -> None:
        """extract None: no model is configured, episodes are all there is. settings: of each agent, by its id.

        session_id: record this session only, not all of the store.
        """
        self._store = store
        self._memory = memory
        self._extract = extract
        self._settings = settings or {}
        self._session_id = session_id
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._stop_at: float | None = None
        # Extraction takes seconds and must not keep anyone from recording verbatim.
        self._writing, self._extracting = asyncio.Lock(), asyncio.Lock()
        # What a model was paid for and the memory has not confirmed, and what it did not read.
        self._found: dict[tuple[str, int, str | None], Extraction] = {}
        self._unread: dict[tuple[str, int, str | None], frozenset[str]] = {}

    def start(self) -> None:
        """Record in the background until `stop`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Something new is in the queue."""
        self._woken.set()

    async def stop(self, seconds: float) -> None:
        """Go on for `seconds` at most, then leave the rest to the next run."""
        if self._task is None:
            return
        self._stop_at = time.monotonic() + seconds
        self._woken.set()
        await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        (ended,) = await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if isinstance(ended, Exception):
            log.error("recording ended early; the rest is left to the next run", exc_info=ended)

    async def caught_up(self, session_id: str, seconds: float) -> None:
        """Record what this session has said, for `seconds` at most. What keeps that from happening shows elsewhere."""
        with suppress(TimeoutError, *_NOT_THE_ROW):
            async with asyncio.timeout(seconds):
                await self._record_said(session_id, None, Counts())

    async def drain(self, deadline: float | None = None, done: Callable[[Counts], None] | None = None) -> Counts:
        """Work on what is due until nothing is left, or time.monotonic() passes `deadline`. done: called on the way.

        Raises:
            StoreError: the queue cannot be read or written.
        """
        counts = Counts()
        try:
            async with self._extracting:
                await self._record_said(self._session_id, deadline, counts, done)
                while await self._extract_one(deadline, counts):
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

    def _late(self, deadline: float | None) -> bool:
        moment = time.monotonic()
        return any(end is not None and moment >= end for end in (deadline, self._stop_at))

    async def _record_said(
        self,
        session_id: str | None,
        deadline: float | None,
        counts: Counts,
        done: Callable[[Counts], None] | None = None,
    ) -> None:
        """Episodes, then the turns that ended; batch by batch, so that nobody waits for a long backlog."""
        kind: RecordingKind
        for kind in ("episode", "complete"):
            while not self._late(deadline):
                async with self._writing:
                    rows = await self._store.due_recordings(kind, BATCH, session_id)
                    if not rows:
                        break
                    await self._record(kind, rows, counts)
                if done is not None:
                    done(counts)

    async def _record(self, kind: RecordingKind, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        if kind == "episode":
            await self._episodes(rows, counts)
        else:
            for row in rows:
                await self._completed(row, counts)

    async def _episodes(self, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        try:
            await self._write_episodes(rows)
        except EmbeddingError as e:
            await self._apart(rows, e, counts)
        except _NOT_THE_ROW:
            raise
        except _BAD_ROW as e:
            await self._apart(rows, e, counts)
        else:
            await self._done(rows, counts)

    async def _apart(self, rows: Sequence[RecordingRecord], error: Exception, counts: Counts) -> None:
        """Record the rows one by one, to find those that cannot be.

        When none can be embedded it is not their fault; the first waits all the same, lest it hold up the queue.
        """
        bad: list[tuple[RecordingRecord, Exception]] = [(rows[0], error)] if len(rows) == 1 else []
        before = counts.episodes
        for row in rows if not bad else ():
            try:
                await self._write_episodes([row])
            except EmbeddingError as e:
                bad.append((row, e))
                if counts.episodes == before and len(bad) == _ALL_ALIKE:
                    break
            except _NOT_THE_ROW:
                raise
            except _BAD_ROW as e:
                bad.append((row, e))
            else:
                await self._done([row], counts)
        for row, e in bad:
            away = isinstance(e, EmbeddingError) and counts.episodes == before
            await self._failed(row, e, counts, give_up=not away)
            if away:
                raise e

    async def _done(self, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        await self._store.finish_recordings(rows)
        counts.episodes += len(rows)

    async def _write_episodes(self, rows: Sequence[RecordingRecord]) -> None:
        sessions = list(dict.fromkeys(row.session_id for row in rows))
        messages = {m.id: m for m in await self._store.messages_by_id([row.message_id for row in rows])}
        groups = {session_id: await self._group(session_id) for session_id in sessions}
        episodes = episodes_of(rows, messages, await self._store.winners(sessions), groups)
        if episodes:
            await self._memory.record(episodes)

    async def _completed(self, row: RecordingRecord, counts: Counts) -> None:
        try:
            await self._memory.complete_turn(row.session_id, row.turn, row.agent_id or "")
        except _NOT_THE_ROW:
            raise
        except _BAD_ROW as e:
            await self._failed(row, e, counts)
        else:
            await self._store.finish_recordings([row])
            counts.turns += 1

    async def _extract_one(self, deadline: float | None, counts: Counts) -> bool:
        """Work on the oldest row for extraction; whether to go on with the next."""
        if self._late(deadline):
            return False
        rows = await self._store.due_recordings("extract", 1 if self._extract else BATCH, self._session_id)
        if rows and self._extract is None:
            await self._store.finish_recordings(rows, "no llm is configured for extraction")
        elif rows and self._extract is not None:
            try:
                await self._facts(rows[0], self._extract, counts)
            except _NOT_THE_ROW:
                raise
            except _BAD_ROW as e:
                await self._failed(rows[0], e, counts)
                return not isinstance(e, ProviderError | InputError) or isinstance(e, _ITS_OWN_FAULT)
        return bool(rows)

    async def _facts(self, row: RecordingRecord, extract: Extract, counts: Counts) -> None:
        conversation = await self._conversation(row)
        if conversation is None:
            await self._store.finish_recordings([row], "nothing to extract from")
            return
        place = (row.session_id, row.seq, row.agent_id)
        found = self._found.get(place)
        if found is None:
            # A repetition reads what was not read before, not what has given its facts already.
            unread = self._unread.get(place)
            messages = [m for m in conversation.messages if unread is None or m.message_id in unread]
            found = self._found[place] = await extract(messages, conversation.origin)
        counts.facts += await self._memory.add_facts(found.facts)
        del self._found[place]
        self._unread.pop(place, None)
        if found.problem is not None:
            self._unread[place] = frozenset(found.unread)
            raise found.problem
        await self._store.finish_recordings([row])
        counts.extractions += 1

    async def _conversation(self, row: RecordingRecord) -> Conversation | None:
        turn = await self._store.turn_messages(row.session_id, row.turn)
        settings = self._settings.get(row.agent_id or "", RecordingConfig())
        winners = await self._store.winners([row.session_id])
        return conversation_of(row, turn, settings, winners, await self._group(row.session_id))

    async def _group(self, session_id: str) -> str:
        session = await self._store.get_session(session_id)
        return "" if session is None else session.memory_group

    async def _failed(self, row: RecordingRecord, error: Exception, counts: Counts, *, give_up: bool = True) -> None:
        """Count an attempt; with `give_up` the last one is final."""
        attempt = row.attempts + 1
        text = error.message if isinstance(error, MassmemError) else f"{type(error).__name__}: {error}"
        reason = " ".join(redact(text).split())[:_REASON_LENGTH]
        given_up = give_up and attempt >= MOST_ATTEMPTS
        await self._store.fail_recording(row, reason, None if given_up else now() + wait_before(attempt))
        counts.failed += given_up
        counts.retried += not given_up
        after = "given up" if given_up else "tried again later"
        log.warning("%s of %s turn %d not recorded (%s): %s", row.kind, row.session_id, row.turn, after, reason)
