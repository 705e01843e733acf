"""Loads sessions from Redis, and changes one by compare-and-set."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from massmem.core.errors import StoreError
from massmem.core.records import RecordingJob, RecordingKind
from massmem.store.ports import HELD, unknown_session_error
from massmem.store.redis.document import Document, Keys, StoredEvent, StoredSession, message_id_prefix
from massmem.store.redis.server import Command, Server

T = TypeVar("T")
Edit = Callable[[Document, Any], Awaitable[T]]
"""Changes a document. The pipeline is for further reads. An edit is called again if somebody else changes the session
before it is stored."""

USED, IDS = "massmem:v2:used", "massmem:v2:ids"
JOB_KINDS: tuple[RecordingKind, ...] = ("episode", "complete", "extract")

_PAGE = 500
_WRITERS = 32
"""Processes whose last change is kept with a session."""

_REMEMBERED = 10_000
"""Sessions of which this process remembers its last change."""


class Sessions:
    """The sessions of one server.

    The id of each process's last change is kept with the session. When a connection breaks before the reply, it tells
    whether the change was made, so that nothing is done twice. When it is older than what this process remembers, the
    server came back without a change that it had acknowledged.
    """

    def __init__(self, server: Server, ttl: int | None) -> None:
        """ttl: milliseconds that a session lives after its last use; None: for ever."""
        self._server = server
        self._ttl = ttl
        self._writer = secrets.token_hex(8)
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        # By session id and time of creation: the last acknowledged change, and later ones that got no reply.
        self._own_changes: dict[tuple[str, datetime], set[str | None]] = {}

    async def load(self, session_id: str) -> StoredSession | None:
        """Return the record of a session."""
        return (await self.load_all([session_id]))[0]

    async def load_all(self, session_ids: Iterable[str]) -> list[StoredSession | None]:
        reads: list[Command] = [("HGET", Keys(session_id).session, "record") for session_id in session_ids]
        texts = await self._server.run_all(reads)
        return [None if text is None else StoredSession.model_validate_json(text) for text in texts]

    async def load_document(self, session_id: str) -> Document | None:
        """Return a session with all its turns, without its log."""
        keys = Keys(session_id)
        return Document.decode(keys, await self._server.run("HGETALL", keys.session), is_whole=True)

    async def read_all(self, oldest: str = "-inf", before: str = "+inf") -> AsyncGenerator[StoredSession]:
        """Yield the sessions, the last used first. oldest, before: bounds of when it was used, in microseconds."""
        start, seen = 0, set[str]()
        while True:
            page = await self._server.run("ZREVRANGEBYSCORE", USED, before, oldest, "LIMIT", start, _PAGE)
            sessions = dict(zip(page, await self.load_all(page), strict=True))
            for session_id, stored in sessions.items():
                if stored is not None and session_id not in seen:  # one that is used meanwhile moves the others
                    seen.add(session_id)
                    yield stored
            if expired := [session_id for session_id, stored in sessions.items() if stored is None]:
                # One that is created again at this moment is put back by its next change.
                await self._server.run("ZREM", USED, *expired)
                await self._server.run("HDEL", IDS, *map(message_id_prefix, expired))
            if len(page) < _PAGE:
                return
            start += len(page) - len(expired)

    async def change(
        self,
        session_id: str,
        edit: Edit[T],
        *,
        turns: Sequence[int] | None = (),
        new: StoredSession | None = None,
        is_use: bool = True,
    ) -> T:
        """Change a session in one transaction; return what `edit` returns.

        turns: numbers of the turns that the edit needs; None: all. new: the session to store, whether one is there or
        not. is_use: the time to live starts anew.

        Raises StoreError: the session does not exist, or the server lost changes that it had acknowledged.
        """
        keys, change_id = Keys(session_id), secrets.token_hex(8)
        sent: Document | None = None
        result: T

        async def attempt(pipeline: Any) -> T:
            nonlocal sent, result
            fields = await _read_fields(pipeline, keys, turns)
            document = Document.decode(keys, fields, is_whole=turns is None)
            writers = {} if document is None else document.stored.writers
            if sent is not None and (sent.is_deleted if document is None else writers.get(self._writer) == change_id):
                return result  # it was made, only the reply was lost
            if document is not None:
                self._check_durability(document.stored)
            if new is not None:
                document = Document(keys, new.model_copy(deep=True), is_whole=True, is_present=document is not None)
            if document is None:
                raise unknown_session_error(session_id)
            sent, result = None, await edit(document, pipeline)
            if _is_changed(document, fields):
                document.stored.writers = self._sign(document.stored, writers, change_id)
                pipeline.multi()
                store_document(pipeline, document, fields, is_new=new is not None)
                self._prolong(pipeline, keys if is_use else ())
                sent = document
            return result

        # Tasks of this process take turns: they would only make each other start again.
        async with self._locks.setdefault(keys.session_id, asyncio.Lock()):
            result = await self._server.transact(attempt, keys.session)
            if sent is not None:
                self._own_changes[_identify(sent.stored)] = {change_id}
            return result

    async def change_if_present(self, session_id: str, edit: Edit[T], **options: Any) -> T | None:
        """As `change`; None: the session does not exist."""
        if await self.load(session_id) is None:
            return None
        return await self.change(session_id, edit, **options)

    def _prolong(self, pipeline: Any, keys: Iterable[str]) -> None:
        for key in keys:
            if self._ttl is None:
                pipeline.persist(key)
            else:
                pipeline.pexpire(key, self._ttl)

    def _sign(self, stored: StoredSession, writers: Mapping[str, str], change_id: str) -> dict[str, str]:
        """Remember the change. Return the writers of the session with it."""
        own_changes = self._own_changes.pop(_identify(stored), set[str | None]())
        self._own_changes[_identify(stored)] = own_changes | {writers.get(self._writer), change_id}
        if len(self._own_changes) > _REMEMBERED:
            del self._own_changes[next(iter(self._own_changes))]
        others = [(writer, last) for writer, last in writers.items() if writer != self._writer]
        return dict([*others, (self._writer, change_id)][-_WRITERS:])

    def _check_durability(self, stored: StoredSession) -> None:
        """Raise StoreError, once, if the session lacks a change that the server acknowledged to this process."""
        own_changes, last = self._own_changes.get(_identify(stored)), stored.writers.get(self._writer)
        is_forgotten = last is None and len(stored.writers) >= _WRITERS
        if own_changes is None or last in own_changes or is_forgotten:
            return
        del self._own_changes[_identify(stored)]
        raise StoreError(
            f"{self._server.name} has lost part of session {stored.session.session_id} that it had acknowledged: it "
            "came back older",
            "see what is left with: massmem sessions show; set `appendonly yes` and `appendfsync always` there",
        )


def _identify(stored: StoredSession) -> tuple[str, datetime]:
    # The id may be given again to another session.
    return stored.session.session_id, stored.session.created_at


async def _read_fields(pipeline: Any, keys: Keys, turns: Sequence[int] | None) -> dict[str, str]:
    if turns is None:
        return await pipeline.hgetall(keys.session)
    names = ["record", *(f"turn:{number}" for number in turns)]
    texts = zip(names, await pipeline.hmget(keys.session, names), strict=True)
    return {name: text for name, text in texts if text is not None}


def _is_changed(document: Document, fields: Mapping[str, str]) -> bool:
    return bool(
        document.is_deleted or document.log or document.deltas or document.removed or document.encode() != fields
    )


def store_document(pipeline: Any, document: Document, fields: Mapping[str, str], *, is_new: bool) -> None:
    """Queue the commands that store what was changed. fields: of the session's hash, as they were."""
    keys, session_id = document.keys, document.keys.session_id
    encoded = {} if document.is_deleted else document.encode()
    changed = [name for name in fields.keys() | encoded.keys() if fields.get(name) != encoded.get(name)]
    if is_new or document.is_deleted:
        pipeline.unlink(*keys)
        pipeline.zrem(USED, session_id)
        pipeline.hdel(IDS, message_id_prefix(session_id))
    elif gone := [name for name in changed if name not in encoded]:
        pipeline.hdel(keys.session, *gone)
    if encoded:
        pipeline.hset(keys.session, mapping=encoded if is_new else {n: encoded[n] for n in changed if n in encoded})
        pipeline.zadd(USED, {session_id: microseconds(document.stored.session.updated_at)})
        pipeline.hset(IDS, message_id_prefix(session_id), session_id)
    if document.removed:
        pipeline.zrem(keys.log, *document.removed)
        pipeline.zremrangebyscore(keys.deltas, "-inf", StoredEvent.unpack(document.removed[-1]).seq)
    for key, members in ((keys.log, document.log), (keys.deltas, document.deltas)):
        if members:
            pipeline.zadd(key, members)
    for number in (int(name[5:]) for name in changed if name.startswith("turn:")):
        jobs = document.turns[number].jobs if f"turn:{number}" in encoded else []
        for kind in (*JOB_KINDS, "held"):
            times = [_due_time(job) for job in jobs if job.status == "pending" and kind == _index_of(job)]
            if times:
                pipeline.zadd(due_key(kind), {f"{session_id}\0{number}": min(times)})
            else:
                pipeline.zrem(due_key(kind), f"{session_id}\0{number}")


def _index_of(job: RecordingJob) -> str:
    return "held" if job.next_attempt_at == HELD else job.kind


def _due_time(job: RecordingJob) -> int:
    return microseconds(job.next_attempt_at or job.created_at)


def due_key(kind: str) -> str:
    return f"massmem:v2:due:{kind}"


def microseconds(moment: datetime) -> int:
    """Return the time since 1970; a sorted set keeps it exactly."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
