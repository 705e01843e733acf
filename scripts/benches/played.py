"""One turn, played and timed in this process.

As a program, `python -m scripts.benches.played TEAM HOME`, it plays the first turn of a process, watches the event
loop and prints what it saw as JSON: everything that massmem imports on the way is then still to be imported.
"""

import asyncio
import json
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from massmem.config.models import TeamConfig
from massmem.core.events import Event, TurnCompleted
from massmem.session.session import Session
from scripts.benches.process import BenchError
from scripts.benches.stalls import Stalls, watched

QUESTION = "How can many clocks keep in step"
"""32 characters."""


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


def main() -> None:
    config = TeamConfig.model_validate(json.loads(sys.argv[1]))
    played, stalls = asyncio.run(play_watched(config, Path(sys.argv[2])))
    seen = {"wall": played.wall, "requests": played.requests, "longest": stalls.longest, "gc": stalls.gc}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
