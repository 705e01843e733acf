"""massmem as the agent of acpx, a client of the Agent Client Protocol for terminals, as npm has it."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import COMMAND, script, write_team

ACPX = Path(__file__).parents[2] / ".clients" / "acpx" / "node_modules" / ".bin" / "acpx"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not on this machine"),
    pytest.mark.skipif(not ACPX.exists(), reason="no acpx: npm install --prefix .clients/acpx 'acpx@>=0.19'"),
]


def ask(folder: Path, config: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    agent = shlex.join([*COMMAND, "acp", "--config", config])
    command = [str(ACPX), "--agent", agent, "--cwd", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_client_shows_plan_calls_and_answer(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("ANSWER = 42\n")
    calls = [{"call": {"tool": "read_file", "arguments": {"path": "a.py"}}}, "It is 42."]
    team = write_team(tmp_path, {"answer": calls, "vote": "first"}, script("It is 43."))
    ran = ask(folder, team, "exec", "What is the answer?")
    assert ran.returncode == 0, ran.stderr
    assert "[in_progress] a: working" in ran.stdout
    assert "a reads a.py" in ran.stdout
    assert "It is 4" in ran.stdout and "2 agents" in ran.stdout


def test_client_is_told_what_is_wrong(tmp_path: Path) -> None:
    ran = ask(tmp_path, str(tmp_path / "missing.yaml"), "exec", "Anyone?")
    assert ran.returncode != 0
    assert "missing.yaml" in ran.stdout + ran.stderr and "massmem init" in ran.stdout + ran.stderr
