import asyncio
import gc
import threading

import pytest

from massmem.loading import loaded


async def test_a_library_is_loaded_beside_the_event_loop_and_without_collections():
    def load() -> tuple[str, bool]:
        return threading.current_thread().name, gc.isenabled()

    name, collecting = await loaded(load)
    assert name != threading.current_thread().name
    assert not collecting
    assert gc.isenabled()


async def test_what_it_raises_is_raised_and_collections_go_on():
    def load() -> None:
        raise ModuleNotFoundError("redis")

    with pytest.raises(ModuleNotFoundError, match="redis"):
        await asyncio.wait_for(loaded(load), 10)
    assert gc.isenabled()
