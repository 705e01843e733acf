"""The stream of a turn: several agents' events as one, and the points at which it waits for the log."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")


class Checkpoint:
    """A point in the stream that is passed once everything before it is stored.

    What comes after it rests on what came before: a request on the answers of the round before, a tool on its call.
    Whoever reads the stream calls `confirm`; whoever writes it yields the checkpoint and then waits for it.
    """

    def __init__(self) -> None:
        self._stored = asyncio.Event()

    def confirm(self) -> None:
        """Everything before this point is stored."""
        self._stored.set()

    async def wait(self) -> None:
        await self._stored.wait()


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


async def merge(
    steps: Sequence[AsyncGenerator[T, None]],
    max_concurrency: int,
    deadline: float,
    is_over: Callable[[], bool],
    interruptions: Sequence[Callable[[], Coroutine[Any, Any, T]]] = (),
) -> AsyncGenerator[T, None]:
    """Yield the items of all steps as they come; `max_concurrency` steps run at a time.

    deadline: by the clock of the event loop. is_over: asked after each item; once it is true, the steps are cut off.
    What they had yielded until then is still yielded. What a step raises harms no other step, and is lost.
    interruptions: each waits for something; its result is one more item, when it comes before the steps end.

    Raises:
        TimeoutError: the deadline passed before all steps ended.
    """
    queue = asyncio.Queue[T | None]()
    gate = asyncio.Semaphore(max_concurrency)
    tasks = [asyncio.create_task(_run(step, gate, queue)) for step in steps]
    clock = asyncio.get_running_loop().time
    running, late = len(tasks), False
    tasks += [asyncio.create_task(_interrupt(wait, queue)) for wait in interruptions]
    try:
        while running and not is_over():
            if clock() > deadline:  # items that are there already are got without a look at the clock
                raise TimeoutError
            async with asyncio.timeout_at(deadline):
                item = await queue.get()
            if item is None:
                running -= 1
            else:
                yield item
    except TimeoutError:
        late = True
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    while not queue.empty():
        if (item := queue.get_nowait()) is not None:
            yield item
    if late:
        raise TimeoutError


async def _interrupt(wait: Callable[[], Coroutine[Any, Any, T]], queue: asyncio.Queue[T | None]) -> None:
    queue.put_nowait(await wait())


async def _run(step: AsyncGenerator[T, None], gate: asyncio.Semaphore, queue: asyncio.Queue[T | None]) -> None:
    """Put the items of a step into the queue, and None after the last one."""
    try:
        async with gate, aclosing(step) as items:
            async for item in items:
                queue.put_nowait(item)
    finally:
        queue.put_nowait(None)
