"""Folders and files that only their owner may read, and what it means when they cannot be made."""

import errno
import os
from pathlib import Path

from massmem.errors import HomeError, MassmemError, StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def make_home(home: Path) -> None:
    """Make sure that `home` is a folder of mode 0700 that can be written.

    Raises:
        HomeError: it is read-only, not a folder, or cannot be created.
        StoreError: the disk is full.
    """
    make_folder(home)
    try:
        if home.stat().st_mode & 0o077:
            home.chmod(0o700)
    except OSError as e:
        raise unwritable(home, e) from e


def make_folder(folder: Path) -> None:
    """Make sure that `folder` can be written; what is new of its path gets mode 0700. Raises as make_home."""
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
    except OSError as e:
        raise unwritable(folder, e) from e
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _no_permission(folder, "no permission to write, or a read-only file system")


def make_file(path: Path) -> None:
    """Make sure that `path` is a file of mode 0600; it is empty when it is new. Raises as make_home."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                path.chmod(0o600)
        finally:
            os.close(descriptor)
    except OSError as e:
        raise unwritable(path, e) from e


def unwritable(path: Path, error: OSError) -> MassmemError:
    """The error to raise when `path` could not be written."""
    if error.errno in _FULL:
        return StoreError(
            f"the disk is full: {path} cannot be written",
            "free some space and run the same command again; what was stored before is untouched",
        )
    return _no_permission(path, error.strerror or str(error))


def _no_permission(path: Path, reason: str) -> HomeError:
    return HomeError(
        f"{path} cannot be written: {reason}",
        "check the owner and the permissions, or set HOME or store.url to a place that you can write",
    )
