"""The files in massmem's home: who may read them, and which process holds their locks."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from massmem.cli.checks.finding import Finding, Situation, failed, ok, skipped
from massmem.render.figures import plural

_NAMED = 5
_NO_SECRETS = {"models", "config.yaml", "config.schema.json"}
"""What a user may have made by hand, or fetched; a key stands in none of them."""

_SYSTEM_LOCKS = Path("/proc/locks")

Inode = tuple[int, int]
"""Device and number of a file."""


async def check_permissions(situation: Situation) -> Sequence[Finding]:
    """Nobody but the owner may read what massmem keeps; its owner may write."""
    home = situation.home
    if not home.exists():
        return [ok(f"{home}: not made yet")]
    if os.name == "nt":
        return [skipped("permissions on Windows are inherited from your profile")]
    if not os.access(home, os.W_OK | os.X_OK):
        return [failed(f"{home} cannot be written", f"make it yours: sudo chown -R $(id -un) '{home}'")]
    shared = [path for path in _private(home) if _others_may(path)]
    if shared:
        fix = f"chmod go-rwx '{home}' '{home}'/*"
        return [failed(f"{home}: others may read of it", fix, *(str(path) for path in shared[:_NAMED]))]
    return [ok(f"{home}: for you alone")]


def _private(home: Path) -> Iterator[Path]:
    """What is in a folder that only its owner may enter, nobody else reaches; but files get copied and moved."""
    yield home
    for path in home.iterdir():
        if not path.is_symlink() and path.name not in _NO_SECRETS:
            yield path


def _others_may(path: Path) -> bool:
    with suppress(OSError):
        return bool(stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO))
    return False


async def check_locks(situation: Situation) -> Sequence[Finding]:
    """Which processes hold what. None of it is wrong by itself: a lock goes with its process, whatever ends it."""
    locks = [path for path in situation.home.rglob("*") if path.suffix == ".lock" or path.name == "lock"]
    holders = _held()
    if holders is None:
        return [skipped("this system does not say who holds a lock")]
    held = [(path, pid) for path in locks if (pid := holders.get(_inode(path))) is not None]
    if not held:
        return [ok(f"{plural(len(locks), 'lock')}, all of them free")]
    lines = [f"{path.relative_to(situation.home)}: {_named(pid)}" for path, pid in held]
    return [ok(f"{len(held)} of {plural(len(locks), 'lock')} held", *lines)]


def holder(path: Path) -> int | None:
    """The process that holds the lock of this file; None when it is free, or nobody can say."""
    return (_held() or {}).get(_inode(path))


def _held() -> Mapping[Inode, int] | None:
    """Who holds which file; None where the system does not say."""
    try:
        return _holders(_SYSTEM_LOCKS.read_text())
    except OSError:
        return None


def _holders(listed: str) -> Mapping[Inode, int]:
    """From the lines of /proc/locks: `1: FLOCK  ADVISORY  WRITE 123 08:01:456 0 EOF`; `->` marks one that waits."""
    found: dict[Inode, int] = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and int(fields[4]) > 0:
            major, minor, number = fields[5].split(":")
            found[os.makedev(int(major, 16), int(minor, 16)), int(number)] = int(fields[4])
    return found


def _inode(path: Path) -> Inode:
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino


def _named(pid: int) -> str:
    """With the program's name, which says more than a number; never its arguments, which may be a question."""
    with suppress(OSError):
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return f"process {pid}"
