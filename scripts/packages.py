"""Fails when .venv has packages that pyproject.toml does not ask for: tests that meet one end otherwise without it.

Usage: .venv/bin/python scripts/packages.py     (scripts/check calls it)
"""

import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def list_needed(requirements: Sequence[str]) -> set[str]:
    """Return the names of these packages and of all that they need on this machine."""
    needed: set[tuple[str, str]] = set()
    waiting = [(Requirement(line), "") for line in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for more in {(name, part) for part in ("", *requirement.extras)} - needed:
            needed.add(more)
            try:
                waiting += [(Requirement(line), more[1]) for line in requires(name) or ()]
            except PackageNotFoundError:  # a test that needs it is skipped
                continue
    return {name for name, _ in needed}


def main() -> int:
    project = tomllib.loads(Path("pyproject.toml").read_text())
    groups, extras = project["dependency-groups"], ",".join(project["project"]["optional-dependencies"])
    present = {canonicalize_name(package.name) for package in distributions()}
    strays = present - list_needed([f"massmem[{extras}]", *groups["dev"], *groups["docs"]])
    for name in sorted(strays):
        print(f"{name} is in .venv, and pyproject.toml does not ask for it: uninstall it, or add it to the group dev")
    return 1 if strays else 0


if __name__ == "__main__":
    sys.exit(main())
