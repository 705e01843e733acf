"""A service whose store may be away when it starts: it is alive, says that it is not ready, and tries again."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeVar

from massmem.errors import MassmemError, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN = 2.0
"""Seconds between two attempts."""


@asynccontextmanager
async def kept_trying(
    make: Callable[[], AbstractAsyncContextManager[T]], opened: Callable[[T], None]
) -> AsyncGenerator[None]:
    """Open what `make` makes, now or as soon as its store is there, and close it at the end of the block.

    opened: called with it, once. Raises what keeps it from opening, unless that is a store that cannot be reached.
    """
    tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ending = asyncio.Event()
    task = asyncio.create_task(_keep_trying(make, opened, tried, ending))
    try:
        await asyncio.wait({tried, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield
    finally:
        ending.set()
        await asyncio.wait({task})
    task.result()


async def _keep_trying(
    make: Callable[[], AbstractAsyncContextManager[T]],
    opened: Callable[[T], None],
    tried: asyncio.Future[None],
    ending: asyncio.Event,
) -> None:
    while not ending.is_set():
        try:
            async with make() as made:
                opened(made)
                if not tried.done():
                    tried.set_result(None)
                await ending.wait()
                return
        except StoreUnavailable as e:
            log.error("the store cannot be reached, and is tried again: %s", e.message)  # noqa: TRY400 - says all
        except MassmemError as e:
            if not tried.done():
                raise
            log.error("the service cannot be opened: %s", e.message)  # noqa: TRY400 - the message says all
        if not tried.done():
            tried.set_result(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN):
                await ending.wait()
