"""Coding agents, as npm has them, ask the council as `massmem skill install` has set them up; their model is a stub.

OpenCode, Claude Code and Codex are installed in `.clients`; CONTRIBUTING.md says how.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests.support.cli import call_massmem
from tests.support.json_server import serve_posts
from tests.support.service import make_agent, make_config

PROGRAMS = Path(__file__).parents[2] / ".clients" / "programs" / "node_modules" / ".bin"
QUESTION = "Why is the sky blue?"
RELAYED = "The council says so."
ARGUMENTS = {"question": QUESTION, "evidence": "Noon."}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not on this machine"),
]


class ModelServer:
    """Calls the tool `ask_council` once, and then says that it did, in the words of three APIs."""

    url = ""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def respond(self, body: bytes) -> tuple[int, str, bytes]:
        request = json.loads(body)
        self.bodies.append(request)
        tools = [tool.get("name") or tool.get("function", {}).get("name") for tool in request.get("tools", [])]
        spaces = [tool for tool in request.get("tools", []) if tool.get("type") == "namespace"]
        tools += [f"{space['name']}/{tool['name']}" for space in spaces for tool in space["tools"]]
        names = [name for name in tools if name and name.endswith(("ask_council", "WaitForMcpServers"))]
        is_done = "It is blue." in json.dumps(request)
        events = self._reply(request, None if is_done else min(names, key=lambda name: "Wait" in name, default=None))
        text = "".join(
            (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
            for event in events
        )
        return 200, "text/event-stream", text.encode() + b"data: [DONE]\n\n"

    def _reply(self, request: dict[str, Any], tool: str | None) -> Iterator[dict[str, Any]]:
        if "input" in request:
            yield from _answer_as_responses(tool)
        elif "max_tokens" in request and "system" in request:
            yield from _answer_as_anthropic(tool)
        else:
            yield from _answer_as_chat(tool)


def _answer_as_chat(tool: str | None) -> Iterator[dict[str, Any]]:
    base = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
    delta: dict[str, Any] = {"content": RELAYED}
    if tool is not None:
        function = {"name": tool, "arguments": json.dumps(ARGUMENTS)}
        delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    for part, finish in (({"role": "assistant", **delta}, None), ({}, "tool_calls" if tool else "stop")):
        yield base | {"choices": [{"index": 0, "delta": part, "finish_reason": finish}]}
    yield base | {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}}


def _answer_as_anthropic(tool: str | None) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 100, "output_tokens": 5}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "stub", "content": [], "usage": usage}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": RELAYED}
    if tool is not None:
        block = {"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": tool, "input": {}}
        delta = {
            "type": "input_json_delta",
            "partial_json": "{}" if tool == "WaitForMcpServers" else json.dumps(ARGUMENTS),
        }
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


def _answer_as_responses(tool: str | None) -> Iterator[dict[str, Any]]:
    content = [{"type": "output_text", "text": RELAYED, "annotations": []}]
    item: dict[str, Any] = {
        "type": "message",
        "id": "i1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    if tool is not None:
        space, _, name = tool.rpartition("/")
        item = {"type": "function_call", "id": "i1", "call_id": "c1", "name": name, "arguments": json.dumps(ARGUMENTS)}
        item |= {"namespace": space} if space else {}
    yield {"type": "response.created", "response": {"id": "r1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    yield {"type": "response.completed", "response": {"id": "r1", "usage": usage, "output": [item]}}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    server = ModelServer()
    with serve_posts(server.respond) as server.url:
        yield server


@pytest.fixture
def team(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PWD", str(tmp_path))
    folder = home / ".massmem"
    folder.mkdir(mode=0o700)
    team = make_config(make_agent("ann", "It is blue."), memory={"enabled": False})
    (folder / "config.yaml").write_text(yaml.safe_dump(team))


def find(program: str) -> str:
    path = PROGRAMS / program
    if not path.exists():
        pytest.skip(f"{program} is not installed: .ci/run has the command")
    return str(path)


def run(*command: str, folder: Path, **variables: str) -> str:
    ran = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def check_that_the_council_was_asked(model: ModelServer, shown: str) -> None:
    assert RELAYED in shown
    assert "It is blue." in json.dumps(model.bodies[-1])
    sessions = json.loads(call_massmem("sessions", "list", "--json").stdout)["sessions"]
    assert len(sessions) == 1
    log = call_massmem("sessions", "show", sessions[0]["session_id"]).stdout.decode()
    assert QUESTION in log
    assert "--- evidence ---" in log


@pytest.mark.usefixtures("team")
def test_opencode_asks_the_council(home: Path, tmp_path: Path, model: ModelServer) -> None:
    program = find("opencode")
    settings = home / ".config" / "opencode" / "opencode.json"
    settings.parent.mkdir(parents=True)
    options = {"baseURL": model.url, "apiKey": "x"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"stub": {"name": "stub"}}}
    names = {"model": "own/stub", "small_model": "own/stub", "autoupdate": False, "share": "disabled"}
    settings.write_text(json.dumps({**names, "provider": {"own": provider}}))
    call_massmem("skill", "install", "--opencode")
    check_that_the_council_was_asked(model, run(program, "run", QUESTION, folder=tmp_path))
    assert "massmem" in json.dumps(model.bodies)  # the skill, too, is offered to the model


@pytest.mark.usefixtures("team")
def test_claude_code_asks_the_council(tmp_path: Path, model: ModelServer) -> None:
    program = find("claude")
    call_massmem("skill", "install", "--claude")
    shown = run(
        program, "-p", QUESTION, "--allowedTools", "mcp__massmem__ask_council", folder=tmp_path,
        ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="sk-ant-x", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip
    check_that_the_council_was_asked(model, shown)


@pytest.mark.usefixtures("team")
def test_codex_asks_the_council(home: Path, tmp_path: Path, model: ModelServer) -> None:
    program = find("codex")
    call_massmem("skill", "install", "--codex")
    settings = home / ".codex" / "config.toml"
    provider = f'[model_providers.own]\nname = "own"\nbase_url = "{model.url}"\nwire_api = "responses"\n'
    server = settings.read_text().replace("[mcp_servers.massmem]", "[mcp_servers.massmem]\nrequired = true")  # it waits
    settings.write_text(f'model = "stub"\nmodel_provider = "own"\n\n{server}\n{provider}')
    shown = run(
        program,
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        QUESTION,
        folder=tmp_path,
    )
    check_that_the_council_was_asked(model, shown)
