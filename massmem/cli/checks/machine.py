"""Checks of the machine: Python, packages, disk space, and the files in massmem's home."""

import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from massmem import __version__
from massmem.cli.checks import CheckResult, DoctorContext, fail, ok, skip
from massmem.cli.streams import MB
from massmem.config.home import measure_disk_usage
from massmem.providers.weights import models_folder

MIN_FREE = 200_000_000
"""Bytes. An index alone needs 64 MB of free space to write."""

_OLDEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:\(?>=\s*([0-9.]+)[^;]*)?(?:;\s*extra == ['\"](\w+)['\"])?"
)


async def check_python(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the version of the interpreter."""
    text = f"massmem {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    if sys.version_info < _OLDEST_PYTHON:
        return [fail(text, "install Python 3.11 or newer")]
    return [ok(text, sys.executable)]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that massmem's metadata names."""

    name: str
    minimum: str = ""
    """The oldest version that works."""
    extra: str = ""
    """"" for the core."""

    def find_problem(self) -> str:
        """Return why the installed package does not satisfy this, "" when it does."""
        try:
            version = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return f"{self.name} is not installed"
        is_old = _parse_version(version) < _parse_version(self.minimum)
        return f"{self.name} {version} is older than {self.minimum}" if is_old else ""


def read_requirements() -> Iterator[Requirement]:
    """Yield the packages of the core and of each extra; none when massmem is not installed as a package."""
    try:
        lines = metadata.requires("massmem") or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        if match := _REQUIREMENT.match(line):
            yield Requirement(match[1], match[2] or "", match[3] or "")


async def check_packages(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the core is complete; report which extras are installed."""
    requirements = list(read_requirements())
    if not requirements:
        return [fail("massmem is not installed as a package", "pip install massmem, or scripts/install in a clone")]
    core = [requirement for requirement in requirements if not requirement.extra]
    problems = [problem for requirement in core if (problem := requirement.find_problem())]
    extras = dict.fromkeys(requirement.extra for requirement in requirements if requirement.extra)
    details = [_describe_extra(extra, requirements) for extra in extras]
    if problems:
        return [fail("; ".join(problems), "install massmem again: pip install --upgrade massmem", *details)]
    return [ok(f"all {len(core)} packages of the core are installed", *details)]


def _describe_extra(extra: str, requirements: Sequence[Requirement]) -> str:
    problems = [problem for r in requirements if r.extra == extra and (problem := r.find_problem())]
    return f"{extra}: {'; '.join(problems)} (pip install 'massmem[{extra}]')" if problems else f"{extra}: installed"


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


async def check_disk(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the free space where massmem writes; report what it uses there."""
    home = context.home
    folder = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / MB:,.0f} MB free in {folder}"
    used = {"sessions": [*home.glob("massmem.db*")], "memories": [home / "memory"], "models": [models_folder()]}
    details = [f"{name}: {measure_disk_usage(*paths) / MB:,.1f} MB" for name, paths in used.items()]
    if free < MIN_FREE:
        return [fail(f"only {text}", "free some space; a full disk does not lose stored data", *details)]
    return [ok(text, *details)]


_MAX_PATHS = 5
_PUBLIC = {"models", "config.yaml", "config.schema.json"}
"""Files that the user may have created or downloaded; none of them contains a key."""

_SYSTEM_LOCKS = Path("/proc/locks")


async def check_permissions(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the owner can write massmem's files and nobody else can read them."""
    home = context.home
    if not home.exists():
        return [ok(f"{home}: not created yet")]
    if os.name == "nt":
        return [skip("permissions on Windows are inherited from your profile")]
    if not os.access(home, os.W_OK | os.X_OK):
        return [fail(f"{home} is not writable", f"become its owner: sudo chown -R $(id -un) '{home}'")]
    readable = [path for path in _private_paths(home) if _is_open_to_others(path)]
    if readable:
        fix = f"chmod go-rwx '{home}' '{home}'/*"
        return [fail(f"{home}: other users have access", fix, *(str(path) for path in readable[:_MAX_PATHS]))]
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


def find_lock_holder(path: Path) -> int | None:
    """Return the process that holds the lock of this file; None when it is free or the system does not tell."""
    try:
        lines, status = _SYSTEM_LOCKS.read_text().splitlines(), path.stat()
    except OSError:
        return None
    # `1: FLOCK  ADVISORY  WRITE 123 08:01:456 0 EOF`; `->` in the second column marks a process that waits.
    for fields in map(str.split, lines):
        if len(fields) >= 6 and fields[1] == "FLOCK" and int(fields[4]) > 0:
            major, minor, number = fields[5].split(":")
            if (os.makedev(int(major, 16), int(minor, 16)), int(number)) == (status.st_dev, status.st_ino):
                return int(fields[4])
    return None
