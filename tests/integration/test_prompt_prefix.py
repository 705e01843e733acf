"""An agent's requests begin with the same bytes, so that providers read them from their caches."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import call_massmem
from tests.support.newest_server import newest_server

QUESTIONS = ("Why is the sky blue?", "And at dusk?", "And on Mars?")
Body = dict[str, Any]


def system_of(body: Body) -> str:
    return json.dumps(body.get("system") or (body.get("messages") or body["input"])[0])


def messages_of(body: Body) -> list[str]:
    """Return the messages as they are sent, without marks for the cache, which move on."""
    messages = body.get("messages") or body["input"]
    return [json.dumps(message).replace(', "cache_control": {"type": "ephemeral"}', "") for message in messages]


def converse(config: str, folder: Path, accepted: list[Body]) -> list[list[Body]]:
    """Ask the questions in one session; return what each agent sent, in order."""
    team = folder / "team.yaml"
    team.write_text(config)
    session = json.loads(call_massmem("--config", str(team), "--json", QUESTIONS[0]).stdout)["session_id"]
    for question in QUESTIONS[1:]:
        assert call_massmem("--config", str(team), "--session-id", session, question).returncode == 0
    agents: dict[str, list[Body]] = {}
    for body in accepted:
        agents.setdefault(system_of(body), []).append(body)
    return list(agents.values())


@pytest.mark.parametrize("type_", ["openai", "responses", "azure_openai", "anthropic"])
def test_requests_of_an_agent_differ_in_their_tail_alone(type_: str, tmp_path: Path):
    with newest_server() as server:
        options = {"api": "responses"} if type_ == "responses" else {}
        kind = "openai" if type_ == "responses" else type_
        agents = converse(server.config(kind, **options), tmp_path, server.accepted)
    assert len(agents) == 3
    for requests in agents:
        assert len(requests) >= 2 * len(QUESTIONS)
        for earlier, later in pairwise(requests):
            before, after = messages_of(earlier), messages_of(later)
            assert after[: len(before) - 1] == before[:-1], "all but the message of the step stays"
        tools = [json.dumps(body["tools"]) for body in requests if "tools" in body]
        assert len(set(tools)) == 1, "the tools of a vote stay in their order"
        if type_ in ("azure_openai", "anthropic"):
            assert len(tools) == len(requests), "their caches begin with the tools"
            choices = {json.dumps(body["tool_choice"]) for body in requests}
            assert type_ == "azure_openai" or choices == {'{"type": "auto"}'}
