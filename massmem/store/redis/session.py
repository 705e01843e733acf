"""One session in Redis: read, and changed by nobody else since it was read.

A change is computed here and stored by one program, which does nothing when the session has another version by then;
it is computed anew in that case. One whose reply was lost with the connection is sent again and not made twice.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from massmem.errors import SessionExistsError, StoreError
from massmem.store.redis.client import RedisClient
from massmem.store.redis.keys import Command, arguments, key
from massmem.store.redis.log import Entry, Head
from massmem.store.redis.scripts import COMMIT, SWEEP
from massmem.store.redis.witness import Witness
from massmem.store.rows import leased, missing

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

PATIENCE = 30.0
"""Seconds to try to change a session that others change all the time."""

_LONGEST_PAUSE = 0.05
_LEASED = 2
"""What COMMIT says when somebody else has the lease."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment. more: the replies to the commands that were asked for besides, none of them newer
    than the version as long as that does not change."""

    version: str
    head: Head
    more: list[Any]


@dataclass(frozen=True, slots=True)
class Made(Generic[T_co]):
    """What is to be stored, and what the caller is told then. No commands: nothing is to be done.

    last: the last event among it. lease: who takes the session's with it, for how many milliseconds, 0 to let go of it.
    """

    commands: Sequence[Command]
    result: T_co
    last: Entry | None = None
    lease: tuple[str, int] = ("", 0)


class Sessions:
    """Reads and changes sessions of one server. ttl: milliseconds that a session lives after its use; -1: for ever."""

    def __init__(self, client: RedisClient, ttl: int) -> None:
        self.client = client
        self.ttl = ttl
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._process = secrets.token_hex(8)
        self._witness = Witness(client)
        self._running: set[asyncio.Future[Any]] = set()

    async def read(self, session_id: str, more: Sequence[Command] = ()) -> Snapshot | None:
        """None: there is no such session. Raises StoreError also when the server has lost what it acknowledged."""
        breaks, questions = self.client.breaks, self._witness.questions(session_id)
        session = ("HMGET", key("session", session_id), "version", "head")
        first, *replies = await self.client.many([session, *more, *questions])
        if first[0] is None:
            self.forget(session_id)
            return None
        head = Head.model_validate_json(first[1])
        self._witness.check(head, replies[len(more) :], breaks)
        return Snapshot(first[0], head, replies[: len(more)])

    async def create(self, session_id: str, commands: Sequence[Command]) -> None:
        """Run the commands unless there is a session with this id. Raises SessionExistsError."""
        if not await self.commit(session_id, "", commands):
            raise SessionExistsError(f"session {session_id!r} exists already")

    async def change(
        self, session_id: str, more: Sequence[Command], make: Callable[[Snapshot], Made[T]], *, used: bool = True
    ) -> T:
        """Change the session by what `make` says of it, which may be called again, and may raise.

        used: it lives on from now. A caller that is cancelled leaves at once, and the change ends on its own.

        Raises:
            StoreError: there is no such session, others change it without end, or the server is away; in the last
                case it is not known whether it was changed.
            SessionBusyError: somebody else has its lease; nothing was changed.
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
        self._witness.forget(session_id)

    async def commit(
        self,
        session_id: str,
        version: str,
        commands: Sequence[Command],
        *,
        used: bool = True,
        lease: tuple[str, int] = ("", 0),
    ) -> bool:
        """Run the commands unless the session has another version. version "": unless it exists.

        One at a time for a session; `change` sees to that. lease: see `Made`. Raises SessionBusyError.
        """
        new, ttl = secrets.token_hex(8), self.ttl if used else 0
        parts = (session_id, version, self._process, new, ttl, *lease, *arguments(commands))
        done = await self.client.program(COMMIT, *parts)
        if done == _LEASED:
            raise leased(session_id)
        return bool(done)

    async def _change(
        self, session_id: str, more: Sequence[Command], make: Callable[[Snapshot], Made[T]], *, used: bool
    ) -> T:
        end = time.monotonic() + PATIENCE
        async with self.alone(session_id):
            while True:
                breaks = self.client.breaks
                snapshot = await self.read(session_id, more)
                if snapshot is None:
                    raise missing(session_id)
                made = make(snapshot)
                if not made.commands:
                    return made.result
                if await self.commit(session_id, snapshot.version, made.commands, used=used, lease=made.lease):
                    self._witness.note(snapshot.head, made.last, breaks)
                    return made.result
                if time.monotonic() > end:
                    raise StoreError(
                        f"{self.client.name} is busy: others have been changing this session for too long",
                        "run the same command again when they have ended",
                    )
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))

    @asynccontextmanager
    async def alone(self, session_id: str) -> AsyncGenerator[None]:
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
