"""The block of lines as a terminal emulator shows it."""

import io

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from massmem.render.screen import Screen

WIDTH, HEIGHT = 40, 10


class Terminal:
    def __init__(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.sent = io.StringIO()
        self.console = Console(file=self.sent, force_terminal=True, width=width, height=height, color_system="standard")
        self.pyte = pyte.Screen(width, height)
        self._stream = pyte.Stream(self.pyte)

    def feed(self) -> int:
        """Pass the new output to the terminal; return its length in characters."""
        text = self.sent.getvalue()
        self.sent.seek(0)
        self.sent.truncate()
        # A terminal driver turns each line feed into carriage return and line feed.
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.pyte.display]


def texts(*lines: str) -> list[Text]:
    return [Text(line, style="bold") for line in lines]


FRAMES = st.lists(st.text("abc ", max_size=WIDTH), min_size=1, max_size=HEIGHT - 2)
PRINTED = st.text("xyz", min_size=1, max_size=30)


@given(before=st.integers(0, HEIGHT), steps=st.lists(st.one_of(FRAMES, PRINTED), min_size=1))
def test_terminal_shows_what_is_drawn_and_printed(before: int, steps: list[list[str] | str]):
    """With any number of lines before, frames that grow and shrink, and lines printed in between."""
    terminal = Terminal()
    terminal.sent.write("old\n" * before)
    screen, printed, block, scrolled = Screen(terminal.console), ["old"] * before, [""], 0
    for step in steps:
        if isinstance(step, str):
            screen.print_above(Text(step))
            printed.append(step)
        else:
            screen.draw(texts(*step))
            block = step
        terminal.feed()
        rows = [*printed, *block]
        # Lines that scrolled off the top do not come back.
        scrolled = max(scrolled, len(rows) - HEIGHT)
        expected = rows[scrolled:] + [""] * HEIGHT
        assert terminal.lines() == [row.rstrip() for row in expected[:HEIGHT]]
    screen.clear()
    terminal.feed()
    assert terminal.lines() == (printed[scrolled:] + [""] * HEIGHT)[:HEIGHT]
    assert not terminal.pyte.cursor.hidden


def test_only_changed_lines_are_sent():
    terminal = Terminal(width=100, height=60)
    screen = Screen(terminal.console)
    lines = [f"agent {i} thinks about this and that" for i in range(50)]
    screen.draw(texts(*lines))
    first = terminal.feed()
    screen.draw(texts(*lines))
    assert terminal.feed() == 0
    lines[30] = "agent 30 has answered"
    screen.draw(texts(*lines))
    assert terminal.feed() < 80 < 2_000 < first
    assert terminal.lines()[30] == "agent 30 has answered"


@pytest.mark.parametrize("width", [20, 60])
def test_resized_terminal_is_redrawn(width: int):
    """A narrower terminal wraps the old lines into more rows, and all of them are erased."""
    terminal = Terminal()
    screen = Screen(terminal.console)
    terminal.sent.write("stays\n")
    screen.draw(texts("a" * 35, "b" * 35))
    terminal.feed()
    terminal.pyte.resize(HEIGHT, width)
    terminal.console.width = width
    if width < 35:  # pyte cuts lines off; this is the screen of a terminal that wraps them
        terminal.pyte.reset()
        terminal.sent.write("stays\n" + "a" * 20 + "\n" + "a" * 15 + "\n" + "b" * 20 + "\n" + "b" * 15)
        terminal.feed()
    screen.draw(texts("a" * 15, "b" * 15))
    terminal.feed()
    assert terminal.lines()[:4] == ["stays", "a" * 15, "b" * 15, ""]
