"""The terminal of a conversation without prompt_toolkit: typed input between prompts, and a plain line reader."""

import asyncio
import os
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress

_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3
"""Indexes in the list of termios."""
_PROMPT = "> "
_CHUNK = 65_536


@contextmanager
def hold_typed_input() -> Generator[None]:
    """Do not echo or interpret keys until the end of the block: they wait for the next line that is edited.

    Without this, keys typed during a turn would be shown in the middle of the live view.
    """
    try:
        descriptor = sys.stdin.fileno()
        previous = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):  # there is no terminal
        yield
        return
    changed = [*previous]
    changed[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    changed[_INPUT_FLAGS] &= ~termios.ICRNL
    with suppress(termios.error):
        termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, previous)


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
