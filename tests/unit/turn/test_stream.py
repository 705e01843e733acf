"""Merging the items of several steps: order, concurrency, the deadline, and cutting off."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from massmem.turn.stream import Checkpoint, merge

NEVER = float("inf")


async def step(name: str, pauses: list[float], ended: list[str]) -> AsyncGenerator[str, None]:
    try:
        for i, pause in enumerate(pauses):
            await asyncio.sleep(pause)
            yield f"{name}{i}"
    finally:
        ended.append(name)


async def test_items_come_in_time_order_with_limited_concurrency():
    ended: list[str] = []
    steps = [step("a", [0.05, 0.05], ended), step("b", [0.02, 0.2], ended), step("c", [0], ended)]
    items = [item async for item in merge(steps, 2, NEVER, lambda: False)]
    assert sorted(items) == ["a0", "a1", "b0", "b1", "c0"]
    assert items.index("b0") < items.index("a0") < items.index("c0") < items.index("b1")
    assert sorted(ended) == ["a", "b", "c"]


async def test_steps_are_cut_off_once_it_is_over():
    ended: list[str] = []
    items: list[str] = []
    steps = [step("a", [0.01, 30], ended), step("b", [30], ended)]
    async for item in merge(steps, 2, NEVER, lambda: bool(items)):
        items.append(item)
    assert items == ["a0"]
    assert sorted(ended) == ["a", "b"]


async def test_steps_are_cut_off_at_the_deadline():
    ended: list[str] = []
    items: list[str] = []
    steps = [step("a", [0, 30], ended), step("b", [30], ended)]
    with pytest.raises(TimeoutError):
        async for item in merge(steps, 2, asyncio.get_running_loop().time() + 0.1, lambda: False):
            items.append(item)
    assert items == ["a0"]
    assert sorted(ended) == ["a", "b"]


async def test_deadline_ends_steps_that_never_pause():
    async def endless() -> AsyncGenerator[int, None]:
        while True:
            yield 1
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        async for _ in merge([endless(), endless()], 2, asyncio.get_running_loop().time() + 0.1, lambda: False):
            await asyncio.sleep(0)


async def test_closing_the_stream_ends_every_step():
    ended: list[str] = []
    merged = merge([step("a", [0, 30], ended), step("b", [0, 30], ended)], 2, NEVER, lambda: False)
    await anext(merged)
    await merged.aclose()
    assert sorted(ended) == ["a", "b"]


async def test_error_of_one_step_harms_no_other():
    async def broken() -> AsyncGenerator[str, None]:
        yield "x"
        raise ValueError

    ended: list[str] = []
    items = [item async for item in merge([broken(), step("a", [0, 0.05], ended)], 2, NEVER, lambda: False)]
    assert sorted(items) == ["a0", "a1", "x"]


async def test_step_waits_at_a_checkpoint_and_others_go_on():
    passed: list[str] = []

    async def waiting() -> AsyncGenerator[str | Checkpoint, None]:
        checkpoint = Checkpoint()
        yield checkpoint
        await checkpoint.wait()
        passed.append("checkpoint")

    ended: list[str] = []
    checkpoints: list[Checkpoint] = []
    async for item in merge([waiting(), step("a", [0.01, 0.01], ended)], 2, NEVER, lambda: False):
        if isinstance(item, Checkpoint):
            checkpoints.append(item)
        elif item == "a1":
            assert passed == []
            checkpoints[0].confirm()
    assert passed == ["checkpoint"]
