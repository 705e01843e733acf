"""The first run: no configuration, no key, no model. One message, at once, and nothing is created."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from massmem.cli.main import main
from tests.support.cli import COMMAND, call_massmem, script, write_team

CPU_SECONDS = 1.0


@pytest.fixture(autouse=True)
def no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path / "models"))


def test_message_names_the_cause_and_every_way_out(home: Path):
    ran = call_massmem("hi")
    assert (ran.returncode, ran.stdout) == (2, b"")
    message, *steps = ran.stderr.decode().splitlines()
    assert message == (
        f"massmem: no model is set up: there is no {home}/.massmem/config.yaml, no API key in the "
        "environment, and no model on this machine"
    )
    assert [line.split("  ")[2].strip() for line in steps[1:]] == [
        "massmem init", "export OPENAI_API_KEY=...", "massmem models fetch", "massmem --config @examples/scripted hi"
    ]  # fmt: skip
    assert list(home.iterdir()) == []


def test_json_error():
    ran = call_massmem("--json", "hi")
    error = json.loads(ran.stdout)
    assert (ran.returncode, error["status"], error["exit_code"]) == (2, "error", 2)
    assert "massmem init" in error["fix"]


def test_takes_less_than_a_second_of_processor_time():
    """Processor time does not depend on the load of the machine."""
    process = subprocess.Popen(
        [*COMMAND, "hi"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 2
    assert used.ru_utime + used.ru_stime < CPU_SECONDS


def test_no_heavy_package_is_imported():
    code = "import sys; from massmem.cli.main import main; main(['hi']); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    loaded = set(ran.stderr.splitlines()[-1].split())
    assert "massmem.cli.setup" in loaded
    assert loaded & {"sqlalchemy", "openai", "anthropic", "httpx2", "qdrant_edge", "numpy", "rich", "tiktoken"} == set()


@pytest.mark.parametrize("command", [["sessions", "list"], ["memory", "list"], ["--list-sessions"], ["paths"]])
def test_commands_without_a_model_work(command: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(command) == 0


def test_key_or_configuration_is_enough(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    team = write_team(tmp_path, script("one"))
    assert main(["--config", team, "hi"]) == 0
    (home / ".massmem" / "config.yaml").write_text(Path(team).read_text())
    assert main(["hi"]) == 0
    (home / ".massmem" / "config.yaml").write_text("agents: 3")
    assert main(["hi"]) == 2
    assert "config.yaml:1: agents: must be a list" in capsys.readouterr().err
    (home / ".massmem" / "config.yaml").unlink()
    monkeypatch.setenv("OPENAI_API_KEY", "a key with spaces")
    assert main(["hi"]) == 2
    assert "no model is set up" not in capsys.readouterr().err
