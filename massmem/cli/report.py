"""Errors as the user sees them: words on stderr, one JSON object on stdout for programs, a log file for bugs."""

import contextlib
import itertools
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from massmem import __version__
from massmem.errors import MassmemError
from massmem.home import make_file, make_folder, massmem_home
from massmem.redact import redact
from massmem.render.printable import printable

EXIT_BUG = 70
_SCHEMA_VERSION = 1


def report_error(error: MassmemError, arguments: Sequence[str]) -> int:
    """Tell the user and return the exit code."""
    _say(error.message, error.hint)
    _tell_programs(error.message, error.hint, error.exit_code, arguments)
    return error.exit_code


def tell_error(error: MassmemError) -> None:
    """Tell the user, who goes on."""
    _say(error.message, error.hint)


def report_bug(error: Exception, arguments: Sequence[str]) -> int:
    """Keep the traceback in a file that the user can send, and name it. Returns the exit code."""
    text = "".join(traceback.format_exception(error))
    message = redact(f"this is a bug in massmem: {type(error).__name__}: {error}")
    hint = f"please report it with these lines:\n{redact(text)}"
    if "--no-store" not in arguments:
        with contextlib.suppress(OSError, MassmemError):
            hint = f"please report it with this file: {_write_crash_log(text)}"
    _say(message, hint)
    _tell_programs(message, hint, EXIT_BUG, arguments)
    return EXIT_BUG


def _say(message: str, hint: str) -> None:
    lines = [f"massmem: {printable(redact(message))}", *(f"  {line}" for line in printable(redact(hint)).splitlines())]
    with contextlib.suppress(OSError):  # nobody reads stderr: the exit code still tells
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _tell_programs(message: str, hint: str, exit_code: int, arguments: Sequence[str]) -> None:
    wanted = output_format(arguments)
    if wanted is None:
        return
    found = {"status": "error", "error": redact(message), "fix": redact(hint), "exit_code": exit_code}
    first = {"type": "error"} if wanted == "jsonl" else {"schema_version": _SCHEMA_VERSION}
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps({**first, **found}) + "\n")
        sys.stdout.flush()


def output_format(arguments: Sequence[str]) -> str | None:
    """`json` or `jsonl` when a program reads stdout. Read off the raw arguments: they may not have been parseable."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    chosen = [b for a, b in itertools.pairwise(options) if a == "--output"]
    chosen += [a.removeprefix("--output=") for a in options if a.startswith("--output=")]
    if "--json" in options:
        chosen.append("json")
    return next((c for c in chosen if c in ("json", "jsonl")), None)


def _write_crash_log(text: str) -> Path:
    folder = massmem_home() / "logs"
    make_folder(folder)
    path = folder / f"crash-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    head = f"massmem {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n\n"
    make_file(path)
    path.write_text(redact(head + text), encoding="utf-8", errors="replace")
    return path
