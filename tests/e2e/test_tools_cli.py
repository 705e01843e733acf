"""The real program with real tool servers: what a user sees, how it ends, and what is left."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.support.cli import COMMAND, massmem, run_program, start
from tests.support.tools import calls, list_servers_left, server, team_data

pytestmark = pytest.mark.slow

TIME = {"name": "time", "command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}


def write(folder: Path, script: dict[str, Any], *servers: dict[str, Any], **more: Any) -> str:
    path = folder / "team.yaml"
    path.write_text(json.dumps(team_data(script, *servers, **more)))
    return str(path)


@pytest.mark.parametrize("native", [True, False])
def test_a_server_from_the_registry(tmp_path: Path, native: bool):
    arguments = {"source_timezone": "Europe/Berlin", "time": "12:30", "target_timezone": "Asia/Tokyo"}
    script = {"answer": [{"call": {"tool": "convert_time", "arguments": arguments}}, "{result}"]}
    config = write(tmp_path, script, TIME, tools=native)
    ran = massmem("--config", config, "When it is half past noon in Berlin, what time is it in Tokyo?")
    assert ran.returncode == 0, ran.stderr.decode()
    assert json.loads(ran.stdout)["target"]["timezone"] == "Asia/Tokyo"
    told = ran.stderr.decode()
    assert "ann calls convert_time Europe/Berlin (" in told
    assert "ann used convert_time: " in told


def test_the_log_has_it_all_and_so_have_exports(tmp_path: Path):
    script = {"answer": [{"call": {"tool": "echo", "arguments": {"text": "hall H-412"}}}, "There."]}
    config = write(tmp_path, script, server(tmp_path / "calls"))
    ran = massmem("--config", config, "--output", "jsonl", "Where?")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    session = events[0]["session_id"]
    assert [e["type"] for e in events if e["type"].startswith("tool_")] == ["tool_called", "tool_returned"]
    exported = json.loads(massmem("sessions", "export", session, "--format", "json").stdout)
    (turn,) = exported["turns"]
    made = [(m["kind"], m["content"]) for m in turn["messages"] if m["kind"].startswith("tool_")]
    assert made == [("tool_call", '{"mcp__t__echo": {"text": "hall H-412"}}'), ("tool_result", "hall H-412")]


def test_a_terminal_is_never_told_what_to_do(tmp_path: Path):
    script = {"answer": [{"call": [{"tool": "hostile"}, {"tool": "echo\x1b[2J"}]}, "{result}"]}
    config = write(tmp_path, script, server(tmp_path / "calls"))
    for output in ("plain", "jsonl"):
        ran = massmem("--config", config, "--output", output, "why?")
        assert ran.returncode == 0
        assert b"\x1b" not in ran.stdout + ran.stderr
        assert b"\x07" not in ran.stdout + ran.stderr


def test_ctrl_c_in_a_call_ends_the_server_and_keeps_the_turn(tmp_path: Path):
    log = tmp_path / "calls"
    script = {"answer": [{"call": {"tool": "slow", "arguments": {"seconds": 60}}}, "late"]}
    child = start("--config", write(tmp_path, script, server(log)), "--output", "jsonl", "why?")
    until = time.monotonic() + 20
    while not calls(log) and time.monotonic() < until:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert b"Traceback" not in err
    assert json.loads(out.splitlines()[-1])["type"] == "turn_interrupted"
    assert not list_servers_left(tmp_path)


def test_a_program_that_is_not_there_is_said_before_anything_is_asked(tmp_path: Path):
    config = write(tmp_path, {}, {"name": "gone", "command": "no-such-program-anywhere"})
    ran = massmem("--config", config, "why?")
    assert ran.returncode == 2
    assert ran.stdout == b""
    assert b"the program 'no-such-program-anywhere' of the tool server gone is not there" in ran.stderr


def test_a_server_that_does_not_start_is_one_line(tmp_path: Path):
    config = write(tmp_path, {"answer": ["without"]}, server(None, "--broken"))
    ran = massmem("--config", config, "why?")
    assert (ran.returncode, ran.stdout) == (0, b"without\n")
    lines = [line for line in ran.stderr.decode().splitlines() if "tool server" in line]
    assert len(lines) == 1
    assert "the tool server t does not start: tool server: no license found; ann goes on without its tools" in lines[0]


def test_start_of_a_server_is_shown_while_it_takes_long(tmp_path: Path):
    idle = {"name": "idle", "command": "sleep", "args": ["60"], "start_timeout": 5}
    config = write(tmp_path, {"answer": ["without"]}, idle)
    child: Any = pexpect.spawn(COMMAND[0], [*COMMAND[1:], "--config", config, "why?"], encoding="utf-8", timeout=60)
    child.expect_exact("starting 1 tool server")
    child.expect_exact("without")
    child.expect(pexpect.EOF)


BROKEN = {
    "sitecustomize.py": "import sys; sys.modules['mcp'] = None  # as where it is not installed",
    "mcp/__init__.py": "raise ImportError('libssl.so.9: no such file')",
}


@pytest.mark.parametrize(
    ("file", "said"), [("sitecustomize.py", "is not installed"), ("mcp/__init__.py", "cannot be loaded: libssl.so.9")]
)
def test_without_the_package_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, said: str):
    """The package is taken from a real process, by what comes first on its path."""
    path = tmp_path / "first" / file
    path.parent.mkdir(parents=True)
    path.write_text(BROKEN[file])
    config = write(tmp_path, {"answer": ["an answer"]}, server(tmp_path / "calls"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "first"))
    ran = run_program("--config", config, "--output", "jsonl", "why?")
    told = ran.stderr.decode()
    assert ran.returncode == 2, told
    assert told.count("tools need the package mcp") == 1
    assert f"tools need the package mcp, which {said}" in told
    assert "pip install --upgrade 'massmem[mcp]'" in told
    assert "Traceback" not in told
    assert b"agent_started" not in ran.stdout
    checked = run_program("doctor", "--config", config)
    assert checked.returncode == 1
    assert f"failed   tools        tools need the package mcp, which {said}" in checked.stdout.decode()
