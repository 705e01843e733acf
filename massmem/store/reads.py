"""Reads that find few rows by an index: those that wait for a thread at the same time go there together.

The way to a thread and back, and a connection, cost more than such a read itself.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from massmem.store.threads import Threads, Work

T = TypeVar("T")

_MOST_TOGETHER = 32

_Waiting = tuple[Work[Any], asyncio.Future[Any]]


class Reads:
    """Each read is as if it were alone: one that fails harms no other."""

    def __init__(self, threads: Threads, engine: sa.Engine, at_once: int) -> None:
        """engine: with the options of connections that read. at_once: threads that may be busy with them."""
        self._threads = threads
        self._engine = engine
        self._idle = at_once
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, work: Work[T]) -> T:
        """Raises what `work` does."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        if self._idle:
            self._idle -= 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
                await self._answer(batch)
        finally:
            self._idle += 1

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        found: list[Any] = []
        reading = self._threads.read(self._engine, partial(_all, [work for work, _ in batch], found))
        await asyncio.wait([reading])
        error = reading.exception()  # told to whoever waits for the read
        for (_, done), rows in zip(batch, found, strict=False):
            if not done.done():
                done.set_result(rows)
        if error is None:
            return
        if len(batch) > 1:
            await asyncio.gather(*(self._answer([each]) for each in batch[len(found) :]))
        elif not (done := batch[0][1]).done():
            done.set_exception(error)


def _all(works: Sequence[Work[Any]], found: list[Any], connection: sa.Connection) -> None:
    """found: gets the result of each."""
    for work in works:
        found.append(work(connection))
