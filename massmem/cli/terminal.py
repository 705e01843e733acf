"""The terminal without prompt_toolkit: keys typed during a turn, an editor, the clipboard, and a plain line reader."""

import asyncio
import base64
import os
import shlex
import subprocess
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

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
