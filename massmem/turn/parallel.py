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
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Event | None]()
    running = _Running(steps, asyncio.Semaphore(at_once), queue)
    left, late = len(steps), False
    try:
        while left and not over() and not late:
            if queue.empty():
                async with asyncio.timeout_at(deadline):
                    event = await queue.get()
            else:
                event, late = queue.get_nowait(), loop.time() > deadline
            if event is None:
                left -= 1
            else:
                yield event
    except TimeoutError:
        late = True
    finally:
        await running.end()
    while not queue.empty():
        if (event := queue.get_nowait()) is not None:
            yield event
    if late and left:
        raise TimeoutError


class _Running:
    """The tasks of some steps. What a step raises harms no other, and is told to nobody."""

    def __init__(
        self,
        steps: Sequence[AsyncGenerator[Event, None]],
        gate: asyncio.Semaphore,
        queue: asyncio.Queue[Event | None],
    ) -> None:
        """queue: gets what the steps yield, and None for each that has ended."""
        self._steps = list(reversed(steps))
        self._gate = gate
        self._queue = queue
        self._tasks: list[asyncio.Task[None]] = []
        self._next: asyncio.Handle | None = None
        self._start()

    async def end(self) -> None:
        """Cut off what still runs."""
        if self._next is not None:
            self._next.cancel()
        going = [task for task in self._tasks if not task.done()]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        for task in self._tasks:
            if not task.cancelled():
                task.exception()

    def _start(self) -> None:
        """One after the other: a request takes a millisecond to send, and the loop is free between any two."""
        self._next = None
        if self._steps:
            self._tasks.append(asyncio.create_task(self._run(self._steps.pop())))
        if self._steps:
            self._next = asyncio.get_running_loop().call_soon(self._start)

    async def _run(self, step: AsyncGenerator[Event, None]) -> None:
        try:
            async with self._gate, aclosing(step) as events:
                async for event in events:
                    self._queue.put_nowait(event)
        finally:
            self._queue.put_nowait(None)
