"""The live view of many agents on a real terminal: it fits, it does not flicker, and it leaves nothing behind."""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest

from tests.support.cli import COMMAND, script, write_team

pytestmark = pytest.mark.slow

_FRAME = "\x1b[?2026h"
_OURS = {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES", "CI", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}


class Watched:
    """massmem on a terminal of a given size; every refresh is looked at."""

    def __init__(self, team: str, width: int, height: int) -> None:
        env: Any = {k: v for k, v in os.environ.items() if k not in _OURS} | {"TERM": "xterm-256color"}
        arguments = [*COMMAND[1:], "--config", team, "Why is the sky blue?"]
        self._child = pexpect.spawn(
            COMMAND[0], arguments, env=env, encoding="utf-8", dimensions=(height, width), timeout=30
        )
        self.pyte = pyte.Screen(width, height)
        self._stream = pyte.Stream(self.pyte)
        self.frames: list[str] = []
        self.looks: list[list[str]] = []
        self.code: int | None = None

    def _look(self) -> list[str]:
        # Not pyte's own `display`: it stumbles over the half of a wide letter that something was written over.
        cells, columns = self.pyte.buffer, range(self.pyte.columns)
        return ["".join(cells[row][column].data for column in columns).rstrip() for row in range(self.pyte.lines)]

    def run(self, resize: tuple[int, int] | None = None) -> None:
        """To the end; after ten refreshes the terminal gets another size."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                text = self._child.read_nonblocking(65_536, timeout=5)
            except pexpect.EOF:
                break
            except pexpect.TIMEOUT:
                continue
            for part in re.split(f"(?={re.escape(_FRAME)})", text):
                if part.startswith(_FRAME):
                    self.frames.append(part)
                self._stream.feed(part)
                self.looks.append(self._look())
            if resize is not None and len(self.frames) >= 10:
                self._child.setwinsize(*reversed(resize))
                self.pyte.resize(*reversed(resize))
                resize = None
        self._child.close()
        self.code = self._child.exitstatus


class Tmux:
    """A terminal that wraps its lines anew when its width changes, and keeps what scrolls out of it."""

    def __init__(self, command: list[str], width: int, height: int) -> None:
        self._name = f"massmem-test-{os.getpid()}"
        line = f"{shlex.join(command)}; read REPLY"  # what it shows stays until it is closed
        self._run("new-session", "-d", "-x", str(width), "-y", str(height), line)

    def _run(self, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k not in {"TMUX", *_OURS}}
        tmux = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(tmux, capture_output=True, text=True, check=True, env=environment, timeout=20).stdout

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def read(self) -> str:
        """Return what it shows, and what has scrolled out of it."""
        return self._run("capture-pane", "-p", "-S", "-1000")

    def wait_for(self, text: str) -> str:
        until = time.monotonic() + 60
        while text not in (shown := self.read()):
            assert time.monotonic() < until, shown
            time.sleep(0.1)
        return shown

    def close(self) -> None:
        self._run("kill-server")


def council(folder: Path, size: int) -> str:
    talk = "Blue light is scattered most by small molecules, 青い光. " * 4
    slow: dict[str, Any] = {"chunk_size": 12, "chunk_delay": 0.05, "present": "In the end: blue."}
    path = Path(write_team(folder, script(talk, 0.2, **slow)))
    team = json.loads(path.read_text())
    team["agents"] = [deepcopy(team["agents"][0]) | {"id": f"agent_{i}"} for i in range(size)]
    for i, agent in enumerate(team["agents"]):
        agent["backend"]["script"]["answer"] = f"{talk}So says {i}, too."  # with equal answers there would be no vote
    path.write_text(json.dumps(team))
    return str(path)


@pytest.mark.parametrize(("width", "height"), [(80, 24), pytest.param(200, 60, marks=pytest.mark.full)])
def test_fifty_agents_fit_and_little_is_sent(tmp_path: Path, width: int, height: int):
    watched = Watched(council(tmp_path, 50), width, height)
    watched.run()
    assert watched.code == 0
    assert len(watched.frames) > 10
    # Every row anew, with the styles of its parts, is the most that one refresh takes; most take far less.
    sizes = sorted(map(len, watched.frames))
    assert sizes[-1] <= height * (width + 100)
    views = [look for look in watched.looks if any("round 1" in line for line in look)]
    assert views
    for look in views:
        assert sum("turn 1 · " in line for line in look) == 1  # nothing of an older frame is left
        assert sum(bool(re.match(r"^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏·✓↻] \w", line)) for line in look) <= 50
    if height < 50:
        assert any(re.search(r"and \d+ more agents: ", line) for look in views for line in look)
    else:
        assert any(sum("agent_" in line for line in look) >= 50 for look in views)
    last = "\n".join(watched.looks[-1])
    assert "In the end: blue." in last
    assert "turn 1 · " not in last


def test_another_size_in_mid_turn_does_no_harm(tmp_path: Path):
    watched = Watched(council(tmp_path, 26), 120, 40)
    watched.run(resize=(70, 20))
    assert watched.code == 0
    after = [look for look in watched.looks if len(look) == 20 and any("turn 1 · " in line for line in look)]
    assert after
    # pyte cuts lines off where others break them; but what is drawn from then on fits.
    assert all(len(line) <= 70 for look in after for line in look)
    assert "In the end: blue." in "\n".join(watched.looks[-1])


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not on this machine")
def test_narrower_terminal_keeps_no_copy_of_the_view_in_its_history(tmp_path: Path):
    talk = script("Blue light is scattered most. " * 4, 0.1)
    team = write_team(tmp_path, talk, talk, script("At last.", 30))
    terminal = Tmux([*COMMAND, "--config", team, "Why is the sky blue, and why red in the evening? " * 3], 100, 24)
    try:
        terminal.wait_for("answer 2")
        for width in (60, 100, 60):
            terminal.resize(width, 24)
            drawn = terminal.read()
            while terminal.read() == drawn:
                time.sleep(0.1)
        time.sleep(0.5)
        shown = terminal.wait_for("c  thinking")
        # tmux itself moves as many lines out of sight as were wrapped, the first ones of the view.
        assert sum(line.endswith("0 tok") for line in shown.splitlines()) <= 1, shown
    finally:
        terminal.close()
