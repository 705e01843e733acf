"""What a user gets with the core of massmem: packages, megabytes and seconds; and the first scripts/run."""

import os
import shutil
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

from massmem.weights import DEFAULT
from scripts.benches.process import BenchError, Command, environment, measure, workspace
from scripts.benches.rows import ROOT, Row, at_most, missing, reported

MOST_PACKAGES = 60
MOST_MB = 300
FIRST_RUN_LIMIT = 900.0

_TOOLS = {"pip", "setuptools", "wheel", "uv"}
_QUESTION = "What is the capital of France? Answer in one word."


def run() -> list[Row]:
    with workspace() as folder:
        seconds = _install(folder / "venv", folder)
        site = next((folder / "venv" / "lib").glob("python*/site-packages"))
        packages = _packages(site)
        whole, bare = _megabytes(site)
        largest = ", ".join(f"{name} {size:.0f}" for name, size in _largest(site))
        return [
            at_most("packages in a fresh environment", len(packages), "", MOST_PACKAGES),
            at_most("site-packages", whole, "MB", MOST_MB, f"largest: {largest}"),
            reported("site-packages without compiled byte code", bare, "MB"),
            reported("installing them", seconds, "s", _installer() + ", as the cache and the network are now"),
            *_first_run(folder),
        ]


def _installer() -> str:
    return "uv" if shutil.which("uv") else "pip"


def _install(venv: Path, folder: Path) -> float:
    """Make the environment and install the checkout into it, without extras; seconds."""
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


def _packages(site: Path) -> set[str]:
    return {each.metadata["Name"].lower() for each in distributions(path=[str(site)])} - _TOOLS


def _megabytes(site: Path) -> tuple[float, float]:
    """On disk, tools for installing left out: with and without __pycache__."""
    files = [path for path in site.rglob("*") if path.is_file() and not _of_tool(path.relative_to(site))]
    whole = sum(_on_disk(path) for path in files)
    return whole, sum(_on_disk(path) for path in files if path.parent.name != "__pycache__")


def _of_tool(path: Path) -> bool:
    return path.parts[0].partition("-")[0] in _TOOLS


def _on_disk(path: Path) -> float:
    """MB as du counts them."""
    return path.lstat().st_blocks * 512 / 1e6


def _largest(site: Path, count: int = 4) -> list[tuple[str, float]]:
    sizes = {
        entry.name: sum(_on_disk(path) for path in entry.rglob("*") if path.is_file())
        for entry in site.iterdir()
        if entry.is_dir() and not _of_tool(entry.relative_to(site))
    }
    return sorted(sizes.items(), key=lambda item: -item[1])[:count]


def _first_run(folder: Path) -> list[Row]:
    """scripts/run in a fresh clone with a new HOME, the weights on disk already."""
    first = "first scripts/run in a fresh clone, weights on disk"
    models = Path(os.environ.get("MASSMEM_MODELS") or Path.home() / ".massmem" / "models")
    if not (models / DEFAULT.file).is_file():
        return [missing(first, f"{models / DEFAULT.file} is not there: massmem models fetch")]
    clone, home = folder / "clone", folder / "home"
    home.mkdir()
    env = environment(home, MASSMEM_MODELS=str(models), **_package_index())
    scripts = clone / "scripts"
    try:
        measure(Command(("git", "clone", "--quiet", str(ROOT), str(clone)), env, folder))
        # It begins with scripts/install, which is run before it here to tell the two apart.
        installing, answering, again = (
            measure(Command(tuple(map(str, argv)), env, clone), FIRST_RUN_LIMIT).wall
            for argv in (
                (scripts / "install",),
                (scripts / "run", "--quiet", _QUESTION),
                (scripts / "run", "--version"),
            )
        )
    except BenchError as e:
        return [missing(first, str(e))]
    note = f"{installing:.1f} s to install, {answering:.1f} s for the model to load, answer and vote; as committed"
    return [
        reported(first, installing + answering, "s", note),
        reported("scripts/run --version after that", 1000 * again, "ms"),
    ]


def _package_index() -> dict[str, str]:
    """Where this user's pip looks for packages: the new HOME does not know it."""
    settings = Path.home() / ".config" / "pip" / "pip.conf"
    return {"PIP_CONFIG_FILE": str(settings)} if settings.is_file() else {}
