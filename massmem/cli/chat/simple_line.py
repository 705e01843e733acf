"""The line that the user types on a terminal that can do nothing but print: the terminal itself edits it."""

import asyncio
import os
import sys

_PROMPT = "> "
_MOST = 65_536


class SimpleLine:
    """Reads standard input a line at a time. No thread waits for it: one could not be ended."""

    def __init__(self) -> None:
        self._read = b""

    async def read(self) -> str:
        """One line. Raises EOFError at the end of the input."""
        return await self.ask(_PROMPT)

    async def ask(self, prompt: str) -> str:
        """A reply, in one line. Raises EOFError as `read`."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while b"\n" not in self._read:
            data = await self._more()
            if not data:
                raise EOFError
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def clear(self) -> None:
        """The terminal has dropped the line already."""
        sys.stderr.write(f"\n{_PROMPT}")
        sys.stderr.flush()

    async def _more(self) -> bytes:
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        try:
            return os.read(descriptor, _MOST)
        except OSError:  # the terminal has hung up
            return b""
