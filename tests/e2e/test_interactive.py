"""massmem without a question on a terminal: the real program, typed at."""

import base64
import json
import re
import stat
import subprocess
import time
from pathlib import Path

import pexpect
import pytest

from tests.e2e.test_terminal import ending, terminal
from tests.support.cli import COMMAND, massmem, script, write_team
from tests.support.forked import ForkedTerminal
from tests.support.owners import taken
from tests.support.pictures import PNG

pytestmark = pytest.mark.slow

READY = r"\x1b\[\?2004h\x1b\[\?(?:1l\x1b\[\?)?25l\x1b\[0m\x1b\[\?7l"
"""Sent when a line is read: pastes are marked as such, as they are during a turn."""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>]")


def talk(*arguments: str, width: int = 80, **environ: str) -> ForkedTerminal:
    child = terminal(*arguments, width=width, PROMPT_TOOLKIT_NO_CPR="1", **environ)
    child.expect("Ctrl-D quits")
    child.expect(READY)
    return child


def plain(text: str) -> str:
    return _ESCAPES.sub("", text)


def say(child: ForkedTerminal, line: str, *expected: str) -> str:
    """Type a line and wait for each of these, in order; what was shown until the last of them."""
    child.send(f"{line}\r")
    shown = ""
    for pattern in expected:
        child.expect(pattern)
        shown += str(child.before) + str(child.after)
    return plain(shown)


def leave(child: ForkedTerminal) -> str:
    child.send("/quit\r")
    text, code = ending(child)
    assert code == 0
    assert "Traceback" not in text
    return plain(text)


@pytest.fixture
def team(tmp_path: Path) -> str:
    memory = {"persistent_memory": {"embedding": {"provider": "none"}}}
    said = {"chunk_delay": 0.01, "chunk_size": 12, "present": "Blue light is scattered most."}
    return write_team(tmp_path, script("It is the air.", **said), script("It is the light.", **said), memory=memory)


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return write_team(tmp_path, script("quick"), script(["slow", "slow"], 20))


def test_team_does_a_job_until_it_is_left(home: Path) -> None:
    child = talk("--config", "@examples/decide", "--job", "premortem")
    say(child, "/job decode", r"there is no job 'decode' \(did you mean\s+'decide'", READY)
    say(child, "/job decide", "From now on the team does the job decide", READY)
    say(child, "Where do we keep orders?", "scores", "ben would choose SQLite", READY)
    say(child, "/model ben other", "ben uses scripted other", READY)
    say(child, "/job", "The team answers questions", READY)
    say(child, "/agents", "ben +scripted other", READY)
    shown = say(child, "/solo ada And the customers?", "PostgreSQL\\.", READY)
    assert "options" not in shown
    say(child, "/job decide", "does the job decide", READY)
    assert "--job decide" in " ".join(leave(child).split())


