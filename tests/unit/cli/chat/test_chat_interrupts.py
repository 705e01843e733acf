import asyncio
import os
import signal

import pytest

from massmem.cli.chat.interrupts import TWICE, Interrupts


async def forever() -> str:
    await asyncio.sleep(60)
    return "slept"


async def until(done: asyncio.Event) -> str:
    await done.wait()
    return "done"


async def test_work_that_is_not_interrupted_gives_its_result():
    async def work() -> int:
        return 7

    interrupts = Interrupts()
    assert await interrupts.run(work()) == 7
    assert interrupts.exit_code is None


async def test_a_signal_cancels_work_that_cannot_be_stopped_otherwise():
    interrupts = Interrupts()
    with interrupts.handled():
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        assert await interrupts.run(forever()) is None
    assert interrupts.exit_code is None


async def test_the_first_asks_and_the_second_within_two_seconds_quits():
    interrupts, asked = Interrupts(), asyncio.Event()

    def stop() -> bool:
        asked.set()
        return True

    running = asyncio.create_task(interrupts.run(forever(), stop))
    await asyncio.sleep(0)
    interrupts.press()
    await asyncio.wait_for(asked.wait(), 5)
    assert not running.done()
    interrupts.press()
    assert await running is None
    assert interrupts.exit_code == 130


async def test_two_that_are_far_apart_do_not_quit():
    interrupts, stopped = Interrupts(), asyncio.Event()

    def stop() -> bool:
        stopped.set()
        return True

    assert TWICE == 2.0
    running = asyncio.create_task(interrupts.run(until(stopped), stop))
    await asyncio.sleep(0)
    interrupts.press()
    assert await running == "done"
    await asyncio.sleep(TWICE + 0.05)
    interrupts.press()
    assert interrupts.exit_code is None


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_that_ends_the_program_ends_work_in_good_order(signum: signal.Signals, code: int):
    interrupts, ended = Interrupts(), asyncio.Event()

    def end() -> bool:
        ended.set()
        return True

    with interrupts.handled():
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signum)
        assert await interrupts.run(until(ended), lambda: True, end) == "done"
        assert interrupts.exit_code == code
        assert await interrupts.run(forever()) is None, "nothing is begun any more"
        assert await interrupts.run(until(ended), last=True) == "done", "but what is open is closed"


async def test_handlers_are_put_back_and_an_ignored_hang_up_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        old = signal.getsignal(signal.SIGINT)
        with Interrupts().handled():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not old
        assert signal.getsignal(signal.SIGINT) is old
    finally:
        signal.signal(signal.SIGHUP, before)
