"""README is true: its commands run, its files load, its generated parts are up to date, nothing is missing."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from massmem.cli.commands import COMMANDS
from massmem.config.load import load_config
from massmem.session.registry import Registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()

NOT_RUN = {
    "scripts/run": "it fetches the 1.1 GB model; tests/integration runs that model",
    "scripts/test": "it is this test run",
    "@examples/mixed": "it needs keys",
    "@examples/ollama": "it needs a running Ollama",
    '"It is O-12345"': "it replies to a turn that waits; tests/e2e/test_waiting_for_params.py has one",
    "massmem init": "the user has a configuration; tests/integration has init",
    "massmem serve": "it serves until it is stopped; tests/e2e/test_server_clients.py uses it",
    "curl ": "it needs the service of the line before; tests/e2e/test_server_clients.py has curl",
    "export MASSMEM": "it sets a variable only",
    "export TOKEN": "it needs the secret; tests/e2e/test_server_clients.py makes tokens",
    "export OPENAI": "it sets a variable only",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(block: str) -> list[str]:
    return [line.split("  #")[0].rstrip() for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user whose own configuration is the scripted team, at full speed, with one session in it."""
    home = tmp_path_factory.mktemp("user")
    (home / ".massmem").mkdir()
    team = (ROOT / "configs" / "scripted.yaml").read_text()
    (home / ".massmem" / "config.yaml").write_text(re.sub(r"(latency|chunk_delay): [\d.]+", r"\1: 0", team))
    subprocess.run(
        [sys.executable, "-m", "massmem", "hello"], env=os.environ | {"HOME": str(home)}, check=True, timeout=60
    )
    return home


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("bash"), ids=lambda block: block.partition("\n")[0].split("  #")[0].strip())
def test_every_command_runs(block: str, user: Path, subtests: pytest.Subtests):
    # In order: a command may build on those above it in its block.
    for command in commands(block):
        with subtests.test(command):
            run(command, user)


def run(command: str, user: Path) -> None:
    for part, reason in NOT_RUN.items():
        if part in command:
            pytest.skip(f"{command}: {reason}")
    session_id = Registry(user / ".massmem").read_entries()[-1].session_id
    command = re.sub(r"session_\d{8}_\d{6}", session_id, command)
    if command.endswith(session_id):
        pytest.skip(f"{command}: the session has no unfinished turn; tests/integration/test_session.py has one")
    command = re.sub(r"(^|[|(] *)massmem ", rf"\1{shlex.quote(sys.executable)} -m massmem ", command)
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT, env=os.environ | {"HOME": str(user)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    # What only reports on its work, as `memory rebuild` does, does it on stderr.
    assert (result.stdout or result.stderr).strip()
    assert "Traceback" not in result.stderr


def test_every_yaml_block_is_a_valid_configuration(tmp_path: Path):
    for block in blocks("yaml"):
        path = tmp_path / "team.yaml"
        path.write_text(block)
        config, warnings = load_config(path, {})
        assert len(config.agents) == len(yaml.safe_load(block)["agents"])
        assert warnings == []


@pytest.mark.parametrize("block", blocks("python"))
def test_every_program_runs(block: str, user: Path):
    result = subprocess.run(
        [sys.executable, "-c", block],
        cwd=ROOT, env=os.environ | {"HOME": str(user)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_every_command_and_script_is_mentioned():
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", README), name
    for path in (ROOT / "scripts").iterdir():
        if path.is_file() and not path.suffix:
            assert f"scripts/{path.name}" in README, path.name


def test_generated_parts_are_up_to_date():
    result = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "-I", ".", "README.md"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_license_is_the_apache_license():
    assert "Apache License\n                        Version 2.0" in (ROOT / "LICENSE").read_text()
