"""Projects: the repository, or the marked folder, that a conversation and its memories belong to. Runs no program."""

import os
import re
from collections.abc import Collection
from pathlib import Path

from massmem.config.home import expand_home, massmem_home
from massmem.core.errors import InputError

_MARK = ".massmem"
_DEBUG_LOGS = "massmem_logs"
"""`--debug` writes it into whichever folder one is in: it marks no project by itself."""


def find_project(folder: Path | None = None) -> str:
    """Return the root of the project that a folder is in; "": it is in none. folder: None: the working directory.

    The root is the nearest folder, from this one upwards, with a `.git` or a `.massmem` that is not massmem's own.
    """
    try:
        folder = (folder or Path.cwd()).resolve()
    except (OSError, RuntimeError):  # it was deleted, or links go round
        return ""
    home = massmem_home().resolve()
    for place in (folder, *folder.parents):
        if os.path.lexists(place / ".git") or (place / _MARK != home and _is_mark(place / _MARK)):
            return str(place)
    return ""


def name_project(project: str) -> str:
    """Return what people call it: the name of its folder, on whichever machine that is."""
    return re.split(r"[/\\]", project.rstrip("/\\"))[-1] or project


def choose_project(name: str, known: Collection[str]) -> str:
    """Return the project that the user means by its name, or by a path in it; "" for "".

    Raises InputError: there is none, or several have the name.
    """
    if not name or name in known:
        return name
    if len(matches := sorted(project for project in known if name_project(project) == name)) > 1:
        raise InputError(f"{len(matches)} projects are called {name}", f"name one by its path: {', '.join(matches)}")
    folder = expand_home(name)
    if chosen := next(iter(matches), "") or (find_project(folder) if folder.is_dir() else ""):
        return chosen
    names = ", ".join(sorted(set(map(name_project, known)))[:20])
    raise InputError(
        f"there is no project {name[:200]!r}",
        f"name one of {names}, or a folder in a repository" if names else "name a folder in a repository",
    )


def _is_mark(path: Path) -> bool:
    try:
        return [one.name for one in path.iterdir()] != [_DEBUG_LOGS]
    except OSError:
        return False
