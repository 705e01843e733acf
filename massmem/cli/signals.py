"""Ctrl-C and SIGTERM: the first ends the turn in good order, the second at once."""

import asyncio
import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def handled(signums: Iterable[signal.Signals], came: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call `came` in the running event loop for each of these signals; at the end the handlers found are put back."""
    loop = asyncio.get_running_loop()

    def handle(number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(came, signal.Signals(number))

    before = {signum: signal.signal(signum, handle) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class Stopper:
    """`signum` is the signal that came, None while there was none."""

    def __init__(self) -> None:
        self.signum: signal.Signals | None = None
        self._stop: Callable[[signal.Signals], None] | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self.signum is None else EXIT_CODES[self.signum]

    def on_first(self, stop: Callable[[signal.Signals], None]) -> None:
        """Call `stop` on the first signal; until this is set, a signal cancels the task at once."""
        self._stop = stop

    @contextmanager
    def watching(self, task: asyncio.Task[int]) -> Generator[None]:
        """Handle both signals for the time of the block; the handlers found are put back."""
        with handled(EXIT_CODES, lambda signum: self._handle(signum, task)):
            yield

    def _handle(self, signum: signal.Signals, task: asyncio.Task[int]) -> None:
        first, self.signum = self.signum is None, self.signum or signum
        if first and self._stop is not None:
            self._stop(signum)
        else:
            task.cancel()
