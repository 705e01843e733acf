"""Events gathered into batches: one transaction each, while the turn goes on."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from massmem.events import AgentDelta, Event

DELTA_PACE = 0.1
"""Seconds for which streamed text is gathered into one event, when nothing else happens meanwhile."""

_PASSES = 8
"""Passes of the event loop that a batch waits for what follows at once: they take a hundredth of a transaction."""


async def batches(source: AsyncGenerator[Event, None], stop: asyncio.Event) -> AsyncGenerator[list[Event], None]:
    """Gather what `source` yields into batches, one transaction each, while it goes on producing.

    A batch ends as soon as anything but streamed text is in it, with what follows that at once. `stop` ends the source
    and the batches; what was produced until then is still yielded.
    """
    ready: list[Event] = []
    wake, urgent = asyncio.Event(), asyncio.Event()

    async def pump() -> None:
        async with aclosing(source) as events:
            async for event in events:
                ready.append(event)
                wake.set()
                if not isinstance(event, AgentDelta):
                    urgent.set()

    async def watch_stop() -> None:
        await stop.wait()
        task.cancel()

    task = asyncio.create_task(pump())
    watcher = asyncio.create_task(watch_stop())
    task.add_done_callback(lambda _: (wake.set(), urgent.set()))
    try:
        while not (task.done() and not ready):
            await wake.wait()
            if await _is_set(urgent, DELTA_PACE):
                await _what_follows(task)
            wake.clear()
            if not task.done():
                urgent.clear()
            batch, ready = joined(ready), []
            if batch:
                yield batch
        if not task.cancelled():
            task.result()
    finally:
        watcher.cancel()
        task.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _what_follows(task: asyncio.Task[None]) -> None:
    """Let the source go on as far as it can at once."""
    for _ in range(_PASSES):
        if task.done():
            return
        await asyncio.sleep(0)


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event`, `seconds` at most."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()


def joined(events: Sequence[Event]) -> list[Event]:
    """The same events with neighbouring deltas of one agent and channel made one.

    Deltas of different agents may be moved past each other, never past another event.
    """
    result: list[Event] = []
    open_: dict[tuple[str, str], int] = {}
    for event in events:
        if not isinstance(event, AgentDelta):
            open_.clear()
            result.append(event)
            continue
        place = open_.setdefault((event.agent_id, event.channel), len(result))
        if place == len(result):
            result.append(event)
        else:
            first = result[place]
            assert isinstance(first, AgentDelta)
            result[place] = first.model_copy(update={"text": first.text + event.text})
    return result
