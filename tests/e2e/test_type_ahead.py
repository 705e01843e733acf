"""Questions that are typed while massmem cannot read them yet: the real program, typed at."""

from pathlib import Path

from tests.e2e.test_interactive import READY, leave, say, talk
from tests.e2e.test_terminal import terminal
from tests.support.cli import script, write_team


def test_two_questions_typed_during_a_turn_are_two(tmp_path: Path):
    team = write_team(tmp_path, script("an answer", latency=2.0))
    child = talk("--config", team)
    child.send("Why?\r")
    child.expect("turn 1")
    child.send("One question?\rTwo questions?\r")
    child.expect("> One question")
    child.expect("> Two questions")
    child.expect("an answer.*" + READY)
    say(child, "/undo", "Turn 3 is undone", "Two questions", READY)
    leave(child)


def test_two_questions_typed_before_the_start_are_two(tmp_path: Path):
    child = terminal("--config", write_team(tmp_path, script("an answer")), PROMPT_TOOLKIT_NO_CPR="1")
    child.send("One question?\rTwo questions?\r")
    child.expect("> One question")
    child.expect("> Two questions")
    child.expect("an answer.*" + READY)
    say(child, "/undo", "Turn 2 is undone", "Two questions", READY)
    leave(child)
