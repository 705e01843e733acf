"""Checks of the machine: Python, the packages that massmem needs, and disk space."""

import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from massmem import __version__
from massmem.cli.checks.result import CheckResult, DoctorContext, failed, ok
from massmem.cli.paths import measure_disk_usage
from massmem.cli.progress import MB
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
        return [failed(text, "install Python 3.11 or newer")]
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
        return [failed("massmem is not installed as a package", "pip install massmem, or scripts/install in a clone")]
    core = [requirement for requirement in requirements if not requirement.extra]
    problems = [problem for requirement in core if (problem := requirement.find_problem())]
    extras = dict.fromkeys(requirement.extra for requirement in requirements if requirement.extra)
    details = [_describe_extra(extra, requirements) for extra in extras]
    if problems:
        return [failed("; ".join(problems), "install massmem again: pip install --upgrade massmem", *details)]
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
        return [failed(f"only {text}", "free some space; a full disk does not lose stored data", *details)]
    return [ok(text, *details)]
