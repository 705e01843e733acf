"""The program against a model server on loopback: whose numbers it believes, and what it says about them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import AnswerSubmitted
from tests.support.cli import massmem
from tests.support.contexts import agent_with, answer, history
from tests.support.provider_stub import Http, OpenAIWire, Stub

WIRE = OpenAIWire()


def reply(prompt_tokens: int) -> Http:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 6, "total_tokens": prompt_tokens + 6}
    chunks: list[dict[str, Any]] = [
        WIRE.chunk({"content": "Paris."}),
        WIRE.chunk({}, "stop"),
        {"choices": [], "usage": usage},
    ]
    return Http(parts=[*map(WIRE.event, chunks), b"data: [DONE]\n\n"])


def running_model(tokens: int) -> Http:
    found = {"models": [{"name": "m:latest", "model": "m:latest", "context_length": tokens}]}
    return Http(headers={"content-type": "application/json"}, parts=[json.dumps(found).encode()])


def team(folder: Path, stub: Stub, **backend: Any) -> str:
    served = {"type": "ollama", "model": "m", "base_url": f"{stub.url}/v1", "max_retries": 0, **backend}
    memory = {"persistent_memory": {"enabled": False}}
    path = folder / "team.yaml"
    path.write_text(json.dumps({"agent": {"id": "ann", "backend": served}, "memory": memory}))
    return str(path)


async def ask(*arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(massmem, *arguments)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def debug_log(folder: Path) -> str:
    (path,) = folder.glob(".massmem/massmem_logs/*/massmem.log")
    return path.read_text()


async def test_a_prompt_that_the_server_cut_is_an_error(home: Path, tmp_path: Path, stub: Stub) -> None:
    stub.routes, stub.replies = {"/api/ps": running_model(4_096)}, [reply(2_050)]
    config = team(tmp_path, stub, context_window=128_000)
    code, _, err = await ask("--config", config, "The word is: " + "elephant " * 8_000)
    assert code == 2, "the answer of an agent alone is on stdout by then, since it is shown as it is written"
    assert "read 2,050 of about 8," in err
    assert "OLLAMA_CONTEXT_LENGTH" in err


async def test_a_reply_is_not_lost_by_a_server_that_counts_only_what_it_reads_anew(
    home: Path, tmp_path: Path, stub: Stub
) -> None:
    stub.routes, stub.replies = {"/api/ps": running_model(32_768)}, [reply(26)]
    config = team(tmp_path, stub)
    code, out, err = await ask("--config", config, "--debug", "The word is: " + "elephant " * 8_000)
    assert (code, out) == (0, "Paris.\n"), err


async def test_a_server_with_short_counts_is_asked_once_by_all_agents(home: Path, tmp_path: Path, stub: Stub) -> None:
    stub.routes, stub.replies = {"/api/ps": running_model(32_768)}, [reply(26)]
    backend = {"type": "ollama", "model": "m", "base_url": f"{stub.url}/v1", "max_retries": 0}
    agents = [{"id": name, "backend": backend} for name in ("ann", "bob", "cid", "dan")]
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps({"agents": agents, "memory": {"persistent_memory": {"enabled": False}}}))
    code, out, err = await ask("--config", str(path), "The word is: " + "elephant " * 1_000)
    assert (code, out) == (0, "Paris.\n"), err
    asked = [request.path for request in stub.requests if request.path == "/api/ps"]
    assert len(asked) == 2, "when the session is opened, and when the first count is short"


async def test_the_window_is_the_servers_and_the_count_is_too(
    home: Path, tmp_path: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stub.routes, stub.replies = {"/api/ps": running_model(8_192)}, [reply(814)]
    code, out, err = await ask("--config", team(tmp_path, stub), "--debug", "Capital of France? " + "please " * 700)
    assert (code, out) == (0, "Paris.\n"), err
    assert "ann: Context Window (Turn 1): 820 / 8,192 tokens (10%) [API actual]" in debug_log(tmp_path)
    assert "please please" not in "".join(line for line in debug_log(tmp_path).splitlines() if "massmem.render" in line)


async def test_a_window_that_is_nearly_full_is_said_on_the_terminal(home: Path, tmp_path: Path, stub: Stub) -> None:
    stub.routes, stub.replies = {"/api/ps": running_model(1_024)}, [reply(790)]
    code, out, err = await ask("--config", team(tmp_path, stub), "Capital of France? " + "please " * 700)
    assert (code, out) == (0, "Paris.\n"), err
    assert "ann: Context Window (Turn 1): 796 / 1,024 tokens (78%) [API actual] - Approaching limit!" in err


async def test_short_turns_are_no_sign_of_a_cut_prompt() -> None:
    agent, _ = await agent_with(128_000, history(*("ab" * 60)))
    assert isinstance((await answer(agent, "c"))[-1], AnswerSubmitted)
