"""Log files. Without one, Python would print warnings and tracebacks on the user's terminal."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from massmem.config.home import make_file, make_folder
from massmem.core.redact import mask, redact

DEBUG_LOGS = Path(".massmem", "massmem_logs")
"""The folder of `--debug`, in the working directory."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _RedactingFormatter(logging.Formatter):
    def __init__(self, read_params: Callable[[], Mapping[str, object]]) -> None:
        super().__init__(_FORMAT)
        self._read_params = read_params

    def format(self, record: logging.LogRecord) -> str:
        return redact(mask(super().format(record), self._read_params()))


def log_to_file(path: Path, level: int, read_params: Callable[[], Mapping[str, object]] = dict) -> Callable[[], None]:
    """Log massmem's messages of `level` and above, and warnings of libraries, to `path`, which gets mode 0600.

    Args:
        read_params: returns the values, by name, that the log must not contain.

    Returns:
        A function that stops logging to the file.

    Raises:
        HomeError, StoreError: the file cannot be created.
    """
    make_folder(path.parent)
    make_file(path)
    logging.raiseExceptions = False
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(_RedactingFormatter(read_params))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("massmem").setLevel(level)

    def stop() -> None:
        root.removeHandler(handler)
        handler.close()

    return stop


def start_logging(
    home: Path, debug_log: Path | None, read_params: Callable[[], Mapping[str, object]]
) -> Callable[[], None]:
    """Log everything to `debug_log`; without it, warnings to the log in massmem's home. As `log_to_file`."""
    if debug_log is not None:
        return log_to_file(debug_log, logging.DEBUG, read_params)
    return log_to_file(home / "logs" / "massmem.log", logging.WARNING, read_params)


def log_to_stderr(level: int) -> None:
    """Log messages of `level` and above to standard error, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(_RedactingFormatter(dict))
    logging.basicConfig(handlers=[handler], level=level)


def disable_logging() -> None:
    """Log nowhere: Python would otherwise print warnings on the user's terminal."""
    logging.getLogger().addHandler(logging.NullHandler())


def new_debug_log(folder: Path) -> Path:
    """Return the path of a new debug log below the working directory `folder`."""
    stamp = f"{datetime.now().astimezone():%Y%m%d_%H%M%S}"
    return folder / DEBUG_LOGS / f"log_{stamp}" / "massmem.log"
