"""Questions that are typed while massmem cannot read them yet: the real program, typed at."""

from pathlib import Path

import pytest

from tests.e2e.test_interactive import READY, leave, say, talk
from tests.e2e.test_terminal import terminal
from tests.support.cli import script, write_team


def test_ctrl_n_during_a_turn_answers_now(tmp_path: Path):
    team = write_team(tmp_path, script("a quick answer"), script("slow", latency=60), script("slow", latency=60))
    child = talk("--config", team)
    child.send("Why?\r")
    child.expect("answered")
    child.send("\x0e")
    child.expect("a wins: the answer so far")
    child.expect("a quick answer.*" + READY)
    leave(child)


@pytest.mark.slow
def test_one_agent_is_asked_alone_and_then_the_team_again(tmp_path: Path):
    scripts = script("the first one"), script("the second one")
    team = write_team(tmp_path, *scripts, coordination={"depth": "adaptive"})
    child = talk("--config", team)
    say(child, "/solo", "the question is missing", READY)
    say(child, "/solo Why?", "1 agent ", "the first one", READY)
    say(child, "/solo b Why not?", "1 agent ", "the second one", READY)
    say(child, "Thanks!", "turn 3", "1 of 2 agents", "the first one", READY)
    say(child, "/full Thanks!", "turn 4", " 2 agents", "the first one", READY)
    say(child, "Why?", "turn 5", "2 agents", "the first one", READY)
    leave(child)


@pytest.mark.slow
def test_stopped_turn_is_finished_with_the_answers_so_far(tmp_path: Path):
    team = write_team(tmp_path, script("a quick answer"), script("slow", latency=60), script("slow", latency=60))
    child = talk("--config", team)
    say(child, "/now", "this conversation is empty", READY)
    child.send("Why?\r")
    child.expect("answered")
    child.send("\x03")
    child.expect("/now with what there is.*" + READY)
    say(child, "/now", "a wins: the answer so far", "a quick answer", READY)
    say(child, "/now", "no turn of this session is unfinished", READY)
    leave(child)


@pytest.mark.parametrize("moment", ["before the start", pytest.param("during a turn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("enter", ["\r", "\n"])
def test_two_questions_typed_ahead_are_two(tmp_path: Path, moment: str, enter: str):
    team = write_team(tmp_path, script("an answer", latency=1.0))
    if moment == "before the start":
        child = terminal("--config", team, PROMPT_TOOLKIT_NO_CPR="1")
    else:
        child = talk("--config", team)
        child.send("Why?\r")
        child.expect("turn 1")
    child.send(f"One question?{enter}Two questions?{enter}")
    if moment == "during a turn":
        child.expect("queued: One question")
        child.expect("queued: Two questions")
    child.expect("> One question")
    child.expect("> Two questions")
    child.expect("an answer.*" + READY)
    last_turn = 2 if moment == "before the start" else 3
    say(child, "/undo", f"Turn {last_turn} is undone", "Two questions", READY)
    leave(child)


def test_pastes_during_a_turn_are_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    team = write_team(tmp_path, script("an answer", latency=1.0))
    child = talk("--config", team)
    child.send("Why?\r")
    child.expect(r"\x1b\[\?2004h.*turn 1")
    large = "\n".join(f"line {n}" for n in range(40))
    child.send(f"\x1b[200~first\nlast\x1b[201~ typo\x7f\x7f\x7f\x7ftext\r\x1b[200~{large}\x1b[201~\r")
    child.expect("queued: first last text")
    child.expect(r"queued: \[pasted 309 characters #1\]")
    child.expect("turn 3")
    child.expect("an answer.*" + READY)
    say(child, "/export talk.md", "Written to talk.md", READY)
    leave(child)
    talk_text = (tmp_path / "talk.md").read_text()
    assert "first\nlast text" in talk_text
    assert large in talk_text
