"""A block of lines at the bottom of a terminal, updated in place.

rich.live redraws the whole block 8 times a second, which flickers over slow connections; this sends only differences.
"""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
# "Synchronized output": terminals that support it show the text between these at once, others ignore them.
_BEGIN_UPDATE, _END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
_ERASE_BELOW, _ERASE_LINE = "\x1b[J", "\x1b[K"
_NEXT_LINE = f"\x1b[B{_ERASE_LINE}"


class Screen:
    """Each line must fit the width of the terminal. The hidden cursor stays on the last line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[Text] = []
        self._width = 0
        self._open = False

    def draw(self, lines: Sequence[Text]) -> None:
        """Replace the block by these lines."""
        width = self._console.width
        parts = [_BEGIN_UPDATE]
        if not self._open:
            self._open = True
            parts.append(_HIDE_CURSOR)
        if width != self._width and self._lines:
            parts.append(self._erase(width))
        self._width = width
        parts += self._update(lines)
        self._lines = list(lines)
        if len(parts) > 1:
            self._send("".join((*parts, _END_UPDATE)))

    def print_above(self, text: Text) -> None:
        """Print text that stays, above the block."""
        with self._console.capture() as capture:
            self._console.print(text, soft_wrap=True, highlight=False)
        output, lines = capture.get(), self._lines
        if self._open and lines:
            erase = self._erase(self._console.width)
            redraw, self._lines = "".join(self._update(lines)), lines
            output = f"{_BEGIN_UPDATE}{erase}{output}{redraw}{_END_UPDATE}"
        self._send(output)

    def clear(self) -> None:
        """Erase the block and show the cursor where its first line was."""
        if self._open:
            self._send(self._erase(self._console.width) + _SHOW_CURSOR)
        self._open, self._lines = False, []

    def _erase(self, width: int) -> str:
        """Return what erases the block; a terminal that became narrower has wrapped its lines.

        Line by line: a terminal whose whole screen is erased at once may keep a copy above it (tmux does), which
        stays in the history.
        """
        rows = sum(max(-(-cell_len(line.plain.rstrip()) // max(width, 1)), 1) for line in self._lines)
        self._lines = []
        return f"\r{_move_up(rows - 1)}{_ERASE_LINE}{_NEXT_LINE * (rows - 1)}{_move_up(rows - 1)}"

    def _update(self, lines: Sequence[Text]) -> list[str]:
        """Return what turns the block into these lines, with the cursor from its last line to theirs."""
        row, parts = max(len(self._lines) - 1, 0), list[str]()
        for i, line in enumerate(lines):
            if i < len(self._lines) and _equal(line, self._lines[i]):
                continue
            parts.append(_move(row, i, len(self._lines)))
            parts.append(self._draw_line(line))
            row = i
        if len(lines) < len(self._lines):
            parts.append(f"{_move(row, len(lines), len(self._lines))}{_ERASE_BELOW}")
            row = len(lines)
        last = max(len(lines) - 1, 0)
        return [*parts, _move(row, last, len(lines))] if row != last else parts

    def _draw_line(self, line: Text) -> str:
        with self._console.capture() as capture:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return capture.get() + _ERASE_LINE

    def _send(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def _equal(one: Text, other: Text) -> bool:
    return one.plain == other.plain and one.style == other.style and one.spans == other.spans


def _move(row: int, target: int, rows: int) -> str:
    """Return what moves from one row to the start of another; a line break creates a row beyond the last."""
    if target <= row:
        return "\r" + _move_up(row - target)
    down = min(target, max(rows - 1, row)) - row
    return ("\r" + f"\x1b[{down}B" if down else "\r") + "\n" * (target - row - down)


def _move_up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""
