"""No connection is made that the configuration does not name: whole runs in processes that cannot look up any name."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.cli import run_program, script, write_team

pytestmark = pytest.mark.slow

REFUSING = '''
"""Python loads this by itself: no name is looked up, nothing but loopback is connected to, and tries are noted."""
import os
import socket

TOLD = os.environ["TRIED"]


def note(what):
    with open(TOLD, "a") as file:
        file.write(f"{what}\\n")
    raise OSError(f"refused: {what}")


def getaddrinfo(host, *args, **kwargs):
    if host in ("127.0.0.1", "::1", "localhost", None):
        return real_getaddrinfo(host, *args, **kwargs)
    note(f"getaddrinfo {host.decode() if isinstance(host, bytes) else host}")


class Socket(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
            note(f"connect {address}")
        return super().connect(address)

    def connect_ex(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
            note(f"connect {address}")
        return super().connect_ex(address)


real_getaddrinfo = socket.getaddrinfo
socket.getaddrinfo = getaddrinfo
socket.gethostbyname = lambda host: note(f"gethostbyname {host}")
socket.socket = Socket
'''


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What processes that are started from now on have tried to reach."""
    folder, told = tmp_path / "refusing", tmp_path / "tried"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(REFUSING)
    monkeypatch.setenv("TRIED", str(told))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    return told


def test_refused_connection_is_noted(attempts: Path):
    """So that the other tests can fail."""
    import subprocess

    code = "import urllib.request as r; r.urlopen('http://example.com')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60).returncode == 1
    assert attempts.read_text() == "getaddrinfo example.com\n"


def test_a_conversation_with_memory_reaches_nobody(tmp_path: Path, home: Path, attempts: Path):
    telemetry = {"stages": str(tmp_path / "stages.jsonl")}
    memory = {"persistent_memory": {"session_name": None}}
    team = write_team(tmp_path, script("Blue is short."), script("Air scatters."), telemetry=telemetry, memory=memory)
    for question in ("Why is the sky blue?", "And sunsets?"):
        ran = run_program("--config", team, "--debug", question, timeout=60, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
    assert run_program("memory", "search", "--config", team, "sky", timeout=60).returncode == 0
    assert run_program("sessions", "insights", timeout=60).returncode == 0
    assert not attempts.exists(), attempts.read_text()
    stages = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["turn"]) for line in stages] == [
        ("received", 1), ("respond", 1), ("received", 1), ("respond", 1)
    ]  # fmt: skip
    assert stages[0]["payload"]["memory"] == {"history_count": 0, "params_keys": [], "waiting_for_param": None}
    assert stages[1]["payload"]["memory"]["history_count"] > 0


def test_prices_are_known_without_looking_anywhere(tmp_path: Path, attempts: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-unused-0123456789")
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps({"agents": [{"id": "ann", "backend": {"type": "openai", "max_retries": 0}}]}))
    ran = run_program("--config", str(path), "--max-cost", "1", "--no-store", "Why?", timeout=60)
    assert ran.returncode == 3, ran.stderr
    assert set(attempts.read_text().splitlines()) == {"getaddrinfo api.openai.com"}  # what the configuration names
