"""An agent program carries the answer out: what it may change, what is told of that, and what a kill leaves."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from massmem.config.load import load_config
from massmem.core.errors import ConfigError
from massmem.core.events import CarryOutStarted, Event, Notice, TurnCompleted, TurnStarted
from massmem.session.session import Session
from tests.faults.test_turn_kill import read_log
from tests.support.cli import call_massmem
from tests.support.forked import ForkedMassmem
from tests.support.service import StartService, make_config
from tests.support.sessions import collect
from tests.unit.providers.test_acp import ROOT, command

QUESTION = "Set x to 2."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that may be changed, with a link out of it."""
    folder, beside = tmp_path / "project", tmp_path / "beside"
    for path in (folder / ".git", beside):
        path.mkdir(parents=True)
    for name in ("a.py", "old.py"):
        (folder / name).write_text("x = 1\n")
    (folder / "link").symlink_to(beside)
    return folder


def list_files(folder: Path) -> dict[str, str]:
    files = (path for path in folder.parent.rglob("*") if path.is_file() and "home" not in path.parts)
    return {str(path.relative_to(folder.parent)): path.read_text() for path in files if path.suffix != ".yaml"}


def write_team(folder: Path, how: str, *others: dict[str, Any], **backend: Any) -> str:
    """Write a team with a program that carries out as `how` says; return the configuration's path."""
    log = folder.parent / "home" / "log"
    log.parent.mkdir(exist_ok=True)
    program = {"id": "prog", "backend": {"type": "acp", "command": command(f"carry {how}", log), **backend}}
    path = folder.parent / "team.yaml"
    path.write_text(
        json.dumps(
            {
                "agents": [*others, program],
                "coordination": {"max_rounds": 1},
                "memory": {"persistent_memory": {"enabled": False}},
            }
        )
    )
    return str(path)


def read_prompts(folder: Path) -> list[str]:
    log = folder.parent / "home" / "log"
    messages = map(json.loads, log.read_text().splitlines() if log.exists() else [])
    return [m["params"]["prompt"][0]["text"] for m in messages if m.get("method") == "session/prompt"]


def ask(folder: Path, how: str, *options: str, others: tuple[Any, ...] = (), **backend: Any) -> Any:
    """Return the turn's result, with its exit code and stderr."""
    team = write_team(folder, how, *others, **backend)
    ran = call_massmem("--config", team, "--allow-write", str(folder), "--output", "json", *options, QUESTION)
    return json.loads(ran.stdout) | {"code": ran.returncode, "stderr": ran.stderr.decode()}


def test_end_of_the_answer_says_what_the_disk_shows(folder: Path, home: Path) -> None:
    result = ask(folder, "edit run delete write")
    changes = {"a.py": "changed", "made": "new", "old.py": "deleted", "tests/b.py": "new"}
    assert (result["code"], result["carried_out"]["changes"]) == (0, changes)
    listed = "a.py, made (new), old.py (deleted), tests/b.py (new)"
    end = f"\n\n---\n\nCarried out by prog: changed 4 files in {folder}: {listed}.\n\n"
    assert result["answer"].startswith(f"Set x to 2 in a.py.{end}tests/b.py written. ../c.py error.")
    assert (folder / "a.py").read_text() == "x = 2\n"
    assert [(folder / name).stat().st_mode & 0o777 for name in ("made", "tests/b.py")] == [0o644, 0o644]
    assert f"prog may change files and run commands in {folder} once the council has answered" in result["notices"]
    assert {"answer", "carry_out"} == result["spent"].keys()
    session = result["session_id"]
    assert listed in call_massmem("sessions", "show", session).stdout.decode()
    call_massmem("--config", str(folder.parent / "team.yaml"), "--session-id", session, "Undo that.")
    first, second, third = read_prompts(folder)
    assert "Change no files" in first
    assert "Change no files" not in second
    assert listed in third
    assert "Carry it out now" not in third


