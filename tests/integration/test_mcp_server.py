"""massmem as an MCP server, over stdio and HTTP, used by the official client."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pexpect
import pytest
import yaml
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.cli import call_massmem
from tests.support.council_server import CouncilServer, council_server
from tests.support.forked import ForkedTerminal
from tests.support.service import Service, StartService, make_agent, make_config, make_token, wait_until

TOOLS = [
    "ask_council", "start_council", "check_council", "cancel_council",
    "recall", "remember", "forget", "list_sessions", "read_session",
]  # fmt: skip


def make_team() -> dict[str, Any]:
    return make_config(
        make_agent("ann", "It is blue."),
        make_agent("bob", "It is green.", vote=[{"vote_for": "It is blue.", "reason": "because"}]),
        memory={"persistent_memory": {"session_name": None, "embedding": {"provider": "none"}}},
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("mcp"), make_team()).start()
    yield service
    service.stop()


@asynccontextmanager
async def open_http(service: Service, user: str, mode: Literal["auto", "legacy"] = "auto") -> AsyncGenerator[Client]:
    """mode: legacy is the protocol before 2026."""
    headers = {"Authorization": f"Bearer {make_token(user)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{service.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def write_team(folder: Path, team: dict[str, Any]) -> list[str]:
    """Return the command of a server on stdio."""
    (folder / "team.yaml").write_text(yaml.safe_dump(team))
    return [sys.executable, "-m", "massmem", "mcp", "--config", str(folder / "team.yaml")]


@asynccontextmanager
async def open_stdio(folder: Path, team: dict[str, Any] | None = None) -> AsyncGenerator[Client]:
    command, *arguments = write_team(folder, team or make_team())
    environment = dict(os.environ) | {"HOME": str(folder)}
    with (folder / "stderr").open("w") as errors:
        parameters = StdioServerParameters(command=command, args=arguments, env=environment)
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured result of a tool that works."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def fail(client: Client, tool: str, **arguments: Any) -> str:
    """Return the message of a tool that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return str(getattr(result.content[0], "text", ""))


async def use_every_tool(client: Client) -> None:
    assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
    lines: list[str] = []

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        assert progress == len(lines) + 1
        assert total is None
        lines.append(message or "")

    asked = await client.call_tool("ask_council", {"question": "Why is the sky blue?"}, progress_callback=note_progress)
    answer: Any = asked.structured_content
    assert (answer["answer"], answer["status"], answer["winner"]) == ("It is blue.", "completed", "ann")
    assert "agents" not in answer
    assert {position["agent"] for position in answer["dissent"]["agreed"]} == {"ann", "bob"}
    assert any("bob votes for ann" in line for line in lines)
    session_id = answer["session_id"]
    again = await call(client, "ask_council", question="And at night?", session_id=session_id)
    assert (again["session_id"], again["turn"]) == (session_id, 2)
    messages = (await call(client, "read_session", session_id=session_id))["messages"]
    assert [message["text"] for message in messages] == [
        "Why is the sky blue?", "It is blue.", "And at night?", "It is blue.",
    ]  # fmt: skip
    assert (await call(client, "remember", text="I prefer metric units."))["session_id"] == "notes"
    assert (await call(client, "remember", text="The launch is on Friday.", session_id=session_id)) is not None
    memories = (await call(client, "recall", query="metric units"))["memories"]
    assert "metric" in memories[0]["text"]
    assert (await call(client, "forget", ids=[memories[0]["id"]])) == {"memories": 1, "note": ""}
    assert (await call(client, "recall", query="metric units"))["memories"] == []
    assert "no memory" in await fail(client, "forget", ids=["deadbeef"])
    sessions = (await call(client, "list_sessions"))["sessions"]
    assert {entry["session_id"] for entry in sessions} == {session_id, "notes"}
    assert {str(resource.uri) for resource in (await client.list_resources()).resources} == {
        f"massmem://sessions/{session_id}", "massmem://sessions/notes",
    }  # fmt: skip
    (content,) = (await client.read_resource(f"massmem://sessions/{session_id}")).contents
    assert len(json.loads(getattr(content, "text", ""))["messages"]) >= 4
    (report,) = (await client.read_resource(f"massmem://reports/{session_id}")).contents
    assert "**Given or chosen**" in getattr(report, "text", "")


