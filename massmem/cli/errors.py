"""Errors as the user sees them: text on stderr, JSON on stdout for programs, a log file for bugs.

Log files, too. Without one, Python would print warnings and tracebacks on the user's terminal.
"""

import contextlib
import errno
import itertools
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from massmem import __version__
from massmem.cli.streams import notify, write_err
from massmem.config.home import make_file, make_folder, massmem_home
from massmem.core.errors import MachineError, MassmemError
from massmem.core.redact import mask, redact
from massmem.core.text import make_printable

EXIT_BUG = 70
_LIMITS = {
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.EFBIG: "raise the limit of `ulimit -f`, then run the same command again",
    errno.ENOMEM: "close other programs, or raise the limit of `ulimit -v`",
    errno.EMFILE: "raise the limit of `ulimit -n`, then run the same command again",
    errno.ENFILE: "close other programs, then run the same command again",
    errno.EROFS: "write elsewhere, or set HOME to a folder that can be written",
}
"""Hints for a machine that is at its limit, by the number of the error."""
_SCHEMA_VERSION = 1


def report_error(error: MassmemError, arguments: Sequence[str]) -> int:
    """Write the error for the user, and for a program when the arguments ask for JSON; return the exit code."""
    show_error(error)
    _write_json_error(error, error.exit_code, arguments)
    return error.exit_code


def to_machine_error(error: Exception) -> MachineError | None:
    """Return what the machine refused, with what to do about it; None for an error with another cause."""
    match error:
        case MemoryError():
            return MachineError("there is not enough memory", "close other programs, or raise the limit of `ulimit -v`")
        case OSError(errno=number) if number in _LIMITS:
            name = f": {error.filename}" if error.filename else ""
            return MachineError(f"{error.strerror}{name}", _LIMITS[number])
        case _:
            return None


def show_error(error: MassmemError) -> None:
    """Write the error and its hint to stderr."""
    with contextlib.suppress(OSError):  # the exit code reports the error when stderr is closed
        notify(redact(error.message))
        write_err(*redact(error.hint).splitlines(), indent="  ")


def report_bug(error: Exception, arguments: Sequence[str]) -> int:
    """Write the traceback to a file that the user can send, and name that file; return the exit code."""
    text = "".join(traceback.format_exception(error))
    message = redact(f"this is a bug in massmem: {type(error).__name__}: {error}")
    hint = f"please report it with these lines:\n{redact(text)}"
    if "--no-store" not in arguments:
        with contextlib.suppress(OSError, MassmemError):
            hint = f"please report it with this file: {_write_crash_log(text)}"
    bug = MassmemError(message, hint)
    show_error(bug)
    _write_json_error(bug, EXIT_BUG, arguments)
    return EXIT_BUG


def find_json_format(arguments: Sequence[str]) -> str | None:
    """Return `json` or `jsonl` when a program reads stdout.

    It is read from the raw arguments, because the error may be that they cannot be parsed.
    """
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    formats = [value for option, value in itertools.pairwise(options) if option in ("--output", "-o")]
    formats += [option.removeprefix("--output=") for option in options if option.startswith("--output=")]
    if "--json" in options:
        formats.append("json")
    return next((name for name in formats if name in ("json", "jsonl")), None)


def _write_json_error(error: MassmemError, exit_code: int, arguments: Sequence[str]) -> None:
    output = find_json_format(arguments)
    if output is None:
        return
    fields = {"status": "error", "error": redact(error.message), "fix": redact(error.hint), "exit_code": exit_code}
    first = {"type": "error"} if output == "jsonl" else {"schema_version": _SCHEMA_VERSION}
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps({**first, **fields}) + "\n")
        sys.stdout.flush()


def _write_crash_log(text: str) -> Path:
    folder = massmem_home() / "logs"
    make_folder(folder)
    path = folder / f"crash-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    head = f"massmem {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n\n"
    make_file(path)
    path.write_text(redact(head + text), encoding="utf-8", errors="replace")
    return path


DEBUG_LOGS = Path(".massmem", "massmem_logs")
"""The folder of `--debug`, in the working directory."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _RedactingFormatter(logging.Formatter):
    def __init__(self, read_params: Callable[[], Mapping[str, object]], form: str = _FORMAT) -> None:
        super().__init__(form)
        self._read_params = read_params

    def format(self, record: logging.LogRecord) -> str:
        return make_printable(redact(mask(super().format(record), self._read_params())))


def start_logging(
    home: Path, debug_log: Path | None, read_params: Callable[[], Mapping[str, object]]
) -> Callable[[], None]:
    """Log massmem's messages, and warnings of libraries, to a file with mode 0600; return what stops that.

    debug_log: gets everything; None: warnings go to the log in massmem's home. read_params: returns the values, by
    name, that the log must not contain.

    Raises HomeError, StoreError: the file cannot be created.
    """
    path = debug_log or home / "logs" / "massmem.log"
    make_folder(path.parent)
    make_file(path)
    logging.raiseExceptions = False
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(_RedactingFormatter(read_params))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("massmem").setLevel(logging.DEBUG if debug_log else logging.WARNING)

    def stop() -> None:
        root.removeHandler(handler)
        handler.close()

    return stop


def log_to_stderr(level: int, form: str = _FORMAT) -> None:
    """Log messages of `level` and above to standard error, without secrets. form: of a line."""
    handler = logging.StreamHandler()
    handler.setFormatter(_RedactingFormatter(dict, form))
    logging.basicConfig(handlers=[handler], level=level)


def disable_logging() -> None:
    """Log nowhere: Python would otherwise print warnings on the user's terminal."""
    logging.getLogger().addHandler(logging.NullHandler())


def new_debug_log() -> Path:
    """Return the path of a new log below the working directory."""
    with contextlib.suppress(OSError):  # an empty .massmem marks a project; one with debug logs alone does not
        if not [*DEBUG_LOGS.parent.iterdir()]:
            (DEBUG_LOGS.parent / "project").touch()
    return DEBUG_LOGS.absolute() / f"log_{datetime.now().astimezone():%Y%m%d_%H%M%S}" / "massmem.log"
