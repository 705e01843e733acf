"""SIGKILL in a turn that changed its team: the next run goes on with the team of its question, or says why not."""

import json
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import AnswerSubmitted, TurnFailed, TurnResumed, TurnStarted
from tests.faults.test_turn_kill import kill_in_mid_turn, read_log
from tests.support.cli import massmem

JOB = "summary: Ours.\nshape: union\nroles: [{id: first, task: Look at it once.}, {id: second, task: Look again.}]\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = {"latency": 0.3, "answer": "An answer.", "items": '{"items": [{"title": "An item"}]}', "present": "Done."}
    agents = [{"id": name, "backend": {"type": "scripted", "script": script}} for name in ("ann", "ben", "cyd")]
    path, jobs = tmp_path / "team.yaml", tmp_path / "home" / ".massmem" / "jobs"
    path.write_text(json.dumps({"agents": agents}))
    jobs.mkdir(parents=True)
    (jobs / "ours.yaml").write_text(JOB)
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "a.txt").write_text("A text.")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return path


def kill_and_resume(config: Path, home: Path, asked: list[str], resumed: list[str]) -> Any:
    kill_in_mid_turn(config, 3, *asked)
    session_id = next(e for e in read_log(home) if isinstance(e, TurnStarted)).session_id
    return massmem("--config", str(config), "--session-id", session_id, *resumed, timeout=60, text=True)


@pytest.mark.parametrize(
    ("options", "agents"),
    [
        (["--solo=ben"], ["ben"]),
        (["--job", "ours"], ["ann", "ben", "cyd"]),
        (["--job", "ours", "--solo=ben"], ["first", "second"]),
        (["--show", "report", "--shape", "union"], ["ann", "ben", "cyd"]),
    ],
)
@pytest.mark.parametrize("again", [[], ["why?"]])
def test_a_killed_turn_goes_on_with_the_team_of_its_question(
    config: Path, tmp_path: Path, options: list[str], agents: list[str], again: list[str]
) -> None:
    result = kill_and_resume(config, tmp_path / "home", options, again)

    log = read_log(tmp_path / "home")
    started = next(e for e in log if isinstance(e, TurnStarted))
    resumed = [e for e in log if isinstance(e, TurnResumed)]
    assert result.returncode == 0, result.stderr
    assert [list(e.agents) for e in (started, *resumed)] == [agents, agents]
    assert {e.agent_id for e in log if isinstance(e, AnswerSubmitted)} == {*agents}
    assert {resumed[0].shape, started.shape} == {"vote" if options == ["--solo=ben"] else "union"}


def test_the_folder_of_the_question_is_read_on(config: Path, tmp_path: Path) -> None:
    result = kill_and_resume(config, tmp_path / "home", ["--dir", str(tmp_path / "read"), "--solo=ben"], [])

    assert result.returncode == 0
    assert "give it with --dir" not in result.stderr


def test_an_option_of_the_resuming_run_wins_and_the_user_learns_it(config: Path, tmp_path: Path) -> None:
    result = kill_and_resume(config, tmp_path / "home", ["--solo=ben"], ["--solo=cyd"])

    log = read_log(tmp_path / "home")
    assert [e.agents for e in log if isinstance(e, TurnResumed)] == [("cyd",)]
    assert "the turn began with agent ben; as you ask for that, it goes on with agent cyd" in result.stderr


@pytest.mark.parametrize("gone", ["job", "folder", "agent"])
def test_a_team_that_is_gone_is_not_replaced_in_silence(config: Path, tmp_path: Path, gone: str) -> None:
    home, read, job = tmp_path / "home", tmp_path / "read", tmp_path / "home" / ".massmem" / "jobs" / "ours.yaml"
    whole = config.read_text()
    kill_in_mid_turn(config, 3, "--dir", str(read), "--job", "ours", "--solo=ben")
    session_id = next(e for e in read_log(home) if isinstance(e, TurnStarted)).session_id
    match gone:
        case "job":
            job.unlink()
        case "folder":
            read.rename(tmp_path / "away")
        case _:
            config.write_text(whole.replace("ben", "dan"))
    command = ("--config", str(config), "--session-id", session_id)
    failed = massmem(*command, timeout=60, text=True)

    assert failed.returncode != 0
    assert "the turn cannot go on with the team with which it began: " in failed.stderr
    assert [e for e in read_log(home) if isinstance(e, TurnResumed)] == []
    assert isinstance(read_log(home)[-1], TurnFailed)

    match gone:
        case "job":
            job.write_text(JOB)
        case "folder":
            (tmp_path / "away").rename(read)
        case _:
            config.write_text(whole)
    assert massmem(*command, timeout=60, text=True).returncode == 0
