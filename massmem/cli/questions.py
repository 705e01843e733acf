"""A few questions on the terminal. Where nobody is there to answer, the default is."""

import sys
from collections.abc import Sequence

import typer

MOST = 3
_SHOWN = 20


class Questions:
    """Asks MOST questions at most; every further one, and all of them when `silent`, gets its default."""

    def __init__(self, *, silent: bool) -> None:
        self._left = 0 if silent else MOST

    @staticmethod
    def possible() -> bool:
        """Whether somebody sees a question and can answer it."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def choose(self, text: str, options: Sequence[str]) -> int:
        """The index of one of the options, by default the first. Not asked when there is only one."""
        if len(options) < 2 or not self._may_ask():
            return 0
        for number, option in enumerate(options[:_SHOWN], start=1):
            typer.echo(f"  {number}  {option}", err=True)
        most = min(len(options), _SHOWN)
        while True:
            answer: str = typer.prompt(text, default="1", err=True)
            if answer.strip().isdecimal() and 1 <= int(answer) <= most:
                return int(answer) - 1
            typer.echo(f"a number from 1 to {most}", err=True)

    def confirm(self, text: str) -> bool:
        """By default no."""
        return self._may_ask() and typer.confirm(text, default=False, err=True)

    def _may_ask(self) -> bool:
        self._left -= 1
        return self._left >= 0
