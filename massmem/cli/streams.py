"""Standard input and output, the progress of long commands on stderr, and files that a user asked to be written."""

import errno
import io
import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from textwrap import wrap
from threading import Timer
from typing import TYPE_CHECKING, Any

from massmem.core.errors import InputError, MassmemError
from massmem.core.text import dump_json, make_printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.progress import Progress as Bar

_STDERR = 2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputError(MassmemError):
    """Standard output cannot be written: the disk is full or the device is gone."""


class _LossyFile(io.FileIO):
    """Standard error. What does not fit on a full disk is lost: the answer does not depend on it."""

    def write(self, data: "ReadableBuffer", /) -> int | None:
        try:
            return super().write(data)
        except OSError as e:
            if e.errno not in _FULL:
                raise
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Open missing standard streams on /dev/null; never fail on a character that a stream cannot encode.

    Standard error also never fails because the disk is full.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stderr is sys.__stderr__ and sys.stderr.fileno() == _STDERR:
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_LossyFile(_STDERR, "w", closefd=False)),
            encoding=sys.stderr.encoding,
            errors="replace",
            line_buffering=True,
        )


def write_out(text: str, *, styled: bool = False) -> None:
    """Write to standard output and flush, without anything that a terminal would obey: a pipe may end in one.

    styled: on a terminal, the text is written as it is, with styles of our own. Raises OutputError, BrokenPipeError.
    """
    try:
        sys.stdout.write(text if styled and sys.stdout.isatty() else make_printable(text))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        discard_output()
        raise OutputError(f"standard output cannot be written: {e.strerror}", "free space or write elsewhere") from e


def write_json(value: Any, indent: int | None = None) -> None:
    """Write a JSON value to standard output, on one line without `indent`. Raises as `write_out`."""
    write_out(dump_json(value, indent) + "\n")


def write_err(*lines: str, indent: str = "") -> None:
    """Write lines to standard error, without anything that a terminal would obey; to a terminal, broken at words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else sys.maxsize
    shown = [_break_line(f"{indent}{line}".rstrip(), width) for line in lines]
    sys.stderr.write(make_printable("".join(f"{line}\n" for line in shown)))
    sys.stderr.flush()


def _break_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    margin = " " * (len(line) - len(line.lstrip()) + 2)
    pieces = wrap(line, width - 2, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)
    command = next((number for number, piece in enumerate(pieces) if "massmem -" in piece), len(pieces))
    return " \\\n".join(("\n".join(pieces[: command + 1]), *pieces[command + 1 :]))  # a shell reads it as one line


def notify(message: str) -> None:
    """Write `massmem: MESSAGE` to standard error."""
    write_err(f"massmem: {message}")


def choose_option(question: str, options: Sequence[str]) -> int:
    """Let the user choose one of these lines at the terminal; return its index. The default is the first."""
    import typer

    for number, option in enumerate(options, start=1):
        write_err(f"  {number}  {option}")
    while True:
        answer: str = typer.prompt(question, default="1", err=True)
        if answer.strip().isdecimal() and 1 <= int(answer) <= len(options):
            return int(answer) - 1
        write_err(f"a number from 1 to {len(options)}")


def discard_output() -> None:
    """Drop what cannot be flushed, so that the interpreter does not complain about it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def open_output(path: Path | None) -> Generator[Callable[[str], object]]:
    """Return a function that writes text to the file, or to standard output when `path` is None.

    The file is readable by its owner alone, and replaces an older one only when the block has succeeded.

    Raises InputError: the file cannot be written.
    """
    if path is None:
        yield write_out
        return
    try:
        if path.exists() and not path.is_file():  # a device or a pipe, which cannot be replaced; a folder is refused
            with path.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
                yield file.write
            return
        path = Path(os.path.realpath(path))  # a link stays, and what it points to is replaced
        part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
                yield file.write
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}", "choose another file") from e


Progress = Callable[[int, int | None], None]
"""(done, total): reports how many items or bytes are done; total is None when it is unknown."""

MB = 1e6
PATIENCE = 0.7
"""Seconds after which an activity is shown by a clock."""
LONG_PATIENCE = 5.0
"""Seconds after which an activity is shown by a line that stays."""


def show_progress(task: str, *, in_bytes: bool = False, quiet: bool = False) -> AbstractContextManager[Progress]:
    """Return what displays the progress of `task`, a word such as `recording` or the name of a download."""
    if quiet:
        return nullcontext(lambda _done, _total: None)
    return _show_bar(task, in_bytes) if sys.stderr.isatty() else nullcontext(_Lines(task, in_bytes))


@contextmanager
def show_activity(task: str, *, quiet: bool = False, animated: bool = True) -> Generator[None]:
    """Show what is being done until the end of the block, when it takes longer than a moment.

    quiet: show nothing. animated: on a terminal with cursor control, show a line with a moving clock, which is erased
    at the end; else a line that stays.
    """
    if quiet:
        yield
        return
    bar = _create_clock(task) if animated and has_cursor() else None
    timer = Timer(PATIENCE, bar.start) if bar else Timer(LONG_PATIENCE, notify, (f"{task} ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if bar and bar.live.is_started:
            bar.stop()


def has_cursor() -> bool:
    """Return whether stderr is a terminal with cursor control."""
    if not sys.stderr.isatty() and {"FORCE_COLOR", "TTY_COMPATIBLE"}.isdisjoint(os.environ):
        return False
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal and not console.is_dumb_terminal


def _create_clock(task: str) -> "Bar":
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(task, total=None)
    return bar


@contextmanager
def _show_bar(task: str, in_bytes: bool) -> Generator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), amount, TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=not in_bytes) as bar:
        task_id = bar.add_task(task, total=None)
        yield lambda done, total: bar.update(task_id, completed=done, total=total)


class _Lines:
    """Writes a line for every tenth; of a download also at its start, and every 100 MB when its size is unknown.

    Nothing is written when there is nothing to do.
    """

    def __init__(self, task: str, in_bytes: bool) -> None:
        self._task = task
        self._in_bytes = in_bytes
        self._last = "" if in_bytes else self._describe(0, 1)

    def __call__(self, done: int, total: int | None) -> None:
        step = self._describe(done, total)
        if total != 0 and step != self._last:
            self._last = step
            part = step if self._in_bytes or not total else f"{done:,}"
            whole = f" of {total / MB:,.1f} MB" if self._in_bytes and total else f" of {total:,}" if total else ""
            notify(f"{self._task}: {part}{whole}")

    def _describe(self, done: int, total: int | None) -> str:
        return f"{done * 10 // total * 10} %" if total else f"{int(done / MB) // 100 * 100} MB"
