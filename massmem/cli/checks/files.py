"""Checks of the files in massmem's home: who may read them, and which process holds their locks."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from massmem.cli.checks.result import CheckResult, DoctorContext, failed, ok, skipped
from massmem.render.text import pluralize

_MAX_PATHS = 5
_PUBLIC = {"models", "config.yaml", "config.schema.json"}
"""Files that the user may have created or downloaded; none of them contains a key."""

_SYSTEM_LOCKS = Path("/proc/locks")

Inode = tuple[int, int]
"""Device and number of a file."""


async def check_permissions(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the owner can write massmem's files and nobody else can read them."""
    home = context.home
    if not home.exists():
        return [ok(f"{home}: not created yet")]
    if os.name == "nt":
        return [skipped("permissions on Windows are inherited from your profile")]
    if not os.access(home, os.W_OK | os.X_OK):
        return [failed(f"{home} is not writable", f"become its owner: sudo chown -R $(id -un) '{home}'")]
    readable = [path for path in _private_paths(home) if _is_open_to_others(path)]
    if readable:
        fix = f"chmod go-rwx '{home}' '{home}'/*"
        return [failed(f"{home}: other users have access", fix, *(str(path) for path in readable[:_MAX_PATHS]))]
    return [ok(f"{home}: private")]


def _private_paths(home: Path) -> Iterator[Path]:
    """Yield the folder and what is directly in it: a private folder protects what is inside."""
    yield home
    for path in home.iterdir():
        if not path.is_symlink() and path.name not in _PUBLIC:
            yield path


def _is_open_to_others(path: Path) -> bool:
    with suppress(OSError):
        return bool(stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO))
    return False


async def check_locks(context: DoctorContext) -> Sequence[CheckResult]:
    """Report which processes hold locks. This never fails: a lock ends with its process."""
    locks = [path for path in context.home.rglob("*") if path.suffix == ".lock" or path.name == "lock"]
    holders = _read_lock_holders()
    if holders is None:
        return [skipped("this system does not tell who holds a lock")]
    held = [(path, pid) for path in locks if (pid := holders.get(_read_inode(path))) is not None]
    if not held:
        return [ok(f"{pluralize(len(locks), 'lock')}, all free")]
    lines = [f"{path.relative_to(context.home)}: {_describe_process(pid)}" for path, pid in held]
    return [ok(f"{len(held)} of {pluralize(len(locks), 'lock')} held", *lines)]


def find_lock_holder(path: Path) -> int | None:
    """Return the process that holds the lock of this file; None when it is free or the system does not tell."""
    return (_read_lock_holders() or {}).get(_read_inode(path))


def _read_lock_holders() -> Mapping[Inode, int] | None:
    """Return the process that holds each locked file; None when the system does not tell."""
    try:
        lines = _SYSTEM_LOCKS.read_text().splitlines()
    except OSError:
        return None
    # `1: FLOCK  ADVISORY  WRITE 123 08:01:456 0 EOF`; `->` in the second column marks a process that waits.
    holders: dict[Inode, int] = {}
    for fields in map(str.split, lines):
        if len(fields) >= 6 and fields[1] == "FLOCK" and int(fields[4]) > 0:
            major, minor, number = fields[5].split(":")
            holders[os.makedev(int(major, 16), int(minor, 16)), int(number)] = int(fields[4])
    return holders


def _read_inode(path: Path) -> Inode:
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


def _describe_process(pid: int) -> str:
    """Return the process with the name of its program; its arguments may contain a question."""
    with suppress(OSError):
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return f"process {pid}"
