"""Group commit: changes that wait together share a transaction, and each is stored or refused as if it were alone.

Reads that wait together share a connection.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from massmem.core.errors import StoreError
from massmem.store import open_store
from massmem.store.sql.database import Database, Engines
from massmem.store.sqlite import SqliteDialect

TABLE = sa.Table("numbers", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))


class Numbers:
    """A table of numbers, and how many transactions were committed."""

    def __init__(self, path: Path) -> None:
        self.write = sa.create_engine(f"sqlite:///{path}", pool_size=1, max_overflow=0)
        read = sa.create_engine(f"sqlite:///{path}", pool_size=1, max_overflow=0)
        TABLE.metadata.create_all(self.write)
        self.commits = self.reads = 0
        sa.event.listen(self.write, "commit", self._count)
        sa.event.listen(read, "checkout", self._count_read)
        self.database = Database(Engines(self.write, 1, read, 1, group_commit=64), SqliteDialect(path))

    def _count(self, _connection: sa.Connection) -> None:
        self.commits += 1

    def _count_read(self, *_: object) -> None:
        self.reads += 1

    async def add(self, number: int) -> int:
        def insert(connection: sa.Connection) -> int:
            connection.execute(sa.insert(TABLE), {"number": number})
            return number

        return await self.database.write(insert)

    async def read(self) -> list[int]:
        return [row["number"] for row in await self.database.fetch(sa.select(TABLE))]


@pytest.fixture
async def numbers(tmp_path: Path) -> AsyncGenerator[Numbers]:
    opened = Numbers(tmp_path / "numbers.db")
    yield opened
    await opened.database.close()


async def test_changes_that_wait_together_are_one_transaction(numbers: Numbers) -> None:
    assert await asyncio.gather(*(numbers.add(number) for number in range(40))) == list(range(40))
    assert await numbers.read() == list(range(40))
    assert numbers.commits <= 2
    assert await numbers.add(99) == 99


async def test_change_that_fails_takes_no_other_along(numbers: Numbers) -> None:
    await numbers.add(3)
    results = await asyncio.gather(*(numbers.add(number) for number in range(6)), return_exceptions=True)
    assert [type(result) for result in results] == [int, int, int, StoreError, int, int]
    assert await numbers.read() == list(range(6))
    with pytest.raises(StoreError):
        await numbers.add(3)


async def test_two_changes_that_fail_take_no_other_along(numbers: Numbers) -> None:
    results = await asyncio.gather(*(numbers.add(number) for number in (1, 1, 2, 1, 3)), return_exceptions=True)
    assert [type(result) for result in results] == [int, StoreError, int, StoreError, int]
    assert await numbers.read() == [1, 2, 3]


async def test_reads_that_wait_together_share_a_connection_and_not_their_errors(numbers: Numbers) -> None:
    await numbers.add(1)
    assert await asyncio.gather(*(numbers.read() for _ in range(12))) == [[1]] * 12
    assert numbers.reads == 1
    unknown = numbers.database.fetch(sa.text("SELECT number FROM nowhere"))
    results = await asyncio.gather(numbers.read(), unknown, numbers.read(), return_exceptions=True)
    assert [type(result) for result in results] == [list, StoreError, list]


async def test_cancelled_caller_leaves_the_others_alone(numbers: Numbers) -> None:
    tasks = [asyncio.ensure_future(numbers.add(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in results if isinstance(result, int)] == [0, 1, 3, 4]
    assert await numbers.read() == list(range(5)), "the change of a caller that left is made all the same"


async def test_transaction_that_cannot_commit_fails_for_every_change(numbers: Numbers) -> None:
    def refuse(_connection: sa.Connection) -> None:
        raise OSError("the disk is full")

    sa.event.listen(numbers.write, "commit", refuse)
    results = await asyncio.gather(*(numbers.add(number) for number in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["the disk is full"] * 3
    sa.event.remove(numbers.write, "commit", refuse)
    assert await numbers.read() == []
    assert await numbers.add(7) == 7


async def test_open_transaction_keeps_other_changes_waiting(numbers: Numbers) -> None:
    async with numbers.database.transaction() as run:
        waiting = asyncio.create_task(numbers.add(2))
        await run(lambda connection: connection.execute(sa.insert(TABLE), {"number": 1}))
        await asyncio.sleep(0.01)
        assert not waiting.done()
    assert await waiting == 2
    with suppress(ZeroDivisionError):
        async with numbers.database.transaction() as run:
            await run(lambda connection: connection.execute(sa.insert(TABLE), {"number": 3}))
            raise ZeroDivisionError
    assert await numbers.read() == [1, 2]


async def test_close_waits_for_changes_that_were_begun(numbers: Numbers) -> None:
    adding = asyncio.create_task(numbers.add(1))
    await asyncio.sleep(0)
    await numbers.database.close()
    assert await adding == 1


async def test_call_after_the_end_is_refused(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'store.db'}", tmp_path)
    await store.close()
    for call in (
        store.acquire_lease("s", "ann", 5),
        store.renew_lease("s", "ann", 5),
        store.release_lease("s", "ann"),
        store.get_lease_owner("s"),
        store.rename_session("s", "Sky"),
        store.get_session("s"),
    ):
        with pytest.raises(StoreError, match="closed"):
            await asyncio.wait_for(call, 5)
    await store.close()
