import asyncio
import os
import signal

import pytest

from massmem.cli.signals import Stopper


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_the_first_signal_asks_the_second_cancels(signum: signal.Signals, code: int):
    stopper, watched, asked = Stopper(), asyncio.Event(), asyncio.Event()

    async def turn() -> int:
        task = asyncio.current_task()
        assert task is not None
        with stopper.watching(task):
            stopper.on_first(lambda _: asked.set())
            watched.set()
            await asyncio.sleep(60)
        return 0

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    task = asyncio.create_task(turn())
    await watched.wait()
    os.kill(os.getpid(), signum)
    await asyncio.wait_for(asked.wait(), 10)
    assert not task.done()
    os.kill(os.getpid(), signum)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopper.exit_code == code
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_signal_before_the_turn_cancels():
    stopper = Stopper()

    async def opening() -> int:
        task = asyncio.current_task()
        assert task is not None
        with stopper.watching(task):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(10)
        return 0

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(opening())
    assert stopper.exit_code == 143
