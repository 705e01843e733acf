"""`--dir` as its user sees it: what is said, refused, how to go on, and in a conversation."""

import json
from pathlib import Path

import pytest

from tests.e2e.test_interactive import leave, say, talk
from tests.support.cli import massmem

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A team that reads notes.txt, and a folder with it in the working directory."""
    (tmp_path / "own project").mkdir()
    (tmp_path / "own project/notes.txt").write_text("It is in hall H-412.")
    (tmp_path / "own project/.env").write_text("HALL=secret")
    calls = [{"tool": "read_file", "arguments": {"path": path}} for path in ("notes.txt", ".env")]
    script = {"answer": [{"call": calls, "text": "Nothing to read with."}, "{result}"] * 3}
    agent = {"id": "ann", "backend": {"type": "scripted", "script": script}}
    (tmp_path / "team.yaml").write_text(json.dumps({"agents": [agent]}))
    monkeypatch.chdir(tmp_path)
    return "team.yaml"


def test_folder_of_the_working_directory(config: str, tmp_path: Path):
    ran = massmem("--config", config, "--dir", "own project", "Where is it?")
    progress = ran.stderr.decode()
    assert (ran.returncode, progress.splitlines()[0]) == (0, f"reading {tmp_path}/own project (1 file)")
    assert b"H-412" in ran.stdout and b"left out" in ran.stdout and b"HALL" not in ran.stdout
    assert "ann calls read_file notes.txt" in progress
    assert "--dir 'own project' \"next question\"" in progress.splitlines()[-1]
    session = progress.splitlines()[-1].partition(":")[0]
    again = massmem("--config", config, "--session-id", session, "And now?")
    assert again.stderr.decode().splitlines()[0] == (
        "the last turn has read a folder, which the agents do not have now: give it with --dir DIR"
    )
    included = massmem("--config", config, "--dir", "own project", "--include", ".env", "-q", "Where is it?")
    assert b"HALL=secret" in included.stdout and included.stderr == b""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dir", "gone"], "gone cannot be read: No such file"),
        (["--dir", "team.yaml"], "is a file, not a folder"),
        (["--dir", "~nobody-of-that-name"], "this home folder is not known"),
        (["--include", ".env"], "name the folder: --dir DIR"),
    ],
)
def test_folder_that_cannot_be_read_is_said_before_anything_is_asked(config: str, options: list[str], message: str):
    ran = massmem("--config", config, *options, "Where is it?")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert message in ran.stderr.decode()


def test_conversation_reads_a_folder(config: str):
    child = talk("--config", config, "--dir", "own project")
    shown = say(child, "Where is it?", r"(?s)reading\s.*own\s+project", "H-412")
    assert "(1 file)" in shown
    say(child, "/new", "new")
    say(child, "Where is it?", "H-412")
    assert "--dir 'own project'" in leave(child)


def test_checks_name_the_folder(config: str, tmp_path: Path):
    team = json.loads((tmp_path / config).read_text())
    for place, status in (("own project", "ok"), ("gone", "failed")):
        (tmp_path / config).write_text(json.dumps(team | {"files": {"folders": [place]}}))
        checks = json.loads(massmem("doctor", "--config", config, "--offline", "--json").stdout)["checks"]
        (check,) = [check for check in checks if place in json.dumps(check)]
        assert check["status"] == status
        assert f"{tmp_path}/{place}" in massmem("config", "show", config).stdout.decode()
