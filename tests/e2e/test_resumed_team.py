"""A conversation that goes on with a session of another team."""

from pathlib import Path

import pytest

from tests.e2e.test_interactive import READY, leave, say, talk, team
from tests.support.cli import massmem, script, write_team

__all__ = ["team"]

pytestmark = pytest.mark.slow


def test_resumed_session_goes_on_with_the_team_that_it_began_with(team: str, home: Path, tmp_path: Path):
    (tmp_path / "other").mkdir()
    other = write_team(tmp_path / "other", script("It is the sea."))
    assert massmem("--config", other, "Why is it blue?").returncode == 0
    (home / ".massmem" / "config.yaml").write_text(Path(team).read_text())
    child = talk()
    say(child, "/resume Why is it blue?", "with which the session began", READY)
    say(child, "/agents", "a +scripted", READY)
    say(child, "And now?", "the only answer", "It is the sea", READY)
    leave(child)
