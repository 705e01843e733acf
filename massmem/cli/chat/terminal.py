"""The terminal between two lines: what is typed while a turn runs waits, and is not shown in the middle of the view."""

import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress

_INPUT, _LOCAL = 0, 3
"""Where termios keeps its flags."""


@contextmanager
def undisturbed() -> Generator[None]:
    """Show nothing that is typed, and leave every key as it is, for whoever reads the next line key by key."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):  # no terminal, or one that is gone
        yield
        return
    during = [*before]
    during[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
    during[_INPUT] &= ~termios.ICRNL
    with suppress(termios.error):
        termios.tcsetattr(descriptor, termios.TCSANOW, during)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
