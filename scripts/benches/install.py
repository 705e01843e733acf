"""Packages, megabytes and seconds of installing the core of massmem, and of the first scripts/run."""

import os
import shutil
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

from massmem.providers.weights import DEFAULT
from scripts.benches.process import BenchError, Command, environment, measure, workspace
from scripts.benches.rows import ROOT, Row, at_most, missing, reported

MAX_PACKAGES = 60
MAX_MB = 300
FIRST_RUN_LIMIT = 900.0

_INSTALLERS = {"pip", "setuptools", "wheel", "uv"}
_QUESTION = "What is the capital of France? Answer in one word."


def run() -> list[Row]:
    with workspace() as folder:
        seconds = _install(folder / "venv", folder)
        site = next((folder / "venv" / "lib").glob("python*/site-packages"))
        packages = _list_packages(site)
        total, without_bytecode = _measure_size(site)
        largest = ", ".join(f"{name} {size:.0f}" for name, size in _find_largest(site))
        return [
            at_most("packages in a fresh environment", len(packages), "", MAX_PACKAGES),
            at_most("site-packages", total, "MB", MAX_MB, f"largest: {largest}"),
            reported("site-packages without compiled byte code", without_bytecode, "MB"),
            reported("installing them", seconds, "s", _installer() + ", as the cache and the network are now"),
            *_first_run(folder),
        ]


def _installer() -> str:
    return "uv" if shutil.which("uv") else "pip"


def _install(venv: Path, folder: Path) -> float:
    """Create the environment and install the checkout without extras; return the seconds."""
    if shutil.which("uv"):
        make = ("uv", "venv", "--quiet", "--python", sys.executable, str(venv))
        install = ("uv", "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), str(ROOT))
    else:
        make = (sys.executable, "-m", "venv", str(venv))
        install = (str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", str(ROOT))
    start = time.perf_counter()
    for argv in (make, install):
        measure(Command(argv, os.environ, folder), FIRST_RUN_LIMIT)
    return time.perf_counter() - start


def _list_packages(site: Path) -> set[str]:
    return {package.metadata["Name"].lower() for package in distributions(path=[str(site)])} - _INSTALLERS


def _measure_size(site: Path) -> tuple[float, float]:
    """Return the MB on disk with and without __pycache__, installers excluded."""
    files = [path for path in site.rglob("*") if path.is_file() and not _is_installer(path.relative_to(site))]
    total = sum(_size_on_disk(path) for path in files)
    return total, sum(_size_on_disk(path) for path in files if path.parent.name != "__pycache__")


def _is_installer(path: Path) -> bool:
    return path.parts[0].partition("-")[0] in _INSTALLERS


def _size_on_disk(path: Path) -> float:
    """Return MB as du counts them."""
    return path.lstat().st_blocks * 512 / 1e6


def _find_largest(site: Path, count: int = 4) -> list[tuple[str, float]]:
    sizes = {
        entry.name: sum(_size_on_disk(path) for path in entry.rglob("*") if path.is_file())
        for entry in site.iterdir()
        if entry.is_dir() and not _is_installer(entry.relative_to(site))
    }
    return sorted(sizes.items(), key=lambda item: -item[1])[:count]


def _first_run(folder: Path) -> list[Row]:
    """Measure scripts/run in a fresh clone with a new HOME, with the weights on disk."""
    name = "first scripts/run in a fresh clone, weights on disk"
    models = Path(os.environ.get("MASSMEM_MODELS") or Path.home() / ".massmem" / "models")
    if not (models / DEFAULT.file).is_file():
        return [missing(name, f"{models / DEFAULT.file} is missing: massmem models fetch")]
    clone, home = folder / "clone", folder / "home"
    home.mkdir()
    env = environment(home, MASSMEM_MODELS=str(models), **_package_index())
    scripts = clone / "scripts"
    try:
        measure(Command(("git", "clone", "--quiet", str(ROOT), str(clone)), env, folder))
        # scripts/run starts with scripts/install, which is measured separately here.
        installing, answering, again = (
            measure(Command(tuple(map(str, argv)), env, clone), FIRST_RUN_LIMIT).wall
            for argv in (
                (scripts / "install",),
                (scripts / "run", "--quiet", _QUESTION),
                (scripts / "run", "--version"),
            )
        )
    except BenchError as e:
        return [missing(name, str(e))]
    note = f"{installing:.1f} s to install, {answering:.1f} s for the model to load, answer and vote; as committed"
    return [
        reported(name, installing + answering, "s", note),
        reported("scripts/run --version after that", 1000 * again, "ms"),
    ]


def _package_index() -> dict[str, str]:
    """Return the pip configuration of this user, which the new HOME lacks."""
    settings = Path.home() / ".config" / "pip" / "pip.conf"
    return {"PIP_CONFIG_FILE": str(settings)} if settings.is_file() else {}
