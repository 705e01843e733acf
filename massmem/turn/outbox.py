"""The events of a running turn on their way to the log."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from massmem.core.events import AgentDelta, Event

T = TypeVar("T")

DELTA_SECONDS = 0.1
"""Seconds for which streamed text is gathered into one event, when nothing else happens meanwhile."""

_PASSES = 8
"""Passes of the event loop in which a batch takes in what follows at once. They take a hundredth of a transaction."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that are stored together."""

    events: list[Event]
    waiting: list[asyncio.Event]
    """Of those who wait until the events are stored."""

    def confirm(self) -> None:
        """The events are stored: let the turn go on."""
        for stored in self.waiting:
            stored.set()


class Outbox:
    """Takes the events of all parts of a turn. Whoever runs the turn takes them out, stores them, and confirms that."""

    def __init__(self) -> None:
        self.on_event: Callable[[Event], None] = lambda _: None
        """Is called with each event as soon as it is emitted."""
        self._events: list[Event] = []
        self._waiting: list[asyncio.Event] = []
        self._arrived, self._urgent = asyncio.Event(), asyncio.Event()

    def emit(self, event: Event) -> None:
        self._events.append(event)
        self.on_event(event)
        self._arrived.set()
        if not isinstance(event, AgentDelta):
            self._urgent.set()

    async def wait_until_stored(self) -> None:
        """Wait until all events so far are stored.

        What comes next rests on what came before: a request on the answers of the round before, a tool on its call.
        """
        stored = asyncio.Event()
        self._waiting.append(stored)
        self._arrived.set()
        self._urgent.set()
        await stored.wait()

    async def run(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[Batch, None]:
        """Run what emits the events, and yield them in batches meanwhile. Raises as the work.

        A batch ends with the first event that is no streamed text, and what follows that at once.
        """
        working = asyncio.create_task(work)
        working.add_done_callback(lambda _: (self._arrived.set(), self._urgent.set()))
        try:
            while self._events or self._waiting or not working.done():
                await self._arrived.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(DELTA_SECONDS):
                        await self._urgent.wait()
                for _ in range(_PASSES if self._urgent.is_set() else 0):
                    await asyncio.sleep(0)
                if not working.done():
                    self._arrived.clear()
                    self._urgent.clear()
                batch = Batch(join_deltas(self._events), self._waiting)
                self._events, self._waiting = [], []
                if batch.events or batch.waiting:
                    yield batch
            working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def join_deltas(events: Sequence[Event]) -> list[Event]:
    """Return the events with neighbouring deltas of one agent and channel joined into one.

    Deltas of different agents may move past each other, never past another event.
    """
    joined: list[Event] = []
    position: dict[tuple[str, str], int] = {}
    for event in events:
        if not isinstance(event, AgentDelta):
            position.clear()
            joined.append(event)
            continue
        index = position.setdefault((event.agent_id, event.channel), len(joined))
        if index == len(joined):
            joined.append(event)
        else:
            first = joined[index]
            assert isinstance(first, AgentDelta)
            joined[index] = first.model_copy(update={"text": first.text + event.text})
    return joined


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work; None: `stop` was set before, and it was cancelled. Raises as the work."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
