"""Lines at the bottom of a terminal that change in place: only what differs is sent, so that nothing flickers."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
# Terminals that know these show what is between them at once; others ignore them (Contour's "synchronized output").
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_ERASE_BELOW, _ERASE_LINE = "\x1b[J", "\x1b[K"


class Screen:
    """Lines must fit the terminal. The cursor stays on the last of them, hidden."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[Text] = []
        self._width = 0
        self._open = False

    def draw(self, lines: Sequence[Text]) -> None:
        """Show these lines instead of those shown now."""
        width = self._console.width
        parts = [_BEGIN]
        if not self._open:
            self._open = True
            parts.append(_HIDE)
        if width != self._width and self._shown:
            parts.append(self._erased(width))
        self._width = width
        parts += self._changes(lines)
        self._shown = list(lines)
        if len(parts) > 1:
            self._send("".join((*parts, _END)))

    def say(self, text: Text) -> None:
        """Print what stays, above the lines, and these again below it."""
        with self._console.capture() as written:
            self._console.print(text, soft_wrap=True, highlight=False)
        said, shown = written.get(), self._shown
        if self._open and shown:
            erased = self._erased(self._console.width)
            again, self._shown = "".join(self._changes(shown)), shown
            said = f"{_BEGIN}{erased}{said}{again}{_END}"
        self._send(said)

    def clear(self) -> None:
        """Erase the lines; the cursor is where the first of them was, and seen again."""
        if self._open:
            self._send(self._erased(self._console.width) + _SHOW)
        self._open, self._shown = False, []

    def _erased(self, width: int) -> str:
        """A terminal that became narrower has broken lines that no longer fit."""
        rows = sum(max(-(-cell_len(line.plain.rstrip()) // max(width, 1)), 1) for line in self._shown)
        self._shown = []
        return f"\r{_up(rows - 1)}{_ERASE_BELOW}"

    def _changes(self, lines: Sequence[Text]) -> list[str]:
        """What turns the lines shown into these, from the last line of the ones to the last of the others."""
        row, parts = max(len(self._shown) - 1, 0), list[str]()
        for i, line in enumerate(lines):
            if i < len(self._shown) and _same(line, self._shown[i]):
                continue
            parts.append(_moved(row, i, len(self._shown)))
            parts.append(self._drawn(line))
            row = i
        if len(lines) < len(self._shown):
            parts.append(f"{_moved(row, len(lines), len(self._shown))}{_ERASE_BELOW}")
            row = len(lines)
        last = max(len(lines) - 1, 0)
        return [*parts, _moved(row, last, len(lines))] if row != last else parts

    def _drawn(self, line: Text) -> str:
        with self._console.capture() as written:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return written.get() + _ERASE_LINE

    def _send(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def _same(one: Text, other: Text) -> bool:
    return one.plain == other.plain and one.style == other.style and one.spans == other.spans


def _moved(row: int, to: int, rows: int) -> str:
    """From one row to the beginning of another; a line break makes rows that are not there."""
    if to <= row:
        return "\r" + _up(row - to)
    down = min(to, max(rows - 1, row)) - row
    return ("\r" + f"\x1b[{down}B" if down else "\r") + "\n" * (to - row - down)


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""
