"""The terminal without prompt_toolkit: keys typed during a turn, an editor, the clipboard, and a plain line reader.

Also Ctrl-C, SIGTERM and SIGHUP: how they end a turn and the program.
"""

import asyncio
import base64
import math
import os
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, TypeVar

from massmem.core.errors import InputError

_INPUT_FLAGS, _LOCAL_FLAGS, _KEYS = 0, 3, 6
"""Indexes in the list of termios."""
_PROMPT = "> "
_CHUNK = 65_536


@contextmanager
def hold_typed_input(*, sigquit_key: bytes = b"") -> Generator[None]:
    """Do not echo or interpret keys until the end of the block: they wait for the next line that is edited.

    Without this, keys typed during a turn would be shown in the middle of the live view.

    sigquit_key: sends SIGQUIT to this process instead of Ctrl-\\; empty: the usual one does. A key that is a signal is
    noticed without reading what else is typed.
    """
    with _change_terminal(interpret=False, sigquit_key=sigquit_key):
        yield


@contextmanager
def lend_terminal() -> Generator[None]:
    """Echo and interpret keys until the end of the block, for another program."""
    with _change_terminal(interpret=True):
        yield


@contextmanager
def _change_terminal(*, interpret: bool, sigquit_key: bytes = b"") -> Generator[None]:
    """Echo and interpret keys, or not, until the end of the block. Do nothing where there is no terminal."""
    try:
        descriptor = sys.stdin.fileno()
        previous = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield
        return
    changed = [*previous]
    for index, flags in ((_LOCAL_FLAGS, termios.ECHO | termios.ICANON), (_INPUT_FLAGS, termios.ICRNL)):
        changed[index] = changed[index] | flags if interpret else changed[index] & ~flags
    if sigquit_key:
        changed[_KEYS] = [*previous[_KEYS]]
        changed[_KEYS][termios.VQUIT] = sigquit_key
    when = termios.TCSADRAIN if interpret else termios.TCSANOW
    with suppress(termios.error):
        termios.tcsetattr(descriptor, when, changed)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, when, previous)


def edit_text(text: str) -> str:
    """Let the user edit the text in $VISUAL or $EDITOR, and return it. Raises InputError."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with TemporaryDirectory(prefix="massmem-") as folder, lend_terminal():
        path = Path(folder, "question.md")
        path.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(editor), str(path)], stdout=sys.stderr, check=False).returncode
        except (OSError, ValueError) as e:
            raise InputError(f"the editor {editor!r} does not start: {e}", "set EDITOR to another one") from e
        if code != 0:
            raise InputError(f"the editor {editor!r} ended with exit code {code}", "nothing was asked")
        return path.read_text(encoding="utf-8", errors="replace").strip()


def copy_to_clipboard(text: str) -> None:
    """Ask the terminal to copy the text (OSC 52), which also works over SSH. A terminal may ignore it."""
    sys.stderr.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")
    sys.stderr.flush()


class PlainLineReader:
    """Reads lines on a terminal without cursor control, which edits them itself.

    It reads in the event loop, not in a thread, because a thread that waits for input cannot be stopped.
    """

    def __init__(self) -> None:
        self._buffer = b""

    async def read(self) -> str:
        """Return one line. Raises EOFError at the end of the input."""
        return await self.ask(_PROMPT)

    async def ask(self, prompt: str) -> str:
        """Return the reply to a prompt, one line. Raises EOFError as `read`."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while b"\n" not in self._buffer:
            data = await self._read_chunk()
            if not data:
                raise EOFError
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    @contextmanager
    def read_ahead(self, show: Callable[[str], object]) -> Generator[None]:
        """Do nothing: the terminal echoes what is typed, and keeps its lines apart."""
        yield

    def clear(self) -> None:
        """Show a new prompt; the terminal has dropped the line already."""
        sys.stderr.write(f"\n{_PROMPT}")
        sys.stderr.flush()

    async def _read_chunk(self) -> bytes:
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        try:
            return os.read(descriptor, _CHUNK)
        except OSError:  # the terminal is gone
            return b""


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

    @contextmanager
    def watch(self, task: asyncio.Task[int], stop: Callable[[signal.Signals], bool]) -> Generator[None]:
        """Handle signals until the end of the block. stop: stops the turn; False: there is none to be stopped."""

        def receive(signum: signal.Signals) -> None:
            is_first = self.exit_code is None
            self.exit_code = self.exit_code or EXIT_CODES[signum]
            if not (is_first and stop(signum)):
                task.cancel()

        with handle_signals((signal.SIGINT, signal.SIGTERM), receive):
            yield


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

        on_press: handles a single Ctrl-C. on_quit: ends the work in good order when the program quits. Where one is
        None or returns False, the work is cancelled. after_quit: start the work although the program quits.
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
