"""Several processes on one address: those that die are started again, all end when this one is told to."""

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from socket import socket
from types import FrameType

log = logging.getLogger(__name__)

CANNOT_START = 3
"""Exit code of a process that would fail the same way again."""

_LOOK = 0.2
_PAUSE = 1.0
"""Seconds between two starts of a process that does not live for long."""

_spawn = multiprocessing.get_context("spawn")


def supervise(work: Callable[[socket], None], listening: socket, processes: int, died: Callable[[int], None]) -> bool:
    """Run `work` in so many processes, until SIGTERM or SIGINT. died: told the id of one that is started again.

    Returns False when one of them cannot start: then all have ended.
    """
    told = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        running = [_started(work, listening) for _ in range(processes)]
        good = _watch(running, lambda: _started(work, listening), told, died)
        for each in running:
            if each.is_alive():
                each.terminate()
        for each in running:
            each.join()
        return good
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(
    running: list[SpawnProcess],
    start: Callable[[], SpawnProcess],
    told: threading.Event,
    died: Callable[[int], None],
) -> bool:
    started = [time.monotonic()] * len(running)
    while not told.wait(_LOOK):
        for place, each in enumerate(running):
            if each.is_alive():
                continue
            each.join()
            if each.exitcode == CANNOT_START:
                return False
            if time.monotonic() - started[place] < _PAUSE:
                continue
            log.warning("a process has died (exit code %s) and is started again", each.exitcode)
            died(each.pid or 0)
            running[place], started[place] = start(), time.monotonic()
    return True


def _started(work: Callable[[socket], None], listening: socket) -> SpawnProcess:
    process = _spawn.Process(target=work, args=(listening,))
    process.start()
    return process
