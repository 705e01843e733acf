"""Several streams of events as one, as they come."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from massmem.events import Event


async def in_parallel(
    steps: Sequence[AsyncGenerator[Event, None]], at_once: int, deadline: float, over: Callable[[], bool]
) -> AsyncGenerator[Event, None]:
    """Merge the events of all steps, `at_once` of them running at a time.

    over: asked after each event; once it is true the steps that still run are cut off. What they had said until then
    is yielded.

    Raises TimeoutError: `deadline`, by the clock of the event loop, has passed; the steps were cut off.
    """
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    starter = asyncio.create_task(_started(steps, asyncio.Semaphore(at_once), queue))
    running, late = len(steps), False
    try:
        while running and not over():
            async with asyncio.timeout_at(deadline):
                event = await queue.get()
            if event is None:
                running -= 1
            else:
                yield event
    except TimeoutError:
        late = True
    finally:
        starter.cancel()
        await asyncio.gather(starter, return_exceptions=True)
    while not queue.empty():
        if (event := queue.get_nowait()) is not None:
            yield event
    if late:
        raise TimeoutError


async def _started(
    steps: Sequence[AsyncGenerator[Event, None]], gate: asyncio.Semaphore, queue: asyncio.Queue[Event | None]
) -> None:
    """Run all steps to their end; None in the queue for each that has ended. Cancelled: they are, too."""

    async def pump(step: AsyncGenerator[Event, None]) -> None:
        try:
            async with gate, aclosing(step) as events:
                async for event in events:
                    queue.put_nowait(event)
        finally:
            queue.put_nowait(None)

    tasks: list[asyncio.Task[None]] = []
    try:
        for step in steps:
            tasks.append(asyncio.create_task(pump(step)))
            await asyncio.sleep(0)  # a request takes a millisecond to send; the loop is free between any two
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
