"""Files that a command line names: read whole, within limits, whatever they are."""

import os
import select
import stat
import time
from pathlib import Path

from massmem.config.home import expand_home
from massmem.core.errors import InputError

PIPE_SECONDS = 30.0
"""How long a pipe may take until it ends."""
_PIECE = 1_000_000


def read_file(path: Path, most: int, seconds: float = PIPE_SECONDS) -> bytes:
    """Return what a file holds, or a pipe that ends within so many seconds. most: bytes.

    Raises:
        InputError: it is a folder, cannot be read, is larger, or does not end.
    """
    try:
        # A pipe that nobody writes to would block in here; below, it is waited for.
        descriptor = os.open(expand_home(path), os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise InputError(f"{path} cannot be read: {reason}", "check the name of the file") from e
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path} is a folder", "name the files in it that matter, one by one")
        if status.st_size > most:
            raise _too_large(path, most)
        if stat.S_ISREG(status.st_mode):
            seconds = 0.0
        return _read(descriptor, path, most, seconds)
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}", "check the name of the file") from e
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: Path, most: int, seconds: float) -> bytes:
    """seconds: 0: it is a file, which needs no waiting."""
    data, deadline = bytearray(), time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        if seconds and not (left > 0 and select.select([descriptor], [], [], left)[0]):
            raise InputError(
                f"{path} did not end within {seconds:g} seconds", "write what comes out of it to a file first"
            )
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > most:
            raise _too_large(path, most)


def _too_large(path: Path, most: int) -> InputError:
    return InputError(
        f"{path} is larger than {most:,} bytes", "ask about a part of it, or raise files.max_size in the configuration"
    )
