"""Ctrl-C, SIGTERM and SIGHUP: how they end a turn and the program."""

import asyncio
import math
import signal
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_HANG_UP = 129
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
EXIT_CODES = {signal.SIGHUP: EXIT_HANG_UP, signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}
DOUBLE_PRESS = 2.0
"""Seconds within which a second Ctrl-C quits a conversation."""


@contextmanager
def handle_signals(signums: Iterable[signal.Signals], callback: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call `callback` in the running event loop for each of these signals, until the end of the block."""
    loop = asyncio.get_running_loop()

    def handle(number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback, signal.Signals(number))

    previous = {signum: signal.signal(signum, handle) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


class TurnStopper:
    """For one question: the first Ctrl-C or SIGTERM stops the turn in good order, the second cancels the task."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        """Set once a signal has arrived."""
        self._stop: Callable[[signal.Signals], None] | None = None

    def on_first(self, stop: Callable[[signal.Signals], None]) -> None:
        """Set what stops the turn; before that, the first signal cancels the task."""
        self._stop = stop

    @contextmanager
    def watch(self, task: asyncio.Task[int]) -> Generator[None]:
        """Handle signals until the end of the block."""
        with handle_signals((signal.SIGINT, signal.SIGTERM), lambda signum: self._receive(signum, task)):
            yield

    def _receive(self, signum: signal.Signals, task: asyncio.Task[int]) -> None:
        is_first = self.exit_code is None
        self.exit_code = self.exit_code or EXIT_CODES[signum]
        if is_first and self._stop is not None:
            self._stop(signum)
        else:
            task.cancel()


class ChatInterrupts:
    """For a conversation: Ctrl-C stops the current work, pressed twice it quits; SIGTERM and SIGHUP quit."""

    def __init__(self, double_press: float = DOUBLE_PRESS) -> None:
        self.exit_code: int | None = None
        """Set once a signal has asked the program to quit."""
        self._double_press = double_press
        self._last_press = -math.inf
        self._task: asyncio.Task[Any] | None = None
        self._on_press: Callable[[], bool] | None = None
        self._on_quit: Callable[[], bool] | None = None

    @contextmanager
    def watch(self) -> Generator[None]:
        """Handle signals until the end of the block; a signal that is ignored stays ignored."""
        signums = [s for s in EXIT_CODES if signal.getsignal(s) is not signal.SIG_IGN]
        with handle_signals(signums, self._receive):
            yield

    async def run(
        self,
        work: Coroutine[Any, Any, T],
        on_press: Callable[[], bool] | None = None,
        on_quit: Callable[[], bool] | None = None,
        *,
        after_quit: bool = False,
    ) -> T | None:
        """Return the result of the work, or None when it was cancelled.

        Args:
            on_press: handles a single Ctrl-C. The work is cancelled when it is None or returns False.
            on_quit: ends the work in good order when the program quits. The work is cancelled when it is None or
                returns False.
            after_quit: start the work although the program quits.
        """
        task = self._task = asyncio.ensure_future(work)
        self._on_press, self._on_quit = on_press, on_quit
        if self.exit_code is not None and not after_quit:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return None
        finally:
            self._task = self._on_press = self._on_quit = None

    def press(self) -> None:
        """Handle a Ctrl-C, which is a key while a line is edited and a signal otherwise."""
        moment = time.monotonic()
        is_second, self._last_press = moment - self._last_press <= self._double_press, moment
        if is_second:
            self.exit_code = EXIT_INTERRUPTED
            self._cancel()
        elif self._on_press is None or not self._on_press():
            self._cancel()

    def _receive(self, signum: signal.Signals) -> None:
        if signum is signal.SIGINT:
            self.press()
            return
        is_first, self.exit_code = self.exit_code is None, self.exit_code or EXIT_CODES[signum]
        if not is_first or self._on_quit is None or not self._on_quit():
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