async def test_every_tool_works_over_stdio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it is in no project
    async with open_stdio(tmp_path) as client:
        await use_every_tool(client)


async def test_every_tool_works_over_http(service: Service) -> None:
    async with open_http(service, "alice") as client:
        await use_every_tool(client)


async def test_bad_arguments_are_errors_of_the_tool(service: Service) -> None:
    async with open_http(service, "bad") as client:
        for tool, arguments in (
            ("ask_council", {"question": ""}),
            ("ask_council", {"question": "  "}),
            ("ask_council", {"question": "Why?", "session_id": "nobody"}),
            ("ask_council", {"question": "Why?", "session_id": "../x"}),
            ("ask_council", {}),
            ("read_session", {"session_id": "nobody"}),
            ("read_session", {"session_id": "x" * 1_000}),
            ("recall", {"query": "x", "limit": 0}),
            ("remember", {"text": "x", "session_id": "nobody"}),
            ("nothing", {}),
            ("start_council", {"question": "Why?", "team": "nobody"}),
            ("start_council", {"question": "Why?", "answer_schema": {"type": "nonsense"}}),
            ("check_council", {}),
            ("check_council", {"session_id": "nobody"}),
            ("cancel_council", {"session_id": "nobody"}),
            ("forget", {"ids": []}),
        ):
            message = await fail(client, tool, **arguments)
            assert "Traceback" not in message
            assert str(service.home) not in message
        with pytest.raises(MCPError, match="no such session"):
            await client.read_resource("massmem://sessions/nobody")
        with pytest.raises(MCPError, match="no such session"):
            await client.read_resource("massmem://reports/nobody")
        assert (await call(client, "list_sessions"))["sessions"] == []


async def test_sessions_and_memories_of_others_do_not_exist(service: Service) -> None:
    async with open_http(service, "carol") as carol, open_http(service, "dave") as dave:
        answer = await call(carol, "ask_council", question="What is an axolotl?")
        await call(carol, "remember", text="Carol's axolotl is called Xochi.")
        assert (await call(dave, "list_sessions"))["sessions"] == []
        assert "no such session" in await fail(dave, "read_session", session_id=answer["session_id"])
        assert "no such session" in await fail(dave, "ask_council", question="?", session_id=answer["session_id"])
        assert (await call(dave, "recall", query="axolotl Xochi"))["memories"] == []
        assert (await dave.list_resources()).resources == []
        [memory] = [m for m in (await call(carol, "recall", query="axolotl Xochi"))["memories"] if "Xochi" in m["text"]]
        assert "no memory" in await fail(dave, "forget", ids=[memory["id"]])
        for tool in ("check_council", "cancel_council"):
            assert "no such session" in await fail(dave, tool, session_id=answer["session_id"])
        assert "no question has been asked" in await fail(dave, "check_council")
        with pytest.raises(MCPError, match="no such session"):
            await dave.read_resource(f"massmem://reports/{answer['session_id']}")
        assert (await call(carol, "recall", query="axolotl Xochi"))["memories"] != []


def test_stream_without_a_request_is_refused(service: Service) -> None:
    """The server has nothing to send on it; it would only hold a connection."""
    headers = {"Authorization": f"Bearer {make_token('gil')}", "Accept": "text/event-stream"}
    assert httpx2.get(f"{service.url}/mcp", headers=headers).status_code == 405


def test_request_without_a_valid_key_is_refused(service: Service) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for key in ("nonsense", f"sk-massmem-{'0' * 64}"):
        headers = {"Authorization": f"Bearer {key}"}
        response = httpx2.post(f"{service.url}/mcp", json=body, headers=headers)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.fixture
def council() -> Iterator[CouncilServer]:
    with council_server() as server:
        yield server


def make_held_team(council: CouncilServer) -> dict[str, Any]:
    backend = {"type": "openai", "model": "stub", "base_url": council.url, "api_key": "test"}
    return make_config({"id": "hal", "system_message": "hal", "backend": backend}, memory={"enabled": False})


async def give_up(client: Client, council: CouncilServer) -> None:
    """Ask, and wait for a second only, while the model works."""
    council.gate.clear()
    with pytest.raises(MCPError, match=r"(?i)time"):
        await client.call_tool("ask_council", {"question": "Why?"}, read_timeout_seconds=1)
    await asyncio.to_thread(wait_until, lambda: bool(council.requests))


