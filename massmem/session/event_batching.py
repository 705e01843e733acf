"""Gathers the events of a turn into batches, one transaction each, while the turn goes on."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from massmem.core.events import AgentDelta, Event
from massmem.turn.stream import Checkpoint

DELTA_SECONDS = 0.1
"""Seconds for which streamed text is gathered into one event, when nothing else happens meanwhile."""

_PASSES = 8
"""Passes of the event loop in which a batch takes in what follows at once. They take a hundredth of a transaction."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that are stored together."""

    events: list[Event]
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])

    def confirm(self) -> None:
        """The events are stored: let the turn go on."""
        for checkpoint in self.checkpoints:
            checkpoint.confirm()


async def batch_events(
    source: AsyncGenerator[Event | Checkpoint, None], stop: asyncio.Event
) -> AsyncGenerator[Batch, None]:
    """Gather what `source` yields into batches, while it goes on.

    A batch ends with the first event that is no streamed text, and what follows that at once. `stop` ends the source;
    what it has yielded until then is still in a batch.
    """
    items: list[Event | Checkpoint] = []
    arrived, urgent = asyncio.Event(), asyncio.Event()

    async def read_source() -> None:
        async with aclosing(source):
            async for item in source:
                items.append(item)
                arrived.set()
                if not isinstance(item, AgentDelta):
                    urgent.set()

    reading = asyncio.create_task(read_source())
    stopping = asyncio.create_task(stop.wait())
    stopping.add_done_callback(lambda _: reading.cancel())
    reading.add_done_callback(lambda _: (arrived.set(), urgent.set()))
    try:
        while items or not reading.done():
            await arrived.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(DELTA_SECONDS):
                    await urgent.wait()
            for _ in range(_PASSES if urgent.is_set() else 0):
                await asyncio.sleep(0)
            if not reading.done():
                arrived.clear()
                urgent.clear()
            events = join_deltas([item for item in items if not isinstance(item, Checkpoint)])
            batch = Batch(events, [item for item in items if isinstance(item, Checkpoint)])
            items.clear()
            if batch.events or batch.checkpoints:
                yield batch
        if not reading.cancelled():
            reading.result()
    finally:
        stopping.cancel()
        reading.cancel()
        await asyncio.gather(reading, stopping, return_exceptions=True)


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
