"""One session in Redis: read, and changed by nobody else since it was read.

A change is computed here and stored by one program, which does nothing when the session has another version by then;
it is computed anew in that case. The version names the last changes, so that one whose reply was lost with the
connection is known to be there, and is not made twice.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from massmem.errors import SessionExistsError, StoreError
from massmem.store.redis_client import RedisClient
from massmem.store.redis_keys import Command, arguments, key
from massmem.store.redis_log import Head
from massmem.store.redis_scripts import COMMIT, SWEEP
from massmem.store.rows import missing

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds to try to change a session that others change all the time."""

_REMEMBERED = 8
_LONGEST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment. more: the replies to the commands that were asked for besides, none of them newer
    than the version as long as that does not change."""

    version: str
    head: Head
    more: list[Any]


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """What is to be stored, and what the caller is told then. No commands: nothing is to be done."""

    commands: Sequence[Command]
    result: T


class Sessions:
    """Reads and changes sessions of one server. ttl: milliseconds that a session lives after its use; -1: for ever."""

    def __init__(self, client: RedisClient, ttl: int) -> None:
        self.client = client
        self.ttl = ttl
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._written: dict[str, tuple[datetime, int]] = {}
        self._running: set[asyncio.Future[Any]] = set()

    async def read(self, session_id: str, more: Sequence[Command] = ()) -> Snapshot | None:
        """None: there is no such session. Raises StoreError also when the server has lost what it acknowledged."""
        first, *replies = await self.client.many([("HMGET", key("session", session_id), "version", "head"), *more])
        if first[0] is None:
            self.forget(session_id)
            return None
        head = Head.model_validate_json(first[1])
        self._check(head)
        return Snapshot(first[0], head, replies)

    async def create(self, session_id: str, commands: Sequence[Command]) -> None:
        """Run the commands unless there is a session with this id. Raises SessionExistsError."""
        token = secrets.token_hex(6)
        if not await self.commit(session_id, "", commands, token=token):
            there = await self.read(session_id)
            if there is None or token not in there.version.split():
                raise SessionExistsError(f"session {session_id!r} exists already")

    async def change(
        self, session_id: str, more: Sequence[Command], make: Callable[[Snapshot], Made[T]], *, used: bool = True
    ) -> T:
        """Change the session by what `make` says of it, which may be called again, and may raise.

        used: it lives on from now. A caller that is cancelled leaves at once, and the change ends on its own.

        Raises:
            StoreError: there is no such session, others change it without end, or the server is away; in the last
                case it is not known whether it was changed.
        """
        task = asyncio.ensure_future(self._change(session_id, more, make, used=used))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for changes whose callers have left, then let go of the server."""
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.client.close()

    async def sweep(self, doubtful: Sequence[str] = ()) -> None:
        """Take what is left of expired sessions out of the indexes. doubtful: sessions that were not found."""
        while await self.client.program(SWEEP, *doubtful) >= 100 + len(doubtful):
            doubtful = ()

    def forget(self, session_id: str) -> None:
        """The session is gone, or another one has its name."""
        self._written.pop(session_id, None)

    async def commit(
        self, session_id: str, version: str, commands: Sequence[Command], *, used: bool = True, token: str | None = None
    ) -> bool:
        """Run the commands unless the session has another version. version "": unless it exists."""
        new = " ".join([*version.split(), token or secrets.token_hex(6)][-_REMEMBERED:])
        ttl = self.ttl if used else 0
        return bool(await self.client.program(COMMIT, session_id, version, new, ttl, *arguments(commands)))

    async def _change(
        self, session_id: str, more: Sequence[Command], make: Callable[[Snapshot], Made[T]], *, used: bool
    ) -> T:
        token, end = secrets.token_hex(6), time.monotonic() + PATIENCE
        made: Made[T] | None = None
        async with self._alone(session_id):
            while True:
                snapshot = await self.read(session_id, more)
                if snapshot is None:
                    raise missing(session_id)
                if made is not None and token in snapshot.version.split():
                    return made.result
                made = make(snapshot)
                if not made.commands:
                    return made.result
                if await self.commit(session_id, snapshot.version, made.commands, used=used, token=token):
                    self._note(snapshot.head)
                    return made.result
                if time.monotonic() > end:
                    raise StoreError(
                        f"{self.client.name} is busy: others have been changing this session for too long",
                        "run the same command again when they have ended",
                    )
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncGenerator[None]:
        """Tasks of this process take turns: they would only make each other begin again."""
        lock, users = self._locks.get(session_id, (asyncio.Lock(), 0))
        self._locks[session_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[session_id]
            if users == 1:
                del self._locks[session_id]
            else:
                self._locks[session_id] = lock, users - 1

    def _note(self, head: Head) -> None:
        self._written[head.session.session_id] = head.session.created_at, head.seq

    def _check(self, head: Head) -> None:
        """A server that came back with an older state must not be taken for one that has everything."""
        created, seq = self._written.get(head.session.session_id, (None, 0))
        if created == head.session.created_at and head.seq < seq:
            raise StoreError(
                f"{self.client.name} has lost {seq - head.seq} entries of session {head.session.session_id} that it "
                "had acknowledged: it was restarted without an append-only file, or its disk failed",
                "set `appendonly yes` there; a new start of massmem goes on with what is left",
            )
