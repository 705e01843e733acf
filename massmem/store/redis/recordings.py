"""The queue of recordings of a Redis store: finding rows that are due, and changing rows."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import groupby

from massmem.events import now
from massmem.memory.memories import Selection
from massmem.records import RecordingCounts, RecordingKind, RecordingRecord, SessionFilter
from massmem.store.redis import queue
from massmem.store.redis.append import keeping
from massmem.store.redis.keys import Command, all_key, field_of, key, later_key, microseconds, ready_key, session_of
from massmem.store.redis.listing import heads
from massmem.store.redis.session import Made, Sessions, Snapshot

_KINDS: tuple[RecordingKind, ...] = ("episode", "complete", "extract")
_LATE = 1_000
"""Rows whose time has come that are put in order at once."""


class Recordings:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._client = sessions.client

    async def due(self, kind: RecordingKind, limit: int, session_id: str | None) -> list[RecordingRecord]:
        if session_id is not None:
            rows = [row for row in await self._of(session_id) if row.kind == kind and queue.is_due(row, now())]
            return queue.in_order(rows)[:limit]
        await self._sessions.sweep()
        while True:
            late = ("ZRANGEBYSCORE", later_key(kind), "-inf", microseconds(now()), "LIMIT", 0, _LATE)
            ready, later = await self._client.many([("ZRANGE", ready_key(kind), 0, limit - 1), late])
            members: list[str] = sorted([*ready, *later])[:limit]
            reads: list[Command] = [("HGET", key("recordings", session_of(m)), f"{kind}\0{m}") for m in members]
            texts = await self._client.many(reads)
            gone = [member for member, text in zip(members, texts, strict=True) if text is None]
            if not gone:
                return [RecordingRecord.model_validate_json(text) for text in texts]
            # A server that throws keys away when its memory is full takes rows without their names.
            await self._client.many([("ZREM", index, *gone) for index in (ready_key(kind), later_key(kind))])

    async def change(self, rows: Sequence[RecordingRecord], change: queue.Change) -> int:
        """Change these rows as they are by now; returns how many were changed."""
        changed = 0
        for session_id, mine in groupby(sorted(rows, key=lambda row: row.session_id), lambda row: row.session_id):
            changed += await self._change(session_id, change, [field_of(row) for row in mine])
        return changed

    async def change_all(self, session_id: str | None, change: queue.Change) -> int:
        """Change all rows, of one session or of all that are there."""
        sessions = [session_id] if session_id is not None else await self._all()
        return sum([await self._change(each, change, None) for each in sessions])

    async def release_held(self) -> int:
        held: set[str] = set()
        for kind in _KINDS:
            members = await self._client.run("ZRANGEBYSCORE", later_key(kind), microseconds(queue.HELD), "+inf")
            held |= {session_of(member) for member in members}
        return sum([await self._change(session_id, queue.releasing_held, None) for session_id in sorted(held)])

    async def forget(self, selection: Selection, places: Mapping[str, set[int]] | None) -> None:
        """places: the messages that are meant, by session; None: all that the selection names."""
        change = queue.forgetting(selection, places)
        if places is not None:
            for session_id in places:
                await self._change(session_id, change, None)
        else:
            await self.change_all(selection.session_id, change)

    async def counts(self, session_id: str | None) -> RecordingCounts:
        if session_id is not None:
            snapshot = await self._sessions.read(session_id)
            reason = queue.newest_reason(await self._of(session_id))
            return queue.counts([] if snapshot is None else [snapshot.head], reason)
        async with aclosing(heads(self._sessions, "used", SessionFilter())) as all_:
            found = [head async for head in all_]
        return queue.counts(found, await self._newest_reason())

    async def _newest_reason(self) -> str | None:
        fields: list[str] = await self._client.run("ZREVRANGE", all_key("trouble"), 0, 0)
        reads: list[Command] = [
            ("HGET", key("recordings", session_of(field.partition("\0")[2])), field) for field in fields
        ]  # fmt: skip
        texts = [text for text in await self._client.many(reads) if text is not None]
        return queue.newest_reason(RecordingRecord.model_validate_json(text) for text in texts)

    async def _of(self, session_id: str) -> list[RecordingRecord]:
        there, texts = await self._client.many(
            [("EXISTS", key("session", session_id)), ("HVALS", key("recordings", session_id))]
        )
        return [RecordingRecord.model_validate_json(text) for text in texts] if there else []

    async def _all(self) -> list[str]:
        async with aclosing(heads(self._sessions, "created")) as all_:
            return [head.session.session_id async for head in all_]

    async def _change(self, session_id: str, change: queue.Change, fields: Sequence[str] | None) -> int:
        """fields: the rows that are meant; None: all of the session."""
        name = key("recordings", session_id)
        command: Command = ("HVALS", name) if fields is None else ("HMGET", name, *fields)

        def make(snapshot: Snapshot) -> Made[int]:
            rows = [RecordingRecord.model_validate_json(text) for text in snapshot.more[0] if text is not None]
            changes = [queue.RowChange(row, new) for row in rows if (new := change(row)) is not None]
            if not changes:
                return Made((), 0)
            commands = queue.changed(snapshot.head, changes)
            return Made([*commands, *keeping(snapshot.head)], len(changes))

        if await self._sessions.read(session_id) is None:
            return 0
        return await self._sessions.change(session_id, [command], make, used=False)
