"""The lines that a user has typed, kept between runs: without secrets, for the user alone, and not for ever."""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History, InMemoryHistory

from massmem.errors import MassmemError
from massmem.home import make_file, make_folder
from massmem.redact import redact

log = logging.getLogger(__name__)

MOST = 1_000
"""Lines that are kept."""
LONGEST = 10_000
"""Characters; a longer line is not kept."""


class LinesKept(History):
    """A JSON string per line of the file `path`, oldest first. What cannot be read or written is done without."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        found = self._read()
        if len(found) > 2 * MOST:
            self._shorten(found[-MOST:])
        return reversed(found[-MOST:])

    def store_string(self, string: str) -> None:
        if len(string) > LONGEST:
            return
        try:
            make_folder(self._path.parent)
            make_file(self._path)
            # One write at the end of the file: lines of other processes stay whole.
            with self._path.open("ab", buffering=0) as file:
                file.write(_packed(string).encode())
        except (OSError, MassmemError) as e:
            log.warning("a line was not kept for later: %s", e)

    def _read(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return []
        return [text for line in lines if (text := _unpacked(line)) is not None]

    def _shorten(self, lines: Iterable[str]) -> None:
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            make_file(part)
            part.write_text("".join(map(_packed, lines)), encoding="utf-8")
            part.replace(self._path)
        except (OSError, MassmemError) as e:
            log.warning("old lines were not removed: %s", e)


def lines_of_this_run() -> History:
    """For who wants nothing kept."""
    return InMemoryHistory()


def _packed(text: str) -> str:
    return json.dumps(redact(text)) + "\n"


def _unpacked(line: str) -> str | None:
    try:
        text: object = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
