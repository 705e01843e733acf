"""Progress of a long command on stderr: a bar on a terminal, a line for every tenth elsewhere."""

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from massmem.cli.streams import notify

Progress = Callable[[int, int | None], None]
"""(done, total): reports how many items or bytes are done; total is None when it is unknown."""

MB = 1e6


def show_progress(task: str, *, in_bytes: bool = False) -> AbstractContextManager[Progress]:
    """Return what displays the progress of `task`, a word such as `recording` or the name of a download."""
    return _show_bar(task, in_bytes) if sys.stderr.isatty() else nullcontext(_Lines(task, in_bytes))


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
    """Writes a line for every tenth; of a download also at its start, and every 100 MB when its size is unknown."""

    def __init__(self, task: str, in_bytes: bool) -> None:
        self._task = task
        self._in_bytes = in_bytes
        self._last = "" if in_bytes else self._describe(0, 1)

    def __call__(self, done: int, total: int | None) -> None:
        step = self._describe(done, total)
        if step != self._last:
            self._last = step
            notify(f"{self._task}: {step} of {self._format(total)}" if total else f"{self._task}: {step}")

    def _describe(self, done: int, total: int | None) -> str:
        return f"{done * 10 // total * 10} %" if total else f"{int(done / MB) // 100 * 100} MB"

    def _format(self, total: int) -> str:
        return f"{total / MB:,.1f} MB" if self._in_bytes else f"{total:,}"
