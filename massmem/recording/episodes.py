"""Records messages of the queue word for word, what the user changed of memories, and the ends of turns."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from massmem.core.errors import EmbeddingError
from massmem.core.records import MessageRecord, RecordingJob
from massmem.memory.origins import IMPORT
from massmem.memory.persistent import CompletedTurn, PersistentMemory
from massmem.recording.changes import carry_out, is_change
from massmem.recording.queue import OUTAGE, ROW_ERRORS, DrainCounts, finish, mark_done, mark_failed
from massmem.recording.rules import make_episodes
from massmem.recording.turn_words import Turns, find_message_origin, read_tool_words

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

_NO_MODEL = "no llm that can extract is configured"
_ALL_ALIKE = 3
"""Texts in a row that an embedder must refuse to count as unavailable."""


class EpisodeWriter:
    """Records rows of the kinds "episode" and "complete", of any number of sessions.

    Rows of the kind "extract" that no model is configured for are marked as done.
    """

    def __init__(self, store: "SessionStore", memory: PersistentMemory) -> None:
        self._store = store
        self._memory = memory

    async def write(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> None:
        """Write the rows and mark them. What is wrong with a row is stored with it.

        Raises:
            MemoryUnavailable, StoreError: neither is the fault of a row, so the rows stay as they are.
        """
        episodes = await self._record_episodes([row for row in rows if row.kind == "episode"], counts)
        turns = await self._complete_turns([row for row in rows if row.kind == "complete"], counts)
        idle = [row for row in rows if row.kind == "extract"]
        if episodes or turns:
            await self._memory.sync()
        await asyncio.gather(  # one transaction
            mark_done(self._store, self._memory, [*episodes, *turns]), self._store.finish_recordings(idle, _NO_MODEL)
        )
        counts.episodes += len(episodes)
        counts.turns += len(turns)

    async def _record_episodes(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> Sequence[RecordingJob]:
        """Record the rows; return those that are yet to be marked."""
        try:
            await self._write_episodes(rows)
        except EmbeddingError as e:
            await self._record_apart(rows, e, counts)
        except OUTAGE:
            raise
        except ROW_ERRORS as e:
            await self._record_apart(rows, e, counts)
        else:
            return rows
        return ()

    async def _record_apart(self, rows: Sequence[RecordingJob], error: Exception, counts: DrainCounts) -> None:
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
        to_record = await self._store.get_messages_to_record([row.message_id for row in rows])
        changes = [entry for entry in to_record if is_change(entry.message)]
        to_record = [entry for entry in to_record if not is_change(entry.message)]
        turns = await self._read_turns(rows, {entry.message.id: entry.message for entry in to_record})
        if episodes := make_episodes(rows, to_record, turns):
            await self._memory.record(episodes)
        for change in changes:
            await carry_out(self._store, self._memory, change)

    async def _read_turns(self, rows: Sequence[RecordingJob], messages: Mapping[str, MessageRecord]) -> Turns:
        """Return what tools gave back in the turns of what agents wrote and called."""
        by_agents = {
            (row.session_id, row.turn)
            for row in rows
            if row.agent_id and row.message_id in messages and find_message_origin(messages[row.message_id]) != IMPORT
        }
        return {place: await read_tool_words(self._store, *place) for place in sorted(by_agents)}

    async def _complete_turns(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> Sequence[RecordingJob]:
        """Tell the memory who won; return the rows that are yet to be marked."""
        try:
            if rows:
                await self._memory.complete_turns([_as_completed_turn(row) for row in rows])
        except OUTAGE:
            raise
        except ROW_ERRORS as e:
            if len(rows) == 1:
                await mark_failed(self._store, rows[0], e, counts)
                return ()
            return [other for row in rows for other in await self._complete_turns([row], counts)]
        return rows


def _as_completed_turn(row: RecordingJob) -> CompletedTurn:
    return CompletedTurn(row.session_id, row.turn, row.agent_id or "")
