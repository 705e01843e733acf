"""Blocking work that may hang: in threads that nobody waits for at exit."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


async def detached(work: Callable[[], T]) -> T:
    """Like asyncio.to_thread, but nobody waits for the thread at exit: it may hang on a server that says nothing."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        with _HandedOver(loop, future):
            value = work()
            _hand_over(loop, future, lambda: future.set_result(value))

    threading.Thread(target=run, name="massmem-extraction", daemon=True).start()
    return await future


@dataclass(frozen=True, slots=True)
class _HandedOver(Generic[T]):
    """Whatever is raised inside belongs to the task that waits, not to this thread."""

    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[T]"

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            _hand_over(self.loop, self.future, partial(self.future.set_exception, error))
        return True


def _hand_over(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", end: Callable[[], None]) -> None:
    def unless_nobody_waits() -> None:
        if not future.done():
            end()

    with suppress(RuntimeError):  # the loop is closed: the process is about to exit
        loop.call_soon_threadsafe(unless_nobody_waits)
