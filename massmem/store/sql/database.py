"""A relational database in threads: reads beside one another, every change one transaction.

SQLAlchemy's synchronous engine is used in a thread for each transaction. An async driver would hand every statement,
fetch and commit to a thread or to the event loop by itself: that costs ten times the statement.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine.interfaces import CoreExecuteOptionsParameter

from massmem.core.errors import StoreError
from massmem.core.records import Everybody, Owner
from massmem.store.ports import unknown_session_error

T = TypeVar("T")

Row = dict[str, Any]
Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
Work = Callable[[sa.Connection], T]
RunInTransaction = Callable[[Work[Any]], Awaitable[Any]]
"""Runs its argument with the connection of an open transaction."""

_MAX_ATTEMPTS = 5
_MOST_READS = 16
"""Reads that share a thread."""


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Which sessions a search looks into."""

    session_ids: Sequence[str] | None
    """None: all of the owner."""
    owner: Owner | Everybody


Refusal = Literal["duplicate", "missing parent", "conflict"]
"""There is a row with the same key; the row that it belongs to does not exist; the transaction was rolled back in
favour of another one, and can simply run again."""


class Dialect(Protocol):
    """Differences between relational databases."""

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT that knows ON CONFLICT."""
        ...

    def time_from_now(self, name: str) -> sa.ColumnElement[Any]:
        """Return the time that is a parameter (a timedelta) from now, by the clock of the database where it has one."""
        ...

    def lock_session(self, connection: sa.Connection, session_id: str) -> None:
        """Let no other transaction append to this session until this one ends."""
        ...

    def index_messages(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        """Add rows of chat_messages to the full-text index, in place of what it has of them."""
        ...

    def build_search(
        self, columns: sa.Select[*tuple[Any, ...]], query: str, scope: "SearchScope", limit: int
    ) -> sa.Select[*tuple[Any, ...]] | None:
        """Return a SELECT of the messages with any word of the query, best first, without reasoning.

        columns: a SELECT of chat_messages. Returns None for a query without words.
        """
        ...

    def erase(self, read: sa.Engine) -> bool:
        """Leave nothing on the disk of what was deleted. Returns False when others keep that from happening now."""
        ...

    def find_refusal(self, error: BaseException | None) -> Refusal | None:
        """Return why the database refused a row or a transaction; None: it has failed otherwise."""
        ...

    def to_store_error(self, error: BaseException | None) -> StoreError:
        """Return the error to show for one of the driver."""
        ...


@dataclass(frozen=True, slots=True)
class Engines:
    write: sa.Engine
    """Each of its transactions waits for the lock that a writer needs as it begins."""
    writers: int
    """How many of them at the same time."""
    read: sa.Engine
    """Its connections have no transactions."""
    readers: int
    """How many of them; 0: `read` and `write` are one engine."""
    group_commit: int = 1
    """How many changes that wait at the same time are committed together."""


@dataclass(slots=True)
class _PendingWork:
    work: Work[Any]
    result: asyncio.Future[Any]
    value: Any = None
    failed: bool = False
    """It raised, and so the transaction was rolled back."""

    def answer(self, error: BaseException | None) -> None:
        """Tell the caller, unless it was cancelled."""
        if self.result.done():
            return
        if error is None:
            self.result.set_result(self.value)
        else:
            self.result.set_exception(error)


class _Lane:
    """Work that goes to a thread together, as much as waits when a connection is free."""

    def __init__(self, begin: Callable[[], AbstractContextManager[sa.Connection]], connections: int, most: int) -> None:
        self._begin = begin
        # As many threads as connections: none waits for one.
        self.threads = ThreadPoolExecutor(connections, "massmem-store")
        self.slots = asyncio.Semaphore(connections)
        self.most = most
        self.pending: deque[_PendingWork] = deque()

    def run_together(self, batch: Sequence[_PendingWork]) -> None:
        with self._begin() as connection:
            for pending in batch:
                pending.failed = True
                pending.value = pending.work(connection)
                pending.failed = False

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self.threads, work)


class Database:
    """Raises StoreError, as the dialect words it, for all that goes wrong in the database.

    Group commit: changes that wait for the disk at the same time share a transaction. When one of them fails, the
    others are committed without it. Sixteen chats on SQLite need 0.8 commits a turn instead of 4.4; without it, 100
    durable turns a second take a disk that syncs within 2 ms. Reads that are asked for at the same time share a thread,
    which costs five times what a statement does.
    """

    def __init__(self, engines: Engines, dialect: Dialect) -> None:
        self.dialect = dialect
        self._engines = engines
        self._writes = _Lane(engines.write.begin, engines.writers, engines.group_commit)
        self._reads = _Lane(engines.read.connect, engines.readers, _MOST_READS) if engines.readers else self._writes
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def read(self, query: Work[T]) -> T:
        """Return what `query` does with a connection."""
        return await self._run(self._reads, query)

    async def fetch(self, query: sa.Executable, parameters: Parameters = None) -> list[Row]:
        """Return the rows of a query, each by the names of its columns."""
        return await self.fetch_as(lambda row: row, query, parameters)

    async def fetch_as(self, build: Callable[[Row], T], query: sa.Executable, parameters: Parameters = None) -> list[T]:
        """Return what `build` makes of each row, in a thread: ten thousand sessions take half a second."""
        return await self.read(
            lambda connection: [build({**row}) for row in connection.execute(query, parameters).mappings()]
        )

    async def write(self, change: Work[T]) -> T:
        """Run `change` in a transaction, up to five times when the database rolls it back in favour of another one.

        A caller that is cancelled leaves at once, and the change is made all the same: to interrupt it would cost the
        connection, and the next change is often the one that says why.
        """
        return await self._run(self._writes, change)

    async def execute(self, change: sa.Executable, parameters: Parameters = None) -> int:
        """Run one statement in a transaction. Returns how many rows it changed."""
        return await self.write(lambda connection: _execute(connection, change, parameters))

    async def execute_for(self, session_id: str, change: sa.Executable, parameters: Parameters = None) -> int:
        """As `execute`, for a row that belongs to a session. Raises StoreError for an unknown session."""

        def run(connection: sa.Connection) -> int:
            with self.require_session(session_id):
                return _execute(connection, change, parameters)

        return await self.write(run)

    @contextmanager
    def require_session(self, session_id: str) -> Generator[None]:
        """Raise StoreError for an unknown session when the block adds a row that belongs to it."""
        try:
            yield
        except exc.IntegrityError as e:
            if self.dialect.find_refusal(e.orig) == "missing parent":
                raise unknown_session_error(session_id) from e
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[RunInTransaction]:
        """A transaction whose parts come one by one; rolled back when the block raises."""
        async with self._writes.slots:
            with self._store_errors():
                connection = await self._writes.in_thread(self._engines.write.connect)
                try:
                    await self._writes.in_thread(connection.begin)
                    yield lambda work: self._writes.in_thread(lambda: work(connection))
                    await self._writes.in_thread(connection.commit)
                finally:
                    await self._writes.in_thread(connection.close)  # it rolls back what is not committed

    async def erase_deleted(self) -> bool:
        async with self._writes.slots:
            with self._store_errors():
                return await self._reads.in_thread(lambda: self.dialect.erase(self._engines.read))

    async def close(self) -> None:
        """Wait for what was begun, then close all connections. Every later call raises StoreError."""
        self._is_closed = True
        await asyncio.gather(*self._tasks)
        for lane in (self._writes, self._reads):
            await asyncio.to_thread(lane.threads.shutdown)
        for engine in (self._engines.write, self._engines.read):
            await asyncio.to_thread(engine.dispose)

    async def _run(self, lane: _Lane, work: Work[T]) -> T:
        with self._store_errors():
            result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            lane.pending.append(_PendingWork(work, result))
            task = asyncio.create_task(self._run_pending(lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return await result

    async def _run_pending(self, lane: _Lane) -> None:
        """Run the work that waits, as much as goes together. Another task may have taken it along already."""
        await asyncio.sleep(0)  # what is asked for at the same time, a call deeper, comes along
        async with lane.slots:
            batch = [lane.pending.popleft() for _ in range(min(len(lane.pending), lane.most))]
            while batch:
                error = await self._try_together(lane, batch)
                culprit = next((pending for pending in batch if pending.failed), None)
                answered = batch if culprit is None else [culprit]
                for pending in answered:
                    pending.answer(error)
                batch = [pending for pending in batch if pending not in answered]

    async def _try_together(self, lane: _Lane, batch: Sequence[_PendingWork]) -> BaseException | None:
        """Return why nothing of the batch was done, None when the transaction is committed."""
        error: BaseException | None = None
        for _ in range(_MAX_ATTEMPTS):
            running = lane.in_thread(lambda: lane.run_together(batch))
            await asyncio.wait([running])
            error = running.exception()
            if not (isinstance(error, exc.DBAPIError) and self.dialect.find_refusal(error.orig) == "conflict"):
                break
        return error

    @contextmanager
    def _store_errors(self) -> Generator[None]:
        if self._is_closed:
            raise StoreError("the session store is closed", "open it again")
        try:
            yield
        except exc.DBAPIError as e:
            raise self.dialect.to_store_error(e.orig) from e


def _execute(connection: sa.Connection, change: sa.Executable, parameters: Parameters) -> int:
    # SQLAlchemy forgets the row count of an INSERT unless it is told otherwise.
    options: CoreExecuteOptionsParameter = {"preserve_rowcount": True}
    return connection.execute(change, parameters, execution_options=options).rowcount
