"""Messages of the queue into memory, word for word, and the ends of turns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from massmem.errors import EmbeddingError
from massmem.memory.persistent import PersistentMemory
from massmem.memory.recording.attempts import BAD_ROW, NOT_THE_ROW, Counts, failed, finished
from massmem.memory.recording.private import without_values
from massmem.memory.recording.recorded import episodes_of
from massmem.records import RecordingKind, RecordingRecord

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

_ALL_ALIKE = 3
"""Texts in a row that an embedder refuses before it is taken to be away."""


class EpisodeWriter:
    """Records rows of the kinds "episode" and "complete"."""

    def __init__(self, store: "SessionStore", memory: PersistentMemory) -> None:
        self._store = store
        self._memory = memory

    async def write(self, kind: RecordingKind, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        """Write and mark them. Raises MemoryUnavailable and StoreError; what is wrong with a row is kept with it."""
        if kind == "episode":
            await self._episodes(rows, counts)
        else:
            await self._completed(rows, counts)

    async def _episodes(self, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        try:
            await self._write_episodes(rows)
        except EmbeddingError as e:
            await self._apart(rows, e, counts)
        except NOT_THE_ROW:
            raise
        except BAD_ROW as e:
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
            except NOT_THE_ROW:
                raise
            except BAD_ROW as e:
                bad.append((row, e))
            else:
                await self._done([row], counts)
        for row, e in bad:
            away = isinstance(e, EmbeddingError) and counts.episodes == before
            await failed(self._store, row, e, counts, give_up=not away)
            if away:
                raise e

    async def _done(self, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        await finished(self._store, self._memory, rows)
        counts.episodes += len(rows)

    async def _write_episodes(self, rows: Sequence[RecordingRecord]) -> None:
        sessions = list(dict.fromkeys(row.session_id for row in rows))
        found = await self._store.messages_by_id([row.message_id for row in rows])
        messages = {m.id: m for m in await without_values(self._store, found)}
        groups = {session_id: await group_of(self._store, session_id) for session_id in sessions}
        episodes = episodes_of(rows, messages, await self._store.winners(sessions), groups)
        if episodes:
            await self._memory.record(episodes)

    async def _completed(self, rows: Sequence[RecordingRecord], counts: Counts) -> None:
        done: list[RecordingRecord] = []
        for row in rows:
            try:
                await self._memory.complete_turn(row.session_id, row.turn, row.agent_id or "")
            except NOT_THE_ROW:
                raise
            except BAD_ROW as e:
                await failed(self._store, row, e, counts)
            else:
                done.append(row)
        await finished(self._store, self._memory, done)
        counts.turns += len(done)


async def group_of(store: "SessionStore", session_id: str) -> str:
    """The name under which other sessions find what is said in this one."""
    session = await store.get_session(session_id)
    return "" if session is None else session.memory_group
