"""Ctrl-C and the signals that end a program, while somebody talks to it."""

import asyncio
import math
import signal
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from massmem.cli.signals import handled

T = TypeVar("T")

TWICE = 2.0
"""Seconds within which a second Ctrl-C quits."""

INTERRUPTED = 130
HUNG_UP = 129
_ENDING = {signal.SIGTERM: 143, signal.SIGHUP: HUNG_UP}


class Interrupts:
    """exit_code: set once the program is to end because of a signal."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._pressed_at = -math.inf
        self._task: asyncio.Task[Any] | None = None
        self._first: Callable[[], bool] | None = None
        self._ending: Callable[[], bool] | None = None

    @contextmanager
    def handled(self) -> Generator[None]:
        """Handle the signals for the time of the block; the handlers found are put back. What is ignored stays so."""
        ours = [s for s in (signal.SIGINT, *_ENDING) if signal.getsignal(s) is not signal.SIG_IGN]
        with handled(ours, self._came):
            yield

    async def run(
        self,
        work: Coroutine[Any, Any, T],
        on_first: Callable[[], bool] | None = None,
        on_end: Callable[[], bool] | None = None,
        *,
        last: bool = False,
    ) -> T | None:
        """The result of the work; None when it was cancelled. Nothing but the `last` is begun once the program ends.

        on_first: deals with a Ctrl-C that is not the second of two; on_end: ends the work in good order when the
        program is to end. Where one is left out, or returns False, the work is cancelled.
        """
        task = self._task = asyncio.ensure_future(work)
        self._first, self._ending = on_first, on_end
        if self.exit_code is not None and not last:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return None
        finally:
            self._task = self._first = self._ending = None

    def press(self) -> None:
        """Ctrl-C came, by a key or as a signal."""
        moment = time.monotonic()
        again, self._pressed_at = moment - self._pressed_at <= TWICE, moment
        if again:
            self.exit_code = INTERRUPTED
            self._cancel()
        elif self._first is None or not self._first():
            self._cancel()

    def _came(self, signum: signal.Signals) -> None:
        if signum is signal.SIGINT:
            self.press()
            return
        first, self.exit_code = self.exit_code is None, self.exit_code or _ENDING[signum]
        if not first or self._ending is None or not self._ending():
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
