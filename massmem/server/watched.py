"""A file's contents, read again when the file has changed: keys and lists are changed without a restart."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from massmem.errors import InputError

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK = 1.0
"""Seconds between two looks at the file."""


class Watched(Generic[T]):
    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """read raises InputError when the file cannot be used; then so does this, but never `value`."""
        self._path = path
        self._read = read
        self._version = _version(path)
        self._value = read(path)
        self._looked = time.monotonic()

    def value(self) -> T:
        """What the file said last when it could be used."""
        if time.monotonic() - self._looked < _LOOK:
            return self._value
        self._looked = time.monotonic()
        version = _version(self._path)
        if version != self._version:
            self._version = version
            try:
                self._value = self._read(self._path)
            except InputError as e:
                log.error("what it said before still counts: %s", e.message)  # noqa: TRY400 - the message says all
        return self._value


def _version(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
