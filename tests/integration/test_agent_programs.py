"""OpenCode and Qwen Code, as npm has them, as members of a team beside a plain model, on a folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from massmem.core.prompts import parse_votable
from tests.support.cli import call_massmem
from tests.support.json_server import serve_posts
from tests.support.pictures import PNG
from tests.support.tools import calls, server

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".clients" / "programs" / "node_modules" / ".bin"
INSTALL = "npm install --prefix .clients/programs opencode-ai@^1.18 @qwen-code/qwen-code@>=0.15"
QUESTION = "What does src/calc.py do?"
TEXT = "def add(a, b):\n    return a + b\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not on this machine"),
    pytest.mark.skipif(not (PROGRAMS / "opencode").exists(), reason=f"no agent programs: {INSTALL}"),
]


class ModelServer:
    """A model that reads the file that it is asked about, writes it if it can, then answers; or votes."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.tool = "read"

    def respond(self, body: bytes) -> tuple[int, str, bytes]:
        request = json.loads(body)
        self.bodies.append(request)
        chunks = [f"data: {json.dumps(chunk)}\n\n" for chunk in self._reply(request)]
        return 200, "text/event-stream", "".join([*chunks, "data: [DONE]\n\n"]).encode()

    def _reply(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        tools = [tool["function"]["name"] for tool in request.get("tools", [])]
        messages = request["messages"]
        asked = "\n".join(json.dumps(message["content"]) for message in messages if message["role"] == "user")
        own = next((name for name in tools if self.tool in name and "todo" not in name), "")
        call: tuple[str, dict[str, Any]] | None = None
        text = "A title" if not tools else "It adds two numbers."
        if "Carry it out now" in asked:
            yield from self._write(request, tools, sum(message["role"] == "tool" for message in messages))
            return
        if "JSON Schema" in asked:
            labels = re.findall(r'"choice.{1,60}?enum.{1,8}?"([A-Z])', asked.replace("\\", ""))
            text = json.dumps({"reason": "It is right.", "action": "vote", "choice": labels[-1]})
        elif "vote" in tools:
            label = next(iter(next(filter(None, (parse_votable(m["content"]) for m in reversed(messages))))))
            call = "vote", {"reason": "It is right.", "choice": label}
        elif "not among your own" in asked and "<result>" not in asked:
            text = json.dumps({"action": "mcp__t__echo", "arguments": {"text": "hello"}})
        elif own and messages[-1]["role"] != "tool":
            place = str(Path(self.folder, "src", "calc.py"))
            known = next(t for t in request["tools"] if t["function"]["name"] == own)["function"]["parameters"]
            values = {"command": "echo x > written", "description": "d", "is_background": False, "content": "x"}
            call = (
                own,
                {key: values.get(key, place) for key in known["properties"] if "path" in key.lower() or key in values},
            )
        yield from self._send(call, text)

    def _write(self, request: dict[str, Any], tools: list[str], number: int) -> Iterator[dict[str, Any]]:
        """Call one tool after the other: edit a file, write one beside the folder, write a new one, run a command."""
        folder = Path(self.folder)
        files = {"read": "src/calc.py", "edit": "src/calc.py", "beside": "../beside.py", "new": "src/new.py", "run": ""}
        if not tools or number >= len(files):
            yield from self._send(None, "I did that.")
            return
        step, name = list(files.items())[number]
        words = {"read": ("read",), "edit": ("edit",), "run": ("bash", "shell")}.get(step, ("write",))
        tool = next(t for t in tools if any(word in t for word in words) and "todo" not in t)
        known = next(t for t in request["tools"] if t["function"]["name"] == tool)["function"]["parameters"]
        values = {
            "old": "a + b", "new": "a - b", "content": "y = 1\n", "command": "echo x > made", "is_background": False,
            "description": "d", "path": str((folder / name).resolve()),
        }  # fmt: skip
        keys = {key: next((v for k, v in values.items() if k in key.lower()), None) for key in known["properties"]}
        yield from self._send((tool, {key: value for key, value in keys.items() if value is not None}), "")

    def _send(self, call: tuple[str, dict[str, Any]] | None, text: str) -> Iterator[dict[str, Any]]:
        base = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
        delta: dict[str, Any] = {"content": text}
        if call is not None:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
        for part, finish in (({"role": "assistant", **delta}, None), ({}, "tool_calls" if call else "stop")):
            yield base | {"choices": [{"index": 0, "delta": part, "finish_reason": finish}]}
        yield base | {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}}

    folder = ""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    server = ModelServer()
    with serve_posts(server.respond) as server.url:
        yield server