def test_a_conversation_with_every_command(team: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    child = talk("--config", team)
    shown = say(child, "Why is the sky blue?", "wins:", "agreement", "scattered most\\.", READY)
    assert shown.count("Blue light is scattered most.") == 1, "the answer is printed once"
    say(child, "/help", "/agents ", "/undo ", "/quit ", "Ctrl-J", READY)
    say(child, "/agents", "a +scripted, reads about", "b +scripted", READY)
    say(child, "/model a", "a: scripted", READY)
    say(child, "/model a new-model", "a uses scripted new-model", READY)
    say(child, "/model z", "there is no agent 'z'", "agents: a, b", READY)
    say(child, "/context", r"a: [\d,]+ of [\d,]+ tokens", READY)
    say(child, "/cost", "a +[\\d.k]+ tokens in", "last turn", r"session .*\$0", READY)
    say(child, "/compact", "removed|Removed|Nothing to compact", READY)
    say(child, "/remember I prefer metric units.", "Remembered", READY)
    say(child, "/remember My home is Porto.", "Remembered", READY)
    say(child, "/remember My home is Ghent.", "Remembered", READY)
    say(child, "And the sunset?", "agreement", READY)
    say(
        child, "/memory history home", "user: home", "Porto +since [\\d-]+, until", "Ghent +since [\\d-]+, holds", READY
    )
    say(child, "/memory --as-of 2020-01-01 home", "no memory matches", READY)
    say(child, "/memory --as-of never home", "'never' is no date", READY)
    say(child, "/memory metric units", "I prefer metric units", READY)
    shown = say(child, "/memory", "messages +[\\d]+", "metric units", READY)
    say(child, "/forget turn 1", r"Forget [\d,]+ memories for good")
    say(child, "n", "Nothing was forgotten", READY)
    say(child, "/forget turn 1", "for good")
    say(child, "y", r"Forgotten: \d", READY)
    say(child, "/rename Blue things", 'is now called "Blue things"', READY)
    say(child, "/sessions", "Blue things", READY)
    say(child, "/export talk.md", "Written to talk.md", READY)
    say(child, "/undo", "Turn 2 is undone", "And the sunset", READY)
    say(child, "/clear", "no longer see earlier messages", READY)
    say(child, "/debug on", r"(?s)debug\s+log:\s.*massmem.log", READY)
    say(child, "/debug", "No debug log", READY)
    say(child, "/resume Blue things", "Blue things", "Turn 2, undone", READY)
    say(child, "/udo", "there is no command /udo", "did you mean /undo", READY)
    say(child, " /etc/hosts is what?", "scattered most\\.", READY)
    say(child, "/fork two", "is not the number of a turn", READY)
    say(child, "/fork 1", r"Blue things \(fork\)", "Why is the sky blue", "You are in the copy", READY)
    text = leave(child)
    assert re.search(r"continue with: massmem --session-id session_\d+_\d+_\w+ --config", text)
    assert "Why is the sky blue?" in (tmp_path / "talk.md").read_text()
    assert list((tmp_path / ".massmem" / "massmem_logs").glob("*/massmem.log"))
    kept = home / ".massmem" / "history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not list((home / ".massmem" / "logs").glob("crash*"))


def test_last_question_is_copied_edited_and_asked_again(team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("a note of mine")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf \'Why is %s?\' "$(cat "$1")" > "$1"\n')
    editor.chmod(0o700)
    child = talk("--config", team, EDITOR=str(editor), VISUAL="")
    say(child, "/copy", "this conversation is empty", READY)
    say(child, "What does @notes.txt say?", "scattered most\\.", READY)
    child.send("/copy\r")
    child.expect(r"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07")
    assert base64.b64decode(child.match.group(1)) == b"Blue light is scattered most."
    child.expect(READY)
    say(child, "/edit blood red", "> Why is blood red\\?", "scattered most\\.", READY)
    say(child, "/version", "no turn of this conversation has several versions", READY)
    say(child, "/retry", "> Why is blood red\\?", "scattered most\\.", READY)
    say(child, "/version", "version 2 of 2", READY)
    say(child, "/version 1", "Turn 2, version 1 of 2", "Why is blood red", READY)
    say(child, "/version 3", "the turn has 2 versions", READY)
    say(child, "/reword", "> Why is Why is blood red\\?\\?", "scattered most\\.", READY)
    say(child, "/show", "Turn 4, version 3 of 3", READY)
    child.send("exit\r")
    text, code = ending(child)
    assert (code, "Traceback" in text) == (0, False)
    session = json.loads(massmem("sessions", "list", "--json", "--config", team).stdout)["sessions"][0]["session_id"]
    turns = json.loads(massmem("sessions", "show", session, "--json", "--config", team).stdout)["turns"]
    assert [(turn["question"], turn["status"]) for turn in turns] == [
        ("What does @notes.txt say?\n\n--- notes.txt ---\na note of mine", "completed"),
        ("Why is blood red?", "completed"),
        ("Why is blood red?", "completed"),
        ("Why is Why is blood red??", "completed"),
    ]
    assert [turn["withdrawn"] for turn in turns] == [False, True, True, False]


def test_session_to_continue_is_chosen_from_a_list(team: str):
    for question in ("First?", "Second?"):
        assert massmem("--config", team, question).returncode == 0
    child = terminal("--config", team, "-r", "And then?")
    child.expect("1  session_.*Second")
    child.expect("2  session_.*First")
    child.expect(r"Which session\? \[1\]")
    child.send("2\r")
    _, code = ending(child)
    assert code == 0
    sessions = json.loads(massmem("sessions", "list", "--json", "--config", team).stdout)["sessions"]
    assert [(session["turns"]) for session in sessions] == [2, 1]


def test_control_c_stops_the_turn_and_another_quits(slow: str):
    child = talk("--config", slow)
    child.send("Why?\r")
    child.expect("answered")
    began = time.monotonic()
    child.sendintr()
    child.expect("work of the agents so far is saved")
    child.expect("/continue finishes this turn")
    child.expect(READY)
    assert time.monotonic() - began < 15
    time.sleep(2.1)
    child.send("/continue\r")
    child.expect("turn 1 · round 1")
    child.sendintr()
    time.sleep(0.3)  # two signals at once are one
    child.sendintr()
    text, code = ending(child)
    assert code == 130
    assert re.search(r"continue with: massmem --session-id session_\d+_\d+", plain(text))
    assert "Traceback" not in text


def test_control_c_clears_the_line_and_twice_quits(team: str):
    child = talk("--config", team)
    child.send("half a thou")
    child.expect("thou")
    child.sendintr()
    time.sleep(0.3)
    say(child, "/agents", "a +scripted", READY)
    time.sleep(2)
    child.sendintr()
    child.sendintr()
    text, code = ending(child)
    assert code == 130
    assert "Traceback" not in text


def test_line_typed_during_a_turn_waits_for_its_end(team: str):
    child = talk("--config", team)
    child.send("Why?\r/agents\r")
    child.expect("wins:")
    child.send("/co")
    child.send("st\r")
    child.expect("a +scripted")
    child.expect("last turn")
    child.expect(READY)
    leave(child)


def test_control_d_quits(team: str):
    child = talk("--config", team)
    child.sendeof()
    text, code = ending(child)
    assert (code, "Traceback" in text) == (0, False)


def test_a_line_can_have_several_lines_and_what_was_typed_comes_back(team: str, home: Path):
    child = talk("--config", team)
    child.send("Why is\nthe sky\x1b\rblue? key sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r")
    child.expect("scattered most\\.")
    child.expect(READY)
    leave(child)
    history = (home / ".massmem" / "history").read_text()
    assert "aaaaaaaaaaaaaaaa" not in history
    assert r"Why is\nthe sky\nblue?" in history
    child = talk("--config", team, "--continue")
    child.send("\x1b[A")
    child.send("\x1b[A")
    child.expect("the sky")
    child.sendintr()
    leave(child)


def test_commands_and_sessions_are_completed(team: str):
    child = talk("--config", team)
    say(child, "Why?", "agreement", READY)
    say(child, "/rename Trip to Lisbon", "is now called", READY)
    child.send("/ag\t")
    child.expect("/agents")
    child.send("\r")
    child.expect("a +scripted")
    child.expect(READY)
    child.send("/resume Tri")
    child.expect("Trip to Lisbon")
    child.send("\t")
    child.expect("to Lisbon")
    child.send("\r")
    child.expect("Turn 1")
    child.expect(READY)
    leave(child)


def test_a_window_that_changes_its_size(slow: str):
    child = talk("--config", slow)
    child.setwinsize(30, 50)
    child.send("Why?\r")
    child.expect("answered")
    for size in ((10, 30), (40, 120), (3, 20), (24, 80)):
        child.setwinsize(*size)
        time.sleep(0.2)
    child.sendintr()
    child.expect("is saved")
    child.setwinsize(8, 40)
    child.expect(READY)
    leave(child)


def test_no_color_means_none_here_either(team: str):
    child = talk("--config", team, NO_COLOR="1")
    child.send("/hel\t\r")
    child.expect("/agents ")
    child.expect(READY)
    say(child, "Why?", "agreement", READY)
    text, code = (child.sendeof(), ending(child))[1]
    codes = {part for m in re.finditer(r"\x1b\[([\d;]*)m", text) for part in m.group(1).split(";")}
    assert code == 0
    assert codes <= {"", "0", "1", "2", "7"}, "bold, dim and inverse are no colours"


def test_a_terminal_that_can_only_print(team: str):
    child = terminal("--config", team, TERM="dumb")
    child.expect("Ctrl-D quits")
    child.expect("> ")
    child.sendline("Why is the sky blue?")
    child.expect("scattered most\\.")
    child.expect("> ")
    child.sendline("/agents")
    child.expect("a  scripted")
    child.sendintr()
    child.expect("> ")
    child.sendeof()
    text, code = ending(child)
    assert code == 0
    assert "\x1b" not in text


def test_next_line_answers_a_question_of_the_agents(tmp_path: Path, home: Path):
    ask = {"answer": {"ask": "order_id", "ask_prompt": "Which order is it?", "text": "It is {order_id}."}}
    team = write_team(tmp_path, ask, params={"order_id": {"pattern": "O-[0-9]+"}})
    child = talk("--config", team)
    child.send("Where is my parcel?\r")
    child.expect("Which order is it\\?")
    child.expect("reply>")
    child.send("O-4711\r")
    child.expect("It is O-4711")
    child.expect(READY)
    leave(child)
    assert "4711" not in (home / ".massmem" / "history").read_text()


def test_a_paste_of_megabytes(team: str):
    child = talk("--config", team)
    child.send("\x1b[200~" + "What is this? " * 5_000 + "\x1b[201~")
    child.expect(r"\[pasted 70,000 characters #1\]", timeout=20)
    child.send("\r")
    child.expect("scattered most\\.", timeout=30)
    child.expect(READY)
    child.send("\x1b[200~" + "0123456789 abcdef\r" * 600_000 + "\x1b[201~\r")
    child.expect("longer than 1,000,000 characters", timeout=90)
    child.expect(READY)
    leave(child)


def test_a_closed_pipe_ends_it_quietly(team: str, tmp_path: Path):
    command = f"{' '.join(COMMAND)} --config {team} 2>{tmp_path}/err | true"
    child = pexpect.spawn("bash", ["-c", command], encoding="utf-8", timeout=30)
    text, _ = ending(child)
    assert "Traceback" not in text + (tmp_path / "err").read_text(), "without a terminal for its words it does not talk"


def test_answers_go_to_a_file_when_they_shall(team: str, tmp_path: Path):
    child = pexpect.spawn(
        "bash", ["-c", f"exec {' '.join(COMMAND)} --config {team} >{tmp_path}/out"],
        encoding="utf-8", timeout=20, env={**_environment(), "PROMPT_TOOLKIT_NO_CPR": "1"},
    )  # fmt: skip
    child.expect("Ctrl-D quits")
    child.send("Why?\r")
    child.expect("agreement")
    child.sendeof()
    _, code = ending(child)
    assert code == 0
    assert (tmp_path / "out").read_text() == "Blue light is scattered most.\n"


@pytest.mark.parametrize("asked", [False, True])
def test_a_terminal_that_hangs_up(asked: bool, slow: str, home: Path):
    child = talk("--config", slow)
    if asked:
        child.send("Why?\r")
        child.expect("answered")
    child.close()
    assert child.exitstatus is not None, "it has not ended"
    assert not list((home / ".massmem" / "logs").glob("crash*"))


def test_another_process_has_the_session(team: str, home: Path):
    ran = massmem("--config", team, "--output", "json", "Why?")
    assert ran.returncode == 0
    child = talk("--config", team, "--continue")
    with taken(home / ".massmem", json.loads(ran.stdout)["session_id"]):
        child.send("And then?\r")
        child.expect(r"waiting\s+for\s+it\s+to\s+end")
        child.sendintr()
        child.expect("The question was not asked")
        child.expect(READY)
        time.sleep(2.1)
        child.send("And then?\r")
        child.expect(r"waiting\s+for\s+it\s+to\s+end")
    child.expect("scattered most\\.")
    child.expect(READY)
    leave(child)


def test_an_unfinished_turn_is_finished_first(tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", 3, present="The end of it."))
    child = terminal("--config", team, "Why?")
    child.expect("answered")
    child.sendintr()
    text, code = ending(child)
    assert code == 130
    again = re.findall(r"--session-id (session_\S+)", plain(text))[-1]
    child = terminal("--config", team, "--session-id", again, PROMPT_TOOLKIT_NO_CPR="1")
    child.expect("agreement", timeout=30)
    child.expect(READY)
    leave(child)


def test_without_a_terminal_there_must_be_a_question(team: str):
    ran = massmem("--config", team)
    assert ran.returncode == 2
    assert b"there is no question" in ran.stderr


def test_nothing_of_it_is_kept_when_nothing_shall_be(team: str, home: Path):
    before = sorted(home.rglob("*"))
    child = talk("--config", team, "--no-store")
    say(child, "Why?", "agreement", READY)
    say(child, "/cost", "session", READY)
    say(child, "/debug on", "--no-store writes nothing", READY)
    assert "this conversation was not stored" in leave(child)
    assert sorted(home.rglob("*")) == before


def _environment() -> dict[str, str]:
    out = subprocess.run(["env", "-0"], capture_output=True, check=True, text=True).stdout
    return dict(line.partition("=")[::2] for line in out.split("\0") if line)


def test_picture_in_a_question_is_seen_and_asked_about_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my plan.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("a note")
    child = talk("--config", write_team(tmp_path, script("seen: {seen}")))
    say(child, 'What is on @"my plan.png" and in @notes.txt?', r"seen: my plan\.png \(image/png", READY)
    say(child, "/retry", r"seen: my plan\.png \(image/png", READY)
    say(child, "What is on @missing.png?", "there is no file missing.png", READY)
    say(child, "Does @alice know?", "seen: my plan", READY)
    leave(child)
