"""One turn, played and timed in this process."""

import asyncio
import gc
import time
from collections.abc import Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from massmem.config.models import TeamConfig
from massmem.core.events import Event, TurnCompleted
from massmem.session.session import Session
from scripts.benches.process import BenchError

QUESTION = "How can many clocks keep in step"
"""32 characters."""

_NAP = 0.001
"""Seconds that the task sleeps which watches the event loop."""


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


@dataclass(slots=True)
class Played:
    """Seconds. wall: from asking to the last event; cpu: of the whole turn; around: opening and closing the session."""

    wall: float
    cpu: float
    around: float
    events: list[Event] = field(default_factory=list[Event])

    @property
    def requests(self) -> int:
        return self._end.usage.requests

    @property
    def _end(self) -> TurnCompleted:
        match self.events:
            case [*_, TurnCompleted() as end]:
                return end
            case _:
                raise BenchError(f"the turn did not complete: {self.events[-1:]}")


async def play(config: TeamConfig, home: Path) -> Played:
    """One turn in a new session."""
    opened = time.perf_counter()
    session = await Session.open(config, home=home)
    events: list[Event] = []
    start, cpu = time.perf_counter(), time.process_time()
    last = start
    try:
        async with aclosing(session.ask(QUESTION)) as stream:
            async for event in stream:
                events.append(event)
                last = time.perf_counter()
        cpu = time.process_time() - cpu
    finally:
        await session.close()
    return Played(last - start, cpu, start - opened + time.perf_counter() - last, events)


async def play_watched(config: TeamConfig, home: Path) -> tuple[Played, Stalls]:
    with watched() as stalls:
        played = await play(config, home)
    return played, stalls
