"""The machine: Python, the packages that massmem needs, and room on the disk."""

import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from massmem import __version__
from massmem.cli.checks.finding import Finding, Situation, failed, ok
from massmem.weights import models_folder

ROOM = 200_000_000
"""Bytes: an index alone needs 64 MB of room to write."""

MB = 1e6
_OLDEST = (3, 11)
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:\(?>=\s*([0-9.]+)[^;]*)?(?:;\s*extra == ['\"](\w+)['\"])?"
)


async def check_python(situation: Situation) -> Sequence[Finding]:
    """The interpreter."""
    text = f"massmem {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    if sys.version_info < _OLDEST:
        return [failed(text, "install Python 3.11 or newer")]
    return [ok(text, sys.executable)]


@dataclass(frozen=True, slots=True)
class Required:
    """A package that massmem's own metadata name. least: the oldest version that will do. extra: "" for the core."""

    name: str
    least: str = ""
    extra: str = ""

    def problem(self) -> str:
        """Why it will not do, "" when it will."""
        try:
            found = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return f"{self.name} is not installed"
        return f"{self.name} {found} is older than {self.least}" if _parts(found) < _parts(self.least) else ""


def required() -> Iterator[Required]:
    """The packages of the core and of each extra; none when massmem runs without being installed."""
    try:
        lines = metadata.requires("massmem") or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        if found := _REQUIREMENT.match(line):
            yield Required(found[1], found[2] or "", found[3] or "")


async def check_packages(situation: Situation) -> Sequence[Finding]:
    """The core must be whole; of the extras it is only said which are there."""
    every = list(required())
    if not every:
        return [failed("massmem is not installed as a package", "pip install massmem, or scripts/install in a clone")]
    core = [problem for each in every if not each.extra and (problem := each.problem())]
    details = [_extra(name, every) for name in dict.fromkeys(each.extra for each in every if each.extra)]
    if core:
        return [failed("; ".join(core), "install massmem again: pip install --upgrade massmem", *details)]
    return [ok(f"all {sum(not each.extra for each in every)} packages of the core are there", *details)]


def _extra(name: str, every: Sequence[Required]) -> str:
    problems = [problem for each in every if each.extra == name and (problem := each.problem())]
    return f"{name}: {'; '.join(problems)} (pip install 'massmem[{name}]')" if problems else f"{name}: installed"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


async def check_disk(situation: Situation) -> Sequence[Finding]:
    """Room where massmem writes, and what it takes there."""
    folder = next(path for path in (situation.home, *situation.home.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / MB:,.0f} MB free in {folder}"
    taken = (("sessions", [*situation.home.glob("massmem.db*")]), ("memories", [situation.home / "memory"]))
    places = (*taken, ("models", [models_folder()]))
    details = [f"{name}: {_size(paths) / MB:,.1f} MB" for name, paths in places]
    if free < ROOM:
        return [failed(f"only {text}", "free some space; nothing that was stored is lost by a full disk", *details)]
    return [ok(text, *details)]


def _size(paths: Sequence[Path]) -> int:
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())
