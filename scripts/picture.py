#!/usr/bin/env python3
"""Draw the picture in README.md: massmem in a terminal, at the fullest moment of a turn, as an SVG file.

Usage: .venv/bin/python scripts/picture.py [FILE]
"""

import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from io import StringIO
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS, LINES = 104, 14
QUESTION = "How does massmem find an answer?"
COMMAND = ["massmem", "--config", "@examples/scripted", QUESTION]
FRAME_END = b"\x1b[?2026l"
"""Ends what a terminal is to show at once; what is printed after the turn has none."""
DEFAULT = Path(__file__).parent.parent / "docs" / "live.svg"


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else DEFAULT
    target.parent.mkdir(exist_ok=True)
    target.write_text(drawn(fullest_screen()), encoding="utf-8")


def fullest_screen() -> Text:
    """Run the program in a terminal of its own, with an empty home; the screen that showed most while it ran."""
    with tempfile.TemporaryDirectory(prefix="massmem-picture-") as home:
        pid, terminal = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
            environ = {**os.environ, "HOME": home, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            os.execve(sys.executable, [sys.executable, "-m", *COMMAND], environ)
        screen = pyte.Screen(COLUMNS, LINES)
        stream = pyte.ByteStream(screen)
        best, most = Text(), 0
        unread = b""
        while piece := _read(terminal):
            # One read may bring several frames, or half of one.
            *frames, unread = (unread + piece).split(FRAME_END)
            for frame in frames:
                stream.feed(frame)
                shown = sum(len(line.split()) for line in screen.display)
                if shown > most:
                    best, most = _styled(screen), shown
        os.close(terminal)
        os.waitpid(pid, 0)
        return best


def drawn(screen: Text) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f'$ massmem --config @examples/scripted "{QUESTION}"', style="bold"))
    console.print(screen)
    svg = console.export_svg(title="massmem", unique_id="massmem")
    # A picture must not make its reader's browser fetch a font from somewhere else.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # what Linux says when the program has ended
        return b""


def _styled(screen: pyte.Screen) -> Text:
    """The lines that have text, with their colours."""
    lines = [_line(screen, row) for row in range(screen.lines)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return Text("\n").join(lines)


def _line(screen: pyte.Screen, row: int) -> Text:
    line = Text()
    cells = (screen.buffer[row][column] for column in range(screen.columns))
    for style, alike in groupby(cells, _style):
        line.append("".join(cell.data for cell in alike), style)
    line.rstrip()
    return line


def _style(cell: Char) -> Style:
    return Style(color=_colour(cell.fg), bold=cell.bold, italic=cell.italics)


def _colour(name: str) -> str | None:
    """pyte names the eight colours, brown for yellow, and gives others as six hexadecimal digits."""
    if name == "default":
        return None
    name = name.replace("brown", "yellow").replace("bright", "bright_")
    return f"#{name}" if len(name) == 6 and all(c in "0123456789abcdef" for c in name) else name


if __name__ == "__main__":
    main(sys.argv[1:])
