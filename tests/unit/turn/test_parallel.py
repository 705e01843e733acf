import asyncio
from collections.abc import AsyncGenerator

import pytest

from massmem.events import Event, Notice
from massmem.turn.parallel import in_parallel

FOR_EVER = float("inf")


async def step(name: str, pauses: list[float], ended: list[str]) -> AsyncGenerator[Event, None]:
    try:
        for i, pause in enumerate(pauses):
            await asyncio.sleep(pause)
            yield Notice(message=f"{name}{i}")
    finally:
        ended.append(name)


async def told(merged: AsyncGenerator[Event, None]) -> list[str]:
    return [event.message async for event in merged if isinstance(event, Notice)]


async def test_events_come_as_they_are_made_and_so_many_steps_run_at_a_time():
    ended: list[str] = []
    steps = [step("a", [0.05, 0.05], ended), step("b", [0.02, 0.2], ended), step("c", [0], ended)]
    found = await told(in_parallel(steps, 2, FOR_EVER, lambda: False))
    assert sorted(found) == ["a0", "a1", "b0", "b1", "c0"]
    assert found.index("b0") < found.index("a0") < found.index("c0") < found.index("b1")
    assert sorted(ended) == ["a", "b", "c"]


async def test_when_it_is_over_the_rest_is_cut_off_and_what_was_said_is_kept():
    ended: list[str] = []
    found: list[str] = []
    steps = [step("a", [0.01, 30], ended), step("b", [30], ended)]
    async for event in in_parallel(steps, 2, FOR_EVER, lambda: bool(found)):
        assert isinstance(event, Notice)
        found.append(event.message)
    assert found == ["a0"]
    assert sorted(ended) == ["a", "b"]


async def test_past_the_deadline_steps_are_cut_off():
    ended: list[str] = []
    found: list[str] = []
    steps = [step("a", [0, 30], ended), step("b", [30], ended)]
    with pytest.raises(TimeoutError):
        async for event in in_parallel(steps, 2, asyncio.get_running_loop().time() + 0.1, lambda: False):
            assert isinstance(event, Notice)
            found.append(event.message)
    assert found == ["a0"]
    assert sorted(ended) == ["a", "b"]


async def test_closing_it_ends_every_step():
    ended: list[str] = []
    merged = in_parallel([step("a", [0, 30], ended), step("b", [0, 30], ended)], 2, FOR_EVER, lambda: False)
    await anext(merged)
    await merged.aclose()
    assert sorted(ended) == ["a", "b"]
