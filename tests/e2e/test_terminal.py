"""massmem on a terminal: the live view, and that the terminal is left as it was found."""

import os
import re
import time
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.support.cli import script, write_team
from tests.support.forked import ForkedTerminal

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

pytestmark = pytest.mark.slow

_OURS = {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES", "CI", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}


def terminal(*arguments: str, width: int = 80, height: int = 24, **environ: str) -> ForkedTerminal:
    env = {k: v for k, v in os.environ.items() if k not in _OURS} | {"TERM": "xterm-256color"} | environ
    return ForkedTerminal(*arguments, env=env, size=(height, width))


def ending(child: ForkedTerminal) -> tuple[str, int | None]:
    """Everything the terminal was sent from here on, and the exit code."""
    child.expect(pexpect.EOF)
    child.close()
    return child.before or "", child.exitstatus


@pytest.fixture
def team(tmp_path: Path) -> str:
    slow = {"chunk_delay": 0.02, "chunk_size": 8}
    return write_team(
        tmp_path,
        script("The first answer is here.", 0.2, present="Blue light is scattered most.", **slow),
        script("The second answer is longer than the first.", 0.3, present="Blue light is scattered most.", **slow),
        script("The third.", 0.4, present="Blue light is scattered most.", **slow),
    )


def test_the_live_view_comes_and_goes_and_the_answer_stays(team: str):
    child = terminal("--config", team, "Why is the sky blue?")
    child.expect("round 1 of 3, answers")
    child.expect("thinking|answering")
    child.expect("final answer")
    rest, code = ending(child)
    assert code == 0
    assert SHOW in rest
    plain = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", rest)
    tail = plain[plain.rindex("wins:") :]
    assert "2 rounds · 3 agents" in tail
    assert "\r\n\r\nBlue light is scattered most.\r\n\r\n" in tail
    assert re.search(r"(session_\d+_\d+): massmem --session-id \1 ", tail)


def test_a_frame_is_never_taller_than_the_terminal(tmp_path: Path):
    team = write_team(tmp_path, *(script(f"answer {i}", 0.4) for i in range(20)))
    child = terminal("--config", team, "Why?", width=60, height=8)
    child.expect("more agents: ")
    text, code = ending(child)
    assert code == 0
    ups = [int(rows) for rows in re.findall(r"\x1b\[(\d+)A", text)]
    assert ups
    assert max(ups) <= 7


def test_control_c_stops_the_turn_and_says_how_to_resume(tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", 30))
    child = terminal("--config", team, "Why?")
    child.expect("answered")
    began = time.monotonic()
    child.sendintr()
    text, code = ending(child)
    assert code == 130
    assert time.monotonic() - began < 20
    assert text.rindex(SHOW) > text.rfind(HIDE)
    assert re.search(r"finish this turn with: massmem --session-id session_\d+_\d+", text)
    assert "Traceback" not in text


def wait_until_it_reads(child: ForkedTerminal) -> None:
    """Until it sleeps and has used no time of the processor for a while: it waits for the terminal."""
    process, seen, since = psutil.Process(child.pid), 0.0, time.monotonic()
    while time.monotonic() - since < 0.3:
        time.sleep(0.02)
        used = process.cpu_times().user
        if used != seen or process.status() != psutil.STATUS_SLEEPING:
            seen, since = used, time.monotonic()


def test_control_c_before_there_is_a_question(team: str):
    child = terminal("--config", team, "-")
    wait_until_it_reads(child)
    child.sendintr()
    text, code = ending(child)
    assert code == 130
    assert "Traceback" not in text


def test_ctrl_z_gives_the_terminal_back_and_the_turn_goes_on(tmp_path: Path):
    team = write_team(tmp_path, script("An answer.", 1.0, present="Blue light."), script("Another.", 2.0))
    child = terminal("--config", team, "Why is the sky blue?")
    child.expect("round 1 of 3, answers")
    child.send("\x1a")
    child.expect_exact(SHOW)
    process = psutil.Process(child.pid)
    deadline = time.monotonic() + 60
    while process.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.status() == psutil.STATUS_STOPPED
    process.resume()
    child.expect_exact(HIDE)
    rest, code = ending(child)
    assert (code, SHOW in rest, "Blue light." in rest) == (0, True, True)


def test_keys_typed_during_a_turn_are_not_echoed(tmp_path: Path):
    child = terminal("--config", write_team(tmp_path, script("The answer.", 1.0)), "Why?")
    child.expect("round 1")
    child.send("zzzz\r")
    rest, code = ending(child)
    assert (code, "zzzz" in rest) == (0, False)


def test_single_agent_shows_its_answer_as_it_is_written(tmp_path: Path):
    words = " ".join(f"word{i}" for i in range(60))
    child = terminal("--config", write_team(tmp_path, script(words, chunk_size=10, chunk_delay=0.05)), "Why?")
    child.expect("\nword0 word1|word0 word1 word2 word3 word4")
    child.expect("word20")
    assert "The answer" not in str(child.before)
    _, code = ending(child)
    assert code == 0


def test_no_color_means_no_color(team: str):
    text, code = ending(terminal("--config", team, "Why?", NO_COLOR="1"))
    assert code == 0
    codes = {part for m in re.finditer(r"\x1b\[([\d;]*)m", text) for part in m.group(1).split(";")}
    assert codes <= {"", "0", "1", "2"}, "bold and dim are no colours"


@pytest.mark.parametrize(("arguments", "environ"), [((), {"TERM": "dumb"}), (("--output", "plain"), {})])
def test_plain_lines_where_the_cursor_cannot_move(arguments: tuple[str, ...], environ: dict[str, str], team: str):
    text, code = ending(terminal("--config", team, *arguments, "Why?", **environ))
    assert code == 0
    assert "\x1b" not in text
    assert "round 1 of 3, answers: a, b, c" in text


def test_a_program_that_reads_the_answers_is_not_talked_to(team: str):
    text, code = ending(terminal("--config", team, "--output", "json"))
    assert code == 2
    assert "ask like this: massmem" in text


def test_the_answer_cannot_command_the_terminal(tmp_path: Path):
    evil = "\x1b[2J\x1b]0;owned\x07[red]plain[/red] \x9bbell\x07"
    text, code = ending(terminal("--config", write_team(tmp_path, script(evil)), "Why?"))
    assert code == 0
    assert "[red]plain[/red] " in text
    for trick in ("\x1b[2J", "\x1b]0;", "owned", "\x07"):
        assert trick not in text


@pytest.mark.parametrize("members", [1, 2])
def test_plain_output_shows_the_answer_while_it_is_written(tmp_path: Path, members: int):
    text = "It is written slowly, and it has not come to its end."
    written = {"chunk_delay": 0.3, "chunk_size": 8}
    agents = [script(text, present=text, **written), script("Another text.", present=text, **written)]
    team = write_team(tmp_path, *agents[:members], coordination={"max_rounds": 1})
    child = terminal("--config", team, "--output", "plain", "Why?")
    child.expect("\nIt is wri")
    began = time.monotonic()
    rest, code = ending(child)
    assert code == 0
    assert time.monotonic() - began > 1, "the rest comes later"
    shown = rest.replace("\r\n", "\n")
    assert shown.startswith("tten slowly, and it has not come to its end.\n  "), "progress begins a line"
    assert shown.count("come to its end.") == members % 2 + 1, "besides the line of progress it stands there once"


def test_text_of_a_failed_attempt_is_taken_back_on_a_terminal(tmp_path: Path):
    broken = {"text": "The sky is", "error": "interrupted"}
    team = write_team(tmp_path, script(chunk_size=3) | {"answer": [broken, "It is blue."]})
    text, code = ending(terminal("--config", team, "--output", "plain", "--quiet", "Why?"))
    shown = text.replace("\r\n", "\n")
    assert (code, shown) == (0, "The sky is\nthe text above does not count: its attempt failed\nIt is blue.\n")
