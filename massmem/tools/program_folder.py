"""The folder of an agent program: what it may read, or change where that is allowed, by our rules for secrets."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from massmem.config.models import FolderConfig
from massmem.core.errors import InputError
from massmem.core.messages import clean_text

_PLACES = ("cwd", "workdir", "directory", "file", "files", "source", "destination")
_SKIPPED = {".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache"}
_MOST_FILES = 50_000
"""Of a folder that is compared."""
_CHANGES = ("edit", "delete", "move")
"""Kinds of calls that have to say what they change."""


class ProgramFolder:
    """See `massmem.providers.base.FolderAccess`."""

    def __init__(self, folder: str) -> None:
        self._folder, self._root = folder, Path(folder).resolve()

    async def read(self, path: str, first: int, most: int | None) -> str:
        from massmem.tools.file_tools import FileTools

        try:
            return await FileTools([FolderConfig(path=self._folder)]).read_text(path, first, most)
        except (ValueError, OSError) as e:
            raise InputError(f"{path} cannot be read: {e}") from e

    def allows(self, call: Mapping[str, Any]) -> bool:
        paths = list(_list_paths(call))
        with suppress(OSError, ValueError, RuntimeError):
            return all(map(self._find, paths)) and (bool(paths) or call.get("kind") not in _CHANGES)
        return False

    def write(self, path: str, text: str) -> None:
        place = self._find(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".massmem-") as spare:
            new = Path(spare, "new")
            new.write_text(text, "utf-8", newline="")
            new.chmod(place.stat().st_mode & 0o777 if place.exists() else 0o644)
            new.replace(place)

    def take_snapshot(self) -> dict[str, tuple[int, int]] | None:
        """Return size and time of each file, without those of git, packages and caches; None: there are too many."""
        files: dict[str, tuple[int, int]] = {}
        for folder, names, file_names in os.walk(self._root):
            names[:] = [name for name in names if name not in _SKIPPED]
            for path in (Path(folder, name) for name in file_names):
                with suppress(OSError):  # it is gone
                    state = path.lstat()
                    files[clean_text(str(path.relative_to(self._root)))] = (state.st_size, state.st_mtime_ns)
            if len(files) > _MOST_FILES:
                return None
        return files

    def _find(self, path: str) -> Path:
        """Return where a path leads, without links. Raises as `write`."""
        from massmem.tools.folder import is_secret

        place = Path(self._root, Path(path).expanduser()).resolve()
        names = place.relative_to(self._root).parts
        if ".git" in map(str.lower, names) or (names and is_secret("/".join(names))):
            raise ValueError(f"{path} is not for programs: it is git's own, or may hold secrets")
        return place


def _list_paths(value: Any, key: str = "") -> Iterator[str]:
    """Yield the paths that a request for permission names. In `changes`, as Codex has them, they are the keys."""
    if isinstance(value, str) and ("path" in key.lower() or key in _PLACES):
        yield value
    inside: Any = value
    items = inside.items() if isinstance(value, dict) else [(key, v) for v in inside] if isinstance(value, list) else ()
    for name, inner in items:
        yield from [name] if key == "changes" and name != key else _list_paths(inner, name)
