"""Threads that nobody waits for hand over what they end with."""

import asyncio
import threading
import time

import pytest

from massmem.memory.detached import detached


async def test_a_result_is_handed_over():
    assert await detached(lambda: threading.current_thread().daemon) is True


async def test_a_failure_is_raised_where_it_is_awaited():
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        await detached(fail)


async def test_what_ends_too_late_is_dropped():
    ended = threading.Event()

    def slow() -> None:
        time.sleep(0.1)
        ended.set()
        raise ValueError("nobody waits")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(detached(slow), 0.01)
    await asyncio.to_thread(ended.wait, 5)
    await asyncio.sleep(0.05)


def test_what_ends_after_its_loop_is_dropped():
    go, threads = threading.Event(), set(threading.enumerate())

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(detached(lambda: go.wait(5)), 0.01)

    asyncio.run(leave())
    (left,) = (
        thread for thread in threading.enumerate() if thread not in threads and thread.name.startswith("massmem")
    )
    go.set()
    left.join(5)
    assert not left.is_alive()
