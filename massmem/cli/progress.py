"""How far a long command is, on stderr: a bar on a terminal, a line for every tenth elsewhere."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int, int], None]
"""Told how many are done, of how many."""


def display(task: str) -> AbstractContextManager[Progress]:
    """task: what is being done, in one word."""
    return _Bar(task) if sys.stderr.isatty() else nullcontext(_Lines(task))


class _Lines:
    def __init__(self, task: str) -> None:
        self._task = task
        self._shown = 0

    def __call__(self, done: int, total: int) -> None:
        tenth = done * 10 // total if total else 0
        if tenth > self._shown:
            self._shown = tenth
            sys.stderr.write(f"massmem: {self._task}: {tenth * 10} % of {total:,}\n")
            sys.stderr.flush()


class _Bar(AbstractContextManager[Progress]):
    def __init__(self, task: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(task, total=None)

    def __enter__(self) -> Progress:
        self._progress.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _update(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