@pytest.fixture
def team(tmp_path: Path, home: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a team's configuration; its programs and its plain model ask `model`, and the folder is `project`."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "calc.py").write_text(TEXT)
    model.folder = str(project)
    settings = home / ".config" / "opencode"
    settings.mkdir(parents=True)
    options = {"baseURL": model.url, "apiKey": "x"}
    stub = {"name": "stub", "attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"stub": stub}}
    names = {"model": "own/stub", "small_model": "own/stub", "autoupdate": False, "share": "disabled"}
    (settings / "opencode.json").write_text(json.dumps({**names, "provider": {"own": provider}}))
    for name, value in (("API_KEY", "x"), ("BASE_URL", model.url), ("MODEL", "stub")):
        monkeypatch.setenv(f"OPENAI_{name}", value)
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    path = tmp_path / "team.yaml"
    path.write_text(
        "agents:\n"
        "  - {id: open, backend: {type: opencode, timeout: 300}}\n"
        "  - {id: qwen, backend: {type: qwen-code, timeout: 300}}\n"
        f"  - {{id: plain, backend: {{type: openai, api: chat, model: stub, base_url: '{model.url}', api_key: x}}}}\n"
        "memory: {enabled: false}\n"
    )
    return path


def ask(team: Path, *options: str) -> tuple[list[dict[str, Any]], str]:
    ran = call_massmem(
        "--config", str(team), "--dir", str(team.parent / "project"), "--output", "jsonl", *options, QUESTION
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr.decode()


def test_two_programs_and_a_model_answer_and_vote_on_a_folder(team: Path, model: ModelServer) -> None:
    events, _ = ask(team)
    answers = {event["agent_id"]: event["content"] for event in events if event["type"] == "answer_submitted"}
    assert answers.keys() == {"open", "qwen", "plain"}
    assert set(answers.values()) == {"It adds two numbers."}
    work = {(event["agent_id"], event["what"]) for event in events if event["type"] == "agent_busy"}
    assert {("open", "reads src/calc.py"), ("qwen", "reads src/calc.py")} <= work
    results = [message for body in model.bodies for message in body["messages"] if message["role"] == "tool"]
    assert sum("return a + b" in json.dumps(message) for message in results) >= 3
    usage = next(event for event in events if event["type"] == "turn_completed")["usage"]
    assert (usage["prompt"] > 0, usage["cost"]) == (True, None)


@pytest.mark.parametrize("tool", ["bash", "shell", "write", "edit"])
def test_a_program_changes_no_file_that_it_wants_to_change(team: Path, model: ModelServer, tool: str) -> None:
    model.tool = tool
    events, _ = ask(team)
    assert any(event["type"] == "answer_submitted" for event in events)
    project = team.parent / "project"
    assert {str(path.relative_to(project)): path.read_text() for path in project.rglob("*") if path.is_file()} == {
        "src/calc.py": TEXT
    }


@pytest.mark.parametrize("kind", ["opencode", "qwen-code"])
def test_a_program_gets_pictures_and_tools(team: Path, model: ModelServer, home: Path, kind: str) -> None:
    (home / "plan.png").write_bytes(PNG)
    log = home / "calls"
    agent = {"id": "ann", "backend": {"type": kind, "timeout": 300}, "mcp_servers": [server(log, allow=["echo"])]}
    team.write_text(json.dumps({"agents": [agent], "memory": {"enabled": False}}))
    events, _ = ask(team, "--image", str(home / "plan.png"))
    assert [call["text"] for call in calls(log)] == ["hello"]
    assert [event["content"] for event in events if event["type"] == "answer_submitted"] == ["It adds two numbers."]
    asked = json.dumps([message for body in model.bodies for message in body["messages"] if message["role"] == "user"])
    # Qwen Code knows of no model by this name that it sees, and tells it so.
    assert ("data:image/png;base64" if kind == "opencode" else "does not support image input") in asked
@pytest.mark.parametrize("agent", ["open", "qwen"])
def test_a_program_carries_the_answer_out_in_the_folder_alone(team: Path, agent: str) -> None:
    project = team.parent / "project"
    options = ("--allow-write", str(project), f"--solo={agent}", "--output", "jsonl")
    ran = call_massmem("--config", str(team), *options, "Make it subtract.")
    assert ran.returncode == 0, ran.stderr.decode()
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    work = {event["what"] for event in events if event["type"] == "agent_busy"}
    assert {"edits src/calc.py", "edits src/new.py", "runs echo x > made"} <= work
    assert any(what.startswith("may not: edits") and what.endswith("beside.py") for what in work)
    assert (project / "src" / "calc.py").read_text() == TEXT.replace("+", "-")
    assert not (team.parent / "beside.py").exists()
    assert (project / "made").exists()
    done = events[-1]["carried_out"]
    assert done["changes"] == {"made": "new", "src/calc.py": "changed", "src/new.py": "new"}
    assert (done["agent_id"], done["text"], done["error"]) == (agent, "I did that.", "")


def test_programs_end_when_massmem_is_killed(team: Path, home: Path) -> None:
    command = [sys.executable, "-m", "massmem", "--config", str(team), QUESTION]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(find_programs(home)) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while find_programs(home):
        assert time.monotonic() < end, find_programs(home)
        time.sleep(0.1)


def find_programs(home: Path) -> list[str]:
    """Return the programs with this home that run."""
    programs: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                programs += [word for word in process.cmdline()[:3] if "opencode" in word or "qwen" in word][:1]
        except psutil.Error:
            continue
    return programs
