"""Ends this process when a signal does not: an expression or a parser in C keeps Python's own handlers from running."""

import faulthandler
import os
import signal
import subprocess
import sys

_WATCH = """
import os, select, signal, sys, time
if os.read(0, 65536):
    end = time.monotonic() + float(sys.argv[2])
    while (left := end - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0] and not os.read(0, 65536):
            sys.exit()
    os.kill(int(sys.argv[1]), signal.SIGKILL)
"""
"""Waits for the first byte, then for the end of the pipe: the process has ended by itself."""

_watchers: list[subprocess.Popen[bytes]] = []


def end_in_time(seconds: float) -> None:
    """Let SIGTERM and SIGINT end this process within so many seconds, whatever it is doing.

    The handler of faulthandler is in C, and runs at once: it writes to a small process, which waits and kills. Call
    this when all other handlers are set: they go on to run, but each that is set later would replace this one.
    """
    if _watchers or not hasattr(faulthandler, "register"):  # Windows
        return
    command = [sys.executable, "-I", "-S", "-c", _WATCH, str(os.getpid()), str(seconds)]
    # A session of its own: Ctrl-C in a terminal is not for it.
    watcher = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert watcher.stdin is not None
    _watchers.append(watcher)
    for number in (signal.SIGTERM, signal.SIGINT):
        faulthandler.register(number, watcher.stdin, all_threads=False, chain=True)
