"""Log files. Without one, Python would print warnings and tracebacks between the lines of the user's terminal."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from massmem.home import make_file, make_folder
from massmem.redact import masked, redact

DEBUG_LOGS = Path(".massmem", "massmem_logs")
"""Where `--debug` writes, in the working directory."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _RedactingFormatter(logging.Formatter):
    def __init__(self, hidden: Callable[[], Mapping[str, object]]) -> None:
        super().__init__(_FORMAT)
        self._hidden = hidden

    def format(self, record: logging.LogRecord) -> str:
        return redact(masked(super().format(record), self._hidden()))


def log_to_file(
    path: Path, level: int, hidden: Callable[[], Mapping[str, object]] = dict
) -> Callable[[], None]:  # fmt: skip
    """Send what massmem logs at `level` or above, and any library's warnings, to `path` (made 0600 when missing).

    hidden: the values, by name, that must not be in it now. Returns what ends it.

    Raises:
        HomeError, StoreError: the file cannot be made.
    """
    make_folder(path.parent)
    make_file(path)
    logging.raiseExceptions = False
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(_RedactingFormatter(hidden))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("massmem").setLevel(level)

    def end() -> None:
        root.removeHandler(handler)
        handler.close()

    return end


def log_nowhere() -> None:
    """Write no log at all."""
    logging.getLogger().addHandler(logging.NullHandler())


def debug_log_path(folder: Path) -> Path:
    """Where `--debug` writes in the working directory `folder`."""
    stamp = f"{datetime.now().astimezone():%Y%m%d_%H%M%S}"
    return folder / DEBUG_LOGS / f"log_{stamp}" / "massmem.log"
