"""This process as others see it who run sessions of the same home: who it is, and whether it still lives.

It holds the lock of a file of its own for as long as it runs; the system lets go of the lock when the process dies. So
whoever finds a session taken can tell at once whether that is still true, and nobody locks a file for every turn.
"""

import os
import secrets
import socket
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from massmem.home import make_file, make_folder, unwritable

_SWEPT_AFTER = 86_400.0
"""Seconds after which the file of a process that is gone is in nobody's way, and is removed."""


class Process:
    """Owners of sessions in this process, by names that no other process has: HOME:PROCESS:NUMBER."""

    def __init__(self, home: Path | None) -> None:
        """home: nothing is written before the first owner. None: nobody else can get at what is owned."""
        self._folder = None if home is None else home / "locks"
        self._home = ""
        self._lock: FileLock | None = None
        self._name = secrets.token_hex(8)
        self._owners: set[str] = set()
        self._made = 0

    def enter(self) -> str:
        """A new owner. Raises HomeError, StoreError: the home cannot be written."""
        if self._folder is not None and not (self._lock is not None and self._file(self._name).exists()):
            if self._lock is not None:
                self._lock.release()
            self._lock = self._locked(self._folder)
        self._made += 1
        owner = f"{self._home}:{self._name}:{self._made}"
        self._owners.add(owner)
        return owner

    def leave(self, owner: str) -> None:
        """It owns nothing any more."""
        self._owners.discard(owner)

    def is_neighbour(self, owner: str) -> bool:
        """It is of this home, so that `is_gone` can tell about it."""
        return owner.partition(":")[0] == self._home

    def is_gone(self, owner: str) -> bool:
        """Whether a neighbour's process has ended, or it has left this one without letting go of what it owned."""
        _, _, rest = owner.partition(":")
        process = rest.partition(":")[0]
        if process == self._name:
            return owner not in self._owners
        if self._folder is None or not process.isalnum():
            return False
        return _is_free(self._file(process))

    def close(self) -> None:
        """Nobody owns anything here any more."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):  # it is in nobody's way
                self._file(self._name).unlink(missing_ok=True)
            lock.release()

    def _locked(self, folder: Path) -> FileLock:
        make_folder(folder)
        self._home = _name_of(folder)
        _sweep(folder)
        lock = FileLock(self._file(self._name), mode=0o600)
        try:
            lock.acquire()
        except OSError as e:
            raise unwritable(folder, e) from e
        return lock

    def _file(self, process: str) -> Path:
        assert self._folder is not None  # there are files only then
        return self._folder / f"process_{process}.lock"


def _is_free(path: Path) -> bool:
    """Nobody holds the lock of this file; it is removed then."""
    if not path.exists():
        return True
    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except OSError as e:
        raise unwritable(path, e) from e
    with suppress(OSError):
        path.unlink(missing_ok=True)
    lock.release()
    return True


def _sweep(folder: Path) -> None:
    """Remove what processes have left that were killed."""
    for path in folder.glob("process_*.lock"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _SWEPT_AFTER:
                _is_free(path)


def _name_of(folder: Path) -> str:
    """Of this home on this machine: a number that was drawn for the home, because two containers may share a path."""
    path, new = folder / "home", folder / f"home-{secrets.token_hex(4)}"
    try:
        if not path.exists():
            make_file(new)
            new.write_text(secrets.token_hex(16))
            with suppress(FileExistsError):
                os.link(new, path)  # whole, or not at all
            new.unlink()
        drawn = path.read_text()
    except OSError as e:
        raise unwritable(path, e) from e
    return sha256(f"{socket.gethostname()}\0{drawn}".encode()).hexdigest()[:16]
