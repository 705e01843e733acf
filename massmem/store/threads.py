"""A database that is used in threads: each transaction is one task of a thread, from its beginning to its end.

An async driver would send every statement, fetch and commit to a thread, or through the event loop, by itself: that
costs ten times the statement.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

T = TypeVar("T")

Work = Callable[[sa.Connection], T]
Ahead = Sequence[Work[object]]
"""What is done before a transaction, with its connection, so that others need not wait for it."""

Run = Callable[[Work[Any]], Awaitable[Any]]
"""Runs its argument with the connection of the transaction."""


_MOST_TOGETHER = 64


class Threads:
    """As many threads as connections: none ever waits for one."""

    def __init__(self, engine: sa.Engine, connections: int) -> None:
        self._engine = engine
        self._connections = connections
        self._threads: ThreadPoolExecutor | None = None

    def read(self, engine: sa.Engine, work: Work[T]) -> asyncio.Future[T]:
        """engine: with the options of the transaction. Raises what `work` does."""
        return self._in_thread(_read, engine, work)

    def write(self, engine: sa.Engine, work: Work[T], ahead: Ahead = ()) -> asyncio.Future[T]:
        return self._in_thread(_write, engine, work, ahead)

    @asynccontextmanager
    async def transaction(self, engine: sa.Engine) -> AsyncGenerator[Run]:
        """A transaction whose parts come one by one; undone when the block raises."""
        connection = await self._in_thread(engine.connect)
        try:
            transaction = await self._in_thread(connection.begin)
            try:
                yield partial(self._in_thread, _given, connection)
            except BaseException:
                await self._in_thread(transaction.rollback)
                raise
            await self._in_thread(transaction.commit)
        finally:
            await self._in_thread(connection.close)

    async def erase(self, work: Callable[[sa.Engine], T]) -> T:
        return await self._in_thread(work, self._engine)

    async def close(self) -> None:
        """Let go of everything; whoever uses it once more begins anew."""
        await self._in_thread(self._engine.dispose)
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

    def _in_thread(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._connections, thread_name_prefix="massmem-store")
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


class Together:
    """Changes that wait for the disk at the same time go there as one transaction.

    Each is whole or absent as if it were alone: when one of them fails, none is kept, and each is made by itself.
    """

    def __init__(self, threads: Threads, engine: sa.Engine, writing: asyncio.Semaphore) -> None:
        """writing: held while a transaction runs."""
        self._threads = threads
        self._engine = engine
        self._writing = writing
        self._waiting: list[tuple[Work[Any], Ahead, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, work: Work[T], ahead: Ahead = ()) -> T:
        """Raises what `work` does. It may be run twice, the first time without effect, and so may what is ahead.

        A caller that is cancelled leaves at once and the change is made all the same: to cut it off would cost the
        connection, and the next one is often the one that says why.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, ahead, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        while self._waiting:
            async with self._writing:
                batch, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
                await self._commit(batch)

    async def _commit(self, batch: Sequence[tuple[Work[Any], Ahead, asyncio.Future[Any]]]) -> None:
        made: list[Any] = []
        works, before = [work for work, _, _ in batch], [each for _, ahead, _ in batch for each in ahead]
        writing = self._threads.write(self._engine, partial(_all, works, made), before)
        await asyncio.wait([writing])
        error = writing.exception()  # told to whoever waits for the change
        if error is not None and len(made) < len(batch) > 1:  # a change failed, and not the transaction
            for each in batch:
                await self._commit([each])
            return
        for place, (_, _, done) in enumerate(batch):
            if done.done():
                continue
            if error is None:
                done.set_result(made[place])
            else:
                done.set_exception(error)


def _all(works: Sequence[Work[Any]], made: list[Any], connection: sa.Connection) -> None:
    """made: gets the result of each."""
    for work in works:
        made.append(work(connection))


def _read(engine: sa.Engine, work: Work[T]) -> T:
    with engine.connect() as connection:
        return work(connection)


def _write(engine: sa.Engine, work: Work[T], ahead: Ahead) -> T:
    with engine.connect() as connection:
        for each in ahead:
            each(connection)
        with connection.begin():
            return work(connection)


def _given(connection: sa.Connection, work: Work[T]) -> T:
    return work(connection)
