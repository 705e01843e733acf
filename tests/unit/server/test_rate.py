"""Requests within a minute: counted in the process."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.server.rate import Counted


@dataclass
class Clock:
    at: float = 600.0

    def __call__(self) -> float:
        return self.at


async def allowed(counted: Counted, times: int, name: str = "alice") -> int:
    return [await counted.hit(name) for _ in range(times)].count(None)


async def test_so_many_in_a_minute_for_each_name() -> None:
    counted = Counted(5, Clock())
    assert await allowed(counted, 8) == 5
    assert await allowed(counted, 8, "bob") == 5


async def test_a_burst_at_the_turn_of_a_minute_gains_nothing() -> None:
    clock = Clock(659.0)
    counted = Counted(10, clock)
    assert await allowed(counted, 20) == 10
    clock.at = 661.0
    assert await allowed(counted, 20) == 1
    clock.at = 690.0
    assert await allowed(counted, 20) == 4  # of the ten five still count, and the one since


@pytest.mark.parametrize("later", [120.0, 3_600.0, -600.0])
async def test_what_lies_further_back_is_forgotten(later: float) -> None:
    clock = Clock()
    counted = Counted(5, clock)
    await allowed(counted, 5)
    clock.at += later
    assert await allowed(counted, 8) == 5


@given(st.integers(1, 50), st.lists(st.tuples(st.floats(0, 70), st.integers(1, 60)), min_size=1, max_size=20))
async def test_whoever_waits_as_long_as_told_is_let_in(most: int, steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    counted = Counted(most, clock)
    for pause, times in steps:
        clock.at += pause
        for _ in range(times):
            await counted.hit("alice")
        wait = await counted.hit("alice")
        if wait is not None:
            assert 1 <= wait <= 61
            clock.at += wait
            assert await counted.hit("alice") is None
