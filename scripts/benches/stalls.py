"""How long an event loop was held up: by a task that sleeps one millisecond and looks how late it wakes."""

import asyncio
import gc
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_NAP = 0.001


@dataclass(slots=True)
class Stalls:
    """Seconds. longest: the latest that a wake-up came; gc: the longest collection of garbage, a part of it."""

    longest: float = 0.0
    gc: float = 0.0


class _Collections:
    """Times the garbage collector's runs."""

    def __init__(self, stalls: Stalls) -> None:
        self._stalls = stalls
        self._start = 0.0

    def __call__(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self._stalls.gc = max(self._stalls.gc, time.perf_counter() - self._start)


@contextmanager
def watched() -> Generator[Stalls]:
    """Watch the running event loop. The watching costs CPU: measure that without it."""
    stalls = Stalls()
    collections = _Collections(stalls)
    gc.callbacks.append(collections)
    task = asyncio.get_running_loop().create_task(_watch(stalls))
    try:
        yield stalls
    finally:
        task.cancel()
        gc.callbacks.remove(collections)


async def _watch(stalls: Stalls) -> None:
    with suppress(asyncio.CancelledError):
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_NAP)
            stalls.longest = max(stalls.longest, time.perf_counter() - before - _NAP)


async def idle(seconds: float) -> Stalls:
    """What the machine alone does to a loop that has nothing to do: the noise of the figures above."""
    with watched() as stalls:
        await asyncio.sleep(seconds)
    return stalls