@pytest.mark.parametrize("how", ["outside", "link", "secret", "git", "anything", "write"])
def test_refusal_of_what_is_outside_secret_or_not_named(folder: Path, home: Path, how: str) -> None:
    before = list_files(folder)
    result = ask(folder, how)
    assert list_files(folder) == before | ({"project/tests/b.py": "y = 1\n"} if how == "write" else {})
    if how == "write":
        refused = ("../c.py", ".env", "link/d.py", ".git/x")
        assert all(f"{name} error" in result["carried_out"]["text"] for name in refused)
    else:
        assert f"no file in {folder} has changed" in result["answer"]


def test_first_program_for_the_answer_of_another_agent(folder: Path, home: Path) -> None:
    # The program may not choose its own answer: two others agree, so that no tie decides.
    script = {"answer": "Set x to 3.", "vote": [{"vote_for": "x to 3"}]}
    others = tuple({"id": name, "backend": {"type": "scripted", "script": script}} for name in ("ann", "ben"))
    result = ask(folder, "edit", others=others)
    assert result["winner"] in ("ann", "ben")
    assert result["answer"].startswith("Set x to 3.\n\n---\n\nCarried out by prog: changed 1 file")
    assert "Set x to 3." in read_prompts(folder)[-1]


def test_terminal_shows_who_changes_what(folder: Path, home: Path) -> None:
    team = write_team(folder, "edit delete")
    shown = call_massmem("--config", team, "--allow-write", str(folder), QUESTION).stderr.decode()
    lines = [line.partition("s  ")[2] for line in shown.splitlines()]
    begin = lines.index(f"prog carries the answer out in {folder}")
    assert lines.index("prog edits a.py") > begin and lines.index("prog deletes old.py") > begin


@pytest.mark.parametrize(
    ("how", "options", "code", "error"),
    [
        ("edit die", (), 1, "panic: out of luck"),
        ("edit wait", ("--timeout", "4"), 4, "4 seconds were over"),
        ("edit", ("--max-tokens", "3100"), 4, "the limit of 3,100 tokens for a turn is reached"),
    ],
)
def test_answer_and_changes_after_a_failure(
    folder: Path, home: Path, how: str, options: tuple[str, ...], code: int, error: str
) -> None:
    result = ask(folder, how, *options)
    done = result["carried_out"]
    assert result["answer"].startswith("Set x to 2 in a.py.\n\n---\n\nprog did not finish (")
    assert error in done["error"]
    assert done["changes"] == ({} if "--max-tokens" in options else {"a.py": "changed"})
    assert result["code"] == code


