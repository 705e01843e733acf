"""The lines at the bottom, as a terminal shows them that obeys what it is sent."""

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
        """Give the terminal what was written since; returns how many characters that were."""
        text = self.sent.getvalue()
        self.sent.seek(0)
        self.sent.truncate()
        # A terminal driver makes a carriage return and a line feed of each line feed.
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.pyte.display]


def texts(*lines: str) -> list[Text]:
    return [Text(line, style="bold") for line in lines]


FRAMES = st.lists(st.text("abc ", max_size=WIDTH), min_size=1, max_size=HEIGHT - 2)
SAID = st.text("xyz", min_size=1, max_size=30)


@given(before=st.integers(0, HEIGHT), steps=st.lists(st.one_of(FRAMES, SAID), min_size=1))
def test_what_is_drawn_is_what_is_seen(before: int, steps: list[list[str] | str]):
    """Whatever was there before, however frames grow and shrink, with lines said in between."""
    terminal = Terminal()
    terminal.sent.write("old\n" * before)
    screen, stays, shown, scrolled = Screen(terminal.console), ["old"] * before, [""], 0
    for step in steps:
        if isinstance(step, str):
            screen.say(Text(step))
            stays.append(step)
        else:
            screen.draw(texts(*step))
            shown = step
        terminal.feed()
        rows = [*stays, *shown]
        # What has left at the top does not come back.
        scrolled = max(scrolled, len(rows) - HEIGHT)
        seen = rows[scrolled:] + [""] * HEIGHT
        assert terminal.lines() == [row.rstrip() for row in seen[:HEIGHT]]
    screen.clear()
    terminal.feed()
    assert terminal.lines() == (stays[scrolled:] + [""] * HEIGHT)[:HEIGHT]
    assert not terminal.pyte.cursor.hidden


def test_only_what_differs_is_sent():
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
def test_a_terminal_of_another_width_is_drawn_anew(width: int):
    """Narrower: what was drawn is broken into more rows (by terminals that do), and all of them are erased."""
    terminal = Terminal()
    screen = Screen(terminal.console)
    terminal.sent.write("stays\n")
    screen.draw(texts("a" * 35, "b" * 35))
    terminal.feed()
    terminal.pyte.resize(HEIGHT, width)
    terminal.console.width = width
    if width < 35:  # pyte cuts lines off; this is what a terminal that breaks them has made
        terminal.pyte.reset()
        terminal.sent.write("stays\n" + "a" * 20 + "\n" + "a" * 15 + "\n" + "b" * 20 + "\n" + "b" * 15)
        terminal.feed()
    screen.draw(texts("a" * 15, "b" * 15))
    terminal.feed()
    assert terminal.lines()[:4] == ["stays", "a" * 15, "b" * 15, ""]
