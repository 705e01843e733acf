"""Large libraries, loaded beside the event loop."""

import asyncio
import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


async def loaded(load: Callable[[], T]) -> T:
    """What `load` returns, which imports a library: in a thread, and the event loop goes on. Raises what it does."""
    return await asyncio.to_thread(_uninterrupted, load)


def _uninterrupted(load: Callable[[], T]) -> T:
    with without_collections():
        return load()


@contextmanager
def without_collections() -> Generator[None]:
    """Load a library in the block without garbage collections.

    They would walk the growing module graph again and again and stop the event loop for 30 ms each. What is loaded
    then stays out of later ones, since it lives as long as the process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
