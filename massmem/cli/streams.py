"""Standard output and input that fail with one clear message, or not at all."""

import io
import os
import sys

from massmem.errors import MassmemError
from massmem.render.printable import printable


class OutputError(MassmemError):
    """Standard output cannot be written (disk full, device gone); a closed pipe stays a BrokenPipeError."""


def prepare_streams() -> None:
    """Make the three standard streams usable: closed ones lead nowhere, odd characters never raise."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - stays open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def write_out(text: str) -> None:
    """Write to standard output and flush.

    Raises:
        OutputError, BrokenPipeError
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        discard_output()
        raise OutputError(f"standard output cannot be written: {e.strerror}", "free space or write elsewhere") from e


def say(line: str) -> None:
    """One line to stderr, for the user."""
    sys.stderr.write(f"massmem: {printable(line)}\n")
    sys.stderr.flush()


def discard_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not complain about it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())
    os.close(null)
