"""Messages of the queue into memory, word for word, and the ends of turns."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from massmem.core.errors import EmbeddingError
from massmem.core.records import RecordingJob
from massmem.memory.persistent import CompletedTurn, PersistentMemory
from massmem.recording.masking import without_values
from massmem.recording.queue import OUTAGE, ROW_ERRORS, DrainCounts, finish, mark_done, mark_failed
from massmem.recording.rules import episodes_of, groups_of, winners_of

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

_NO_MODEL = "no llm is configured for extraction"
_ALL_ALIKE = 3
"""Texts in a row that an embedder refuses before it is taken to be away."""


class EpisodeWriter:
    """Records rows of the kinds "episode" and "complete", of any number of sessions.

    Of the kind "extract" it is given those that no model is configured for.
    """

    def __init__(self, store: "SessionStore", memory: PersistentMemory) -> None:
        self._store = store
        self._memory = memory

    async def write(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> None:
        """Write and mark them. Raises MemoryUnavailable and StoreError; what is wrong with a row is kept with it."""
        said = await self._episodes([row for row in rows if row.kind == "episode"], counts)
        ended = await self._completed([row for row in rows if row.kind == "complete"], counts)
        idle = [row for row in rows if row.kind == "extract"]
        if said or ended:
            await self._memory.sync()
        await asyncio.gather(  # one transaction
            mark_done(self._store, self._memory, [*said, *ended]), self._store.finish_recordings(idle, _NO_MODEL)
        )
        counts.episodes += len(said)
        counts.turns += len(ended)

    async def _episodes(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> Sequence[RecordingJob]:
        """Returns the rows that are yet to be marked."""
        try:
            await self._write_episodes(rows)
        except EmbeddingError as e:
            await self._apart(rows, e, counts)
        except OUTAGE:
            raise
        except ROW_ERRORS as e:
            await self._apart(rows, e, counts)
        else:
            return rows
        return ()

    async def _apart(self, rows: Sequence[RecordingJob], error: Exception, counts: DrainCounts) -> None:
        """Record the rows one by one, to find those that cannot be.

        When none can be embedded it is not their fault; the first waits all the same, lest it hold up the queue.
        """
        bad: list[tuple[RecordingJob, Exception]] = [(rows[0], error)] if len(rows) == 1 else []
        before = counts.episodes
        for row in rows if not bad else ():
            try:
                await self._write_episodes([row])
            except EmbeddingError as e:
                bad.append((row, e))
                if counts.episodes == before and len(bad) == _ALL_ALIKE:
                    break
            except OUTAGE:
                raise
            except ROW_ERRORS as e:
                bad.append((row, e))
            else:
                await finish(self._store, self._memory, [row])
                counts.episodes += 1
        for row, e in bad:
            away = isinstance(e, EmbeddingError) and counts.episodes == before
            await mark_failed(self._store, row, e, counts, give_up=not away)
            if away:
                raise e

    async def _write_episodes(self, rows: Sequence[RecordingJob]) -> None:
        if not rows:
            return
        found = await self._store.get_messages_to_record([row.message_id for row in rows])
        messages = {message.id: message for message in without_values(found)}
        if episodes := episodes_of(rows, messages, winners_of(found), groups_of(found)):
            await self._memory.record(episodes)

    async def _completed(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> Sequence[RecordingJob]:
        """Returns the rows that are yet to be marked."""
        try:
            if rows:
                await self._memory.complete_turns([_won(row) for row in rows])
        except OUTAGE:
            raise
        except ROW_ERRORS as e:
            if len(rows) == 1:
                await mark_failed(self._store, rows[0], e, counts)
                return ()
            return [each for row in rows for each in await self._completed([row], counts)]
        return rows


def _won(row: RecordingJob) -> CompletedTurn:
    return CompletedTurn(row.session_id, row.turn, row.agent_id or "")
