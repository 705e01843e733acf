import asyncio
import os
import signal

import pytest

from massmem.cli.terminal import ChatInterrupts, TurnStopper


async def sleep_forever() -> None:
    await asyncio.sleep(60)


async def wait_for(event: asyncio.Event) -> str:
    await event.wait()
    return "done"


def set_later(event: asyncio.Event) -> bool:
    event.set()
    return True


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_first_signal_stops_the_turn_and_second_cancels(signum: signal.Signals, code: int):
    stopper, watching, stopped = TurnStopper(), asyncio.Event(), asyncio.Event()

    async def turn() -> int:
        task = asyncio.current_task()
        assert task is not None
        with stopper.watch(task, lambda _: set_later(stopped)):
            watching.set()
            await sleep_forever()
        return 0

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    task = asyncio.create_task(turn())
    await watching.wait()
    os.kill(os.getpid(), signum)
    await asyncio.wait_for(stopped.wait(), 10)
    assert not task.done()
    os.kill(os.getpid(), signum)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopper.exit_code == code
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


async def test_signal_before_the_turn_cancels():
    stopper = TurnStopper()

    async def open_session() -> int:
        task = asyncio.current_task()
        assert task is not None
        with stopper.watch(task, lambda _: False):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(10)
        return 0

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(open_session())
    assert stopper.exit_code == 143


async def test_uninterrupted_work_returns_its_result():
    async def work() -> int:
        return 7

    interrupts = ChatInterrupts()
    assert await interrupts.run(work()) == 7
    assert interrupts.exit_code is None


async def test_press_cancels_work_without_a_handler():
    interrupts = ChatInterrupts()
    with interrupts.watch():
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        assert await interrupts.run(sleep_forever()) is None
    assert interrupts.exit_code is None


async def test_second_press_soon_after_the_first_quits():
    interrupts, stopped = ChatInterrupts(), asyncio.Event()
    running = asyncio.create_task(interrupts.run(sleep_forever(), lambda: set_later(stopped)))
    await asyncio.sleep(0)
    interrupts.press()
    await asyncio.wait_for(stopped.wait(), 5)
    assert not running.done()
    interrupts.press()
    assert await running is None
    assert interrupts.exit_code == 130


async def test_second_press_much_later_does_not_quit():
    interrupts, stopped = ChatInterrupts(double_press=0.05), asyncio.Event()
    running = asyncio.create_task(interrupts.run(wait_for(stopped), lambda: set_later(stopped)))
    await asyncio.sleep(0)
    interrupts.press()
    assert await running == "done"
    await asyncio.sleep(0.1)
    interrupts.press()
    assert interrupts.exit_code is None


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_quit_signal_ends_work_in_good_order(signum: signal.Signals, code: int):
    interrupts, ended = ChatInterrupts(), asyncio.Event()
    with interrupts.watch():
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signum)
        assert await interrupts.run(wait_for(ended), lambda: True, lambda: set_later(ended)) == "done"
        assert interrupts.exit_code == code
        assert await interrupts.run(sleep_forever()) is None, "no work starts any more"
        assert await interrupts.run(wait_for(ended), after_quit=True) == "done", "except what closes the session"


async def test_handlers_are_restored_and_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handler = signal.getsignal(signal.SIGINT)
        with ChatInterrupts().watch():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not handler
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGHUP, before)
