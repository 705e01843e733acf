"""Reads that wait for a thread together: one way there, and each as if it were alone."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from massmem.store.prepared import Statement
from massmem.store.reads import Reads
from massmem.store.threads import Threads

NUMBER = Statement(sa.select(sa.bindparam("number", type_=sa.Integer).label("it")))
NOTHING = Statement(sa.select(sa.text("it from nowhere")))


class Counted:
    """A database file without tables, and how often a connection was taken for reading."""

    def __init__(self, path: Path) -> None:
        self.engine = sa.create_engine(f"sqlite:///{path}", pool_size=2, max_overflow=0)
        self.taken = 0
        sa.event.listen(self.engine, "checkout", self._count)
        self.threads = Threads(self.engine, 2)
        self.reads = Reads(self.threads, self.engine, 1)

    def _count(self, *_: object) -> None:
        self.taken += 1

    async def number(self, number: int) -> int:
        return (await self.reads.read(partial(NUMBER.rows, parameters={"number": number})))[0]["it"]

    async def nothing(self) -> int:
        return len(await self.reads.read(partial(NOTHING.rows, parameters={})))


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncGenerator[Counted]:
    opened = Counted(tmp_path / "found.db")
    yield opened
    await opened.threads.close()


async def test_what_waits_together_takes_one_connection(counted: Counted) -> None:
    assert await asyncio.gather(*(counted.number(n) for n in range(30))) == list(range(30))
    assert counted.taken == 1
    assert await counted.number(99) == 99


async def test_one_that_fails_takes_no_other_with_it(counted: Counted) -> None:
    reads = [counted.number(1), counted.nothing(), counted.number(2), counted.nothing(), counted.number(3)]
    found = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(each) for each in found] == [int, sa.exc.DBAPIError, int, sa.exc.DBAPIError, int]
    with pytest.raises(sa.exc.DBAPIError):
        await counted.nothing()
    assert await counted.number(4) == 4


async def test_one_that_is_given_up_leaves_the_others_as_they_are(counted: Counted) -> None:
    others = [asyncio.create_task(counted.number(n)) for n in range(5)]
    given_up = asyncio.create_task(counted.number(99))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await asyncio.gather(*others) == list(range(5))
    assert await counted.number(6) == 6