def test_folder_with_too_many_files_to_compare(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("massmem.tools.program_folder._MOST_FILES", 1)
    result = ask(folder, "edit")
    assert result["carried_out"]["changes"] is None
    assert f"the files in {folder} were not compared" in result["answer"]


def test_refusal_where_nothing_may_be_changed(folder: Path, home: Path, tmp_path: Path) -> None:
    team, plain = write_team(folder, "edit"), ("--config", "@examples/scripted")
    for options, message in (
        (("--config", team, "--allow-write", "/"), "your home folder is in it"),
        (("--config", team, "--allow-write", str(home)), "your home folder is in it"),
        (("--config", team, "--allow-write", str(tmp_path / "none")), "there is no folder"),
        ((*plain, "--allow-write", str(folder)), "no agent of the team is an agent program"),
        (("--config", team, "--allow-write", str(folder), "--schema", team), "exclude each other"),
    ):
        ran = call_massmem(*options, QUESTION)
        assert (ran.returncode, message in ran.stderr.decode()) == (2, True)
    assert not read_prompts(folder)
    assert not read_log(home)


def start(folder: Path, how: str) -> ForkedMassmem:
    team = write_team(folder, how)
    return ForkedMassmem("--config", team, "--allow-write", str(folder), "--output", "jsonl", QUESTION)


def read_until(child: ForkedMassmem, words: str) -> None:
    """Read what it prints until an event says that."""
    assert any(words.encode() in line for line in child.stdout)


def resume(folder: Path, home: Path, *question: str) -> tuple[Any, list[Event]]:
    session = next(event for event in read_log(home) if isinstance(event, TurnStarted)).session_id
    team = str(folder.parent / "team.yaml")
    return call_massmem("--config", team, "--session-id", session, *question), read_log(home)


def wait_for(path: Path, text: str) -> None:
    end = time.monotonic() + 20
    while path.read_text() != text:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("question", [(), (QUESTION,), ("What now?",)])
def test_a_turn_that_is_killed_while_it_is_carried_out_never_does_that_again(
    folder: Path, home: Path, question: tuple[str, ...]
) -> None:
    child = start(folder, "edit wait")
    read_until(child, '"carry_out_started"')
    wait_for(folder / "a.py", "x = 2\n")
    child.kill()
    ran, log = resume(folder, home, *question)
    completed = next(event for event in log if isinstance(event, TurnCompleted))
    assert completed.answer == (
        "Set x to 2 in a.py.\n\n---\n\nprog did not finish (it was interrupted while it was changing files); "
        f"the files in {folder} were not compared: look at them (`git status`)."
    )
    assert sum("Carry it out now" in prompt for prompt in read_prompts(folder)) == 1
    assert ran.returncode == (0 if question == ("What now?",) else 1)
    assert sum(isinstance(event, CarryOutStarted) for event in log) == 1


def test_a_turn_that_is_killed_before_carries_its_answer_out_once(folder: Path, home: Path) -> None:
    child = start(folder, "edit")
    read_until(child, '"agent_started"')
    child.kill()
    ran, log = resume(folder, home)
    assert (ran.returncode, (folder / "a.py").read_text()) == (0, "x = 2\n")
    may = f"prog may change files and run commands in {folder} once the council has answered"
    assert [event.message for event in log if isinstance(event, Notice)] == [may, may]


def test_ctrl_c_leaves_the_answer(folder: Path, home: Path) -> None:
    child = start(folder, "edit wait")
    read_until(child, '"carry_out_started"')
    wait_for(folder / "a.py", "x = 2\n")
    child.send_signal(signal.SIGINT)
    last = json.loads(child.finish()[-1])
    assert (last["type"], child.exit_code) == ("turn_completed", 1)
    assert last["carried_out"] | {"text": ""} == {
        "folder": str(folder), "agent_id": "prog", "text": "", "changes": {"a.py": "changed"},
        "error": "it was stopped",
    }  # fmt: skip


async def test_a_service_that_resumes_the_turn_changes_nothing(folder: Path, home: Path) -> None:
    child = start(folder, "edit")
    read_until(child, '"agent_started"')
    child.kill()
    name = next(event for event in read_log(home) if isinstance(event, TurnStarted)).session_id
    session = await Session.open(
        load_config(str(folder.parent / "team.yaml"))[0], home=home / ".massmem", session_id=name
    )
    try:
        events = await collect(session.finish_turn())
    finally:
        await session.close()
    assert isinstance(events[-1], TurnCompleted)
    assert (events[-1].answer, events[-1].carried_out) == ("Set x to 2 in a.py.", None)
    assert any("only the command line allows it" in e.message for e in events if isinstance(e, Notice))
    assert (folder / "a.py").read_text() == "x = 1\n"


def test_no_client_and_no_file_allows_a_change(start_service: StartService, tmp_path: Path) -> None:
    client = start_service(make_config()).client("ann")
    for name in ("write_folder", "allow_write", "variation", "may_write"):
        reply = client.post("/api/v1/chat", {"message": QUESTION, name: str(tmp_path)})
        assert reply.status_code == 422, (name, reply)
        path = tmp_path / "team.yaml"
        path.write_text(json.dumps({"agents": [{"id": "a", "backend": {"type": "scripted"}}], name: {"x": 1}}))
        with pytest.raises(ConfigError, match="unknown key"):
            load_config(str(path))


def test_command_line_as_the_one_place_that_allows_changes() -> None:
    modules = (path for path in (ROOT / "massmem").rglob("*.py") if '"may_write": True' in path.read_text())
    assert [str(path.relative_to(ROOT)) for path in modules] == ["massmem/cli/run.py"]


def test_a_sandbox_lets_the_folder_be_changed_and_nothing_else(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    from massmem.config.presets import Program
    from massmem.providers.acp import build_sandbox

    shell = ["sh", "-c", f"touch {folder}/in; touch {folder.parent}/out"]
    for may_write in (False, True):
        box = build_sandbox(shell, str(folder), Program(), may_write=may_write)
        subprocess.run(box, check=False, capture_output=True)
        assert ((folder / "in").exists(), (folder.parent / "out").exists()) == (may_write, False)
