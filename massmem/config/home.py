"""massmem's own folder, `~/.massmem`, and files that only their owner may read."""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from massmem.core.errors import HomeError, InputError, MassmemError, StoreError

_HINT = "set HOME to a folder that you may write to"
LOCK_SECONDS = 30.0
"""Seconds to wait for another process that reads, changes and writes the same file."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def massmem_home() -> Path:
    """Return `~/.massmem`, which may not exist yet.

    Raises HomeError: there is no home directory, or HOME is not an absolute path.
    """
    try:
        home = Path("~").expanduser()
    except RuntimeError as e:
        raise HomeError("your home directory is unknown", _HINT) from e
    if not home.is_absolute() or home == Path(home.anchor):
        raise HomeError(f"HOME={str(home)!r} is not a home directory", _HINT)
    return home / ".massmem"


def expand_home(path: str | Path) -> Path:
    """Return the path with a home folder in place of `~` or `~USER`. Raises InputError when that is not known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        raise InputError(f"{path}: this home folder is not known", "write the whole path") from e


def make_home(home: Path) -> None:
    """Create `home` if it is missing, with mode 0700; check that it can be written.

    Raises:
        HomeError: it is read-only, not a folder, or cannot be created.
        StoreError: the disk is full.
    """
    make_folder(home)
    try:
        if home.stat().st_mode & 0o077:
            home.chmod(0o700)
    except OSError as e:
        raise explain_write_error(home, e) from e


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents if they are missing, with mode 0700; check that it can be written.

    Raises: as `make_home`.
    """
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
    except OSError as e:
        raise explain_write_error(folder, e) from e
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _no_permission(folder, "no permission to write, or a read-only file system")


RECORD_VARIABLE = "MASSMEM_RECORD"
"""Names the file to which every exchange with a server is written."""
ADDED_VARIABLES: set[str] = set()
"""Names of what this process has added to its environment: keys that the user has given to massmem alone."""

ALLOW_MISSING_VARIABLE = "MASSMEM_ALLOW_MISSING"
"""Set: go on without what a file of MassGen asks for and massmem lacks."""


def make_file(path: Path) -> None:
    """Create the file if it is missing, and give it mode 0600. Raises as `make_home`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                path.chmod(0o600)
        finally:
            os.close(descriptor)
    except OSError as e:
        raise explain_write_error(path, e) from e


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file that only the owner may read; mode as for open(), binary."""
    return cast("IO[bytes]", open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600)))


@contextmanager
def lock_file(path: Path) -> Generator[None]:
    """Let no other process read, change and write this file for the block. Its folder is made when it is missing.

    Raises: as `make_home`, also where the block cannot write. StoreError: another process has it locked.
    """
    from filelock import FileLock, Timeout  # it loads asyncio for 45 ms, which most commands do not need

    make_folder(path.parent)
    lock = FileLock(f"{path}.lock", timeout=LOCK_SECONDS, mode=0o600, poll_interval=0.01)
    try:
        lock.acquire()
        yield
    except Timeout as e:
        raise StoreError(
            f"{path} is locked: another process has been writing it for more than {LOCK_SECONDS:.0f} s",
            "run the same command again when it has ended",
        ) from e
    except OSError as e:
        raise explain_write_error(path, e) from e
    finally:
        lock.release()


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file of mode 0600 so that a reader, also after a power cut, sees all of it or what was there before.

    The caller lets nobody else write it meanwhile: `lock_file`. Raises OSError.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)  # left by a writer that was killed, with any rights
        with open_private(new, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    sync_to_disk(path.parent)


def write_once(path: Path, content: str) -> None:
    """Write a file of mode 0600, whole or not at all, unless it is there: of several processes one writes it.

    Raises OSError, and as `make_file`.
    """
    draft = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    make_file(draft)
    try:
        draft.write_text(content)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def sync_to_disk(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk. Raises OSError."""
    if os.name == "nt" and path.is_dir():  # Windows has no handle of a folder, its renames are durable by themselves
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder. What vanishes meanwhile is left out, or is gone when it is looked at."""
    for parent, _, files in os.walk(folder):
        yield from (Path(parent, name) for name in files)


def make_private(folder: Path) -> None:
    """Take the rights of others from `folder` and all in it, for folders that a library created with its own modes.

    Files of other users, and files that vanish meanwhile, stay as they are. (A umask would be the program's, not ours.)
    """
    for parent, _, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in files)):
            with suppress(OSError):
                mode = stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)
                if mode & 0o077 and not path.is_symlink():
                    path.chmod(mode & 0o700)


def measure_disk_usage(*paths: Path) -> int:
    """Return the bytes that files and folders occupy on the disk: index files are sparse.

    Other processes write there: what vanishes meanwhile occupies nothing.
    """
    total = 0
    for file in (file for path in paths for file in (list_files(path) if path.is_dir() else [path])):
        with suppress(FileNotFoundError):
            total += file.stat().st_blocks * 512
    return total


def explain_write_error(path: Path, error: OSError) -> MassmemError:
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
