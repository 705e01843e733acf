"""Changes that wait for the disk together: one transaction, and each of them whole or absent."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import sqlalchemy as sa

from massmem.store.threads import Threads, Together

TABLE = sa.Table("found", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True))


class Writes:
    """A database file, and how many transactions it has had."""

    def __init__(self, path: Path) -> None:
        self.engine = sa.create_engine(f"sqlite:///{path}", pool_size=1, max_overflow=0)
        TABLE.metadata.create_all(self.engine)
        self.commits = 0
        sa.event.listen(self.engine, "commit", self._count)
        self.threads = Threads(self.engine, 1)
        self.together = Together(self.threads, self.engine, asyncio.Semaphore(1))

    def _count(self, _connection: sa.Connection) -> None:
        self.commits += 1

    async def add(self, number: int) -> int:
        def insert(connection: sa.Connection) -> int:
            connection.execute(sa.insert(TABLE), {"number": number})
            return number

        return await self.together.write(insert)

    async def numbers(self) -> list[int]:
        return await self.threads.read(self.engine, lambda c: [*c.execute(sa.select(TABLE.c.number)).scalars()])


@pytest.fixture
async def writes(tmp_path: Path) -> AsyncGenerator[Writes]:
    opened = Writes(tmp_path / "found.db")
    yield opened
    await opened.threads.close()


async def test_what_waits_together_is_one_transaction(writes: Writes) -> None:
    assert await asyncio.gather(*(writes.add(number) for number in range(40))) == list(range(40))
    assert await writes.numbers() == list(range(40))
    assert writes.commits <= 2
    assert await writes.add(99) == 99


async def test_one_that_fails_takes_no_other_with_it(writes: Writes) -> None:
    await writes.add(3)
    found = await asyncio.gather(*(writes.add(number) for number in range(6)), return_exceptions=True)
    assert [type(each) for each in found] == [int, int, int, sa.exc.IntegrityError, int, int]
    assert await writes.numbers() == list(range(6))
    with pytest.raises(sa.exc.IntegrityError):
        await writes.add(3)


async def test_whoever_has_gone_leaves_the_others_alone(writes: Writes) -> None:
    tasks = [asyncio.ensure_future(writes.add(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [each for each in found if isinstance(each, int)] == [0, 1, 3, 4]
    assert {0, 1, 3, 4} <= {*await writes.numbers()}


async def test_a_transaction_that_cannot_end_fails_for_all_of_it(writes: Writes) -> None:
    def no_end(_connection: sa.Connection) -> None:
        raise OSError("the disk is full")

    sa.event.listen(writes.engine, "commit", no_end)
    found = await asyncio.gather(*(writes.add(number) for number in range(3)), return_exceptions=True)
    assert [str(each) for each in found] == ["the disk is full"] * 3
    sa.event.remove(writes.engine, "commit", no_end)
    assert await writes.numbers() == []
    assert await writes.add(7) == 7


async def test_what_is_ahead_is_done_before_the_transaction_and_again_with_the_next(writes: Writes) -> None:
    seen: list[tuple[int, bool]] = []

    async def add(number: int) -> None:
        def ahead(connection: sa.Connection) -> None:
            seen.append((number, connection.in_transaction()))

        def insert(connection: sa.Connection) -> None:
            connection.execute(sa.insert(TABLE), {"number": number})

        await writes.together.write(insert, [ahead])

    await asyncio.gather(add(1), add(2))
    assert seen == [(1, False), (2, False)]
    found = await asyncio.gather(add(3), add(1), return_exceptions=True)
    assert [type(each) for each in found] == [type(None), sa.exc.IntegrityError]
    assert seen[2:] == [(3, False), (1, False), (3, False), (1, False)]
    assert await writes.numbers() == [1, 2, 3]