async def find_later(client: Client, council: CouncilServer) -> None:
    """Ask for what the client did not wait for: how far it is, then the answer; no model is asked for that."""
    state = await call(client, "check_council")
    assert state["status"] == "running"
    requests = len(council.requests)
    council.gate.set()
    done = await call(client, "check_council", session_id=state["session_id"], wait_seconds=50)
    assert (done["status"], done["question"], done["answer"]) == ("completed", "Why?", "answer of hal")
    assert len(council.requests) == requests


async def cancel(client: Client, council: CouncilServer) -> None:
    council.gate.clear()
    started = await call(client, "start_council", question="Why not?")
    assert (started["status"], started["turn"]) == ("running", 1)
    assert "under way" in await fail(client, "ask_council", question="?", session_id=started["session_id"])
    stopped = await call(client, "cancel_council", session_id=started["session_id"])
    assert (stopped["status"], stopped["stopped_by"]) == ("interrupted", "user")
    council.gate.set()
    finished = await call(client, "ask_council", session_id=started["session_id"])
    assert (finished["status"], finished["answer"], finished["turn"]) == ("completed", "answer of hal", 1)
    assert "no turn" in await fail(client, "cancel_council", session_id=started["session_id"])
    assert "unfinished" in await fail(client, "start_council", session_id=started["session_id"])


async def test_question_goes_on_without_its_client_until_it_is_cancelled_over_http(
    start_service: StartService, council: CouncilServer
) -> None:
    service = start_service(make_held_team(council))
    async with open_http(service, "eve") as client, open_http(service, "mallory") as other:
        await give_up(client, council)
        assert "no question has been asked" in await fail(other, "check_council")
        await find_later(client, council)
        await cancel(client, council)


async def test_question_goes_on_without_its_client_until_it_is_cancelled_over_stdio(
    tmp_path: Path, council: CouncilServer
) -> None:
    async with open_stdio(tmp_path, make_held_team(council)) as client:
        await give_up(client, council)
        await find_later(client, council)
        await cancel(client, council)


def test_stdout_holds_the_protocol_alone_and_the_server_ends_with_its_client(tmp_path: Path) -> None:
    request = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    lines = f"{json.dumps(request)}\nnonsense\n" + '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    run = subprocess.run(
        write_team(tmp_path, make_team()), input=lines, capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0
    replies = [json.loads(line) for line in run.stdout.splitlines()]
    assert [reply["result"]["serverInfo"]["name"] for reply in replies if reply.get("id") == 1] == ["massmem"]
    assert "Traceback" not in run.stderr


def test_configuration_that_is_missing_is_said_on_stderr(tmp_path: Path) -> None:
    run = call_massmem("mcp", "--config", str(tmp_path / "none.yaml"))
    assert (run.returncode, run.stdout) == (2, b"")
    assert b"none.yaml" in run.stderr


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_server_although_its_client_stays(signum: signal.Signals, tmp_path: Path):
    write_team(tmp_path, make_team())
    child = ForkedTerminal("mcp", "--config", str(tmp_path / "team.yaml"))
    child.expect(r"Ctrl-C\s+ends\s+it")
    child.kill(signum)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 128 + signum


@pytest.mark.slow
async def test_project_is_named_or_that_of_the_folder_where_the_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("alpha", "beta"):
        (tmp_path / name / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "alpha")
    async with open_stdio(tmp_path) as client:
        await call(client, "remember", text="The heron nests on the roof.")
        await call(client, "remember", text="The heron eats fish.", project="")
        projects: dict[str, set[tuple[str, str]]] = {}
        asked = {"here": {}, "beta": {"project": str(tmp_path / "beta")}, "none": {"project": ""}}
        for name, arguments in asked.items():
            hits = await call(client, "recall", query="heron", **arguments)
            projects[name] = {(m["text"], m["project"]) for m in hits["memories"]}
        assert "there is no project" in await fail(client, "ask_council", question="Which bird?", project="gamma")
    everywhere = ("The heron eats fish.", "")
    assert projects == {
        "here": {("The heron nests on the roof.", str(tmp_path / "alpha")), everywhere},
        "beta": {everywhere},
        "none": {everywhere},
    }
