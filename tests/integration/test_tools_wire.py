"""Whole conversations with tools over both wire protocols: the model calls, a real server runs, the model is told."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.events import BallotCast, Event, Notice, ToolCalled, ToolReturned, TurnCompleted
from tests.support.provider_stub import KEY, AnthropicWire, Http, OpenAIWire, Recorded, Say, Stub, Wire
from tests.support.sessions import ask
from tests.support.tools import calls, list_servers_left, run_http_server, server
from tests.support.turns import check_order, only

WIRES = [OpenAIWire(), AnthropicWire()]
HALL = ("mcp__t__echo", '{"text": "hall H-412"}')
FLOOR = ("mcp__t__echo", '{"text": "floor 3"}')


@pytest.fixture(params=WIRES, ids=lambda wire: wire.type)
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The configuration of a tool server that all tests share, since it takes a second to start."""
    with run_http_server(tmp_path_factory.mktemp("tools") / "calls") as (_, url):
        yield {"name": "t", "url": url}


def team(wire: Wire, stub: Stub, tools: dict[str, Any], agents: int = 1, **more: Any) -> TeamConfig:
    backend = {
        "type": wire.type, "model": "m", "base_url": f"{stub.url}{wire.path}", "api_key": KEY,
        "context_window": 100_000, "max_retries": 0, **more,
    }  # fmt: skip
    first = {"id": "ann", "backend": backend, "mcp_servers": [tools]}
    others = [{"id": f"bob{n}", "backend": {"type": "scripted"}} for n in range(agents - 1)]
    memory = {"persistent_memory": {"enabled": False}}
    return TeamConfig.model_validate({"agents": [first, *others], "memory": memory})


async def turn(config: TeamConfig, home: Path) -> list[Event]:
    _, events = await ask(config, home, "Where is the pump?")
    check_order(events)
    return events


def exchange(wire: Wire, request: Recorded) -> list[tuple[str, str, Any]]:
    """What a request tells of calls and results, in neutral terms: kind, id of the call, what it says."""
    found: list[tuple[str, str, Any]] = []
    for message in request.body["messages"]:
        if isinstance(wire, OpenAIWire):
            for call in message.get("tool_calls") or []:
                found.append(("call", call["id"], json.loads(call["function"]["arguments"])))
            if message["role"] == "tool":
                found.append(("result", message["tool_call_id"], message["content"]))
            continue
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block["type"] == "tool_use":
                assert message["role"] == "assistant"
                found.append(("call", block["id"], block["input"]))
            elif block["type"] == "tool_result":
                assert message["role"] == "user"
                found.append(("result", block["tool_use_id"], json.dumps(block["content"])))
    return found


def list_offered_tools(wire: Wire, request: Recorded) -> list[str]:
    tools = request.body.get("tools") or []
    return [tool["function"]["name"] if isinstance(wire, OpenAIWire) else tool["name"] for tool in tools]


async def test_a_call_its_result_and_the_answer(wire: Wire, stub: Stub, tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    stub.replies = [
        wire.stream(Say(["I look it up. "], calls=[HALL])),
        wire.stream(Say(["And the floor."], calls=[FLOOR])),
        wire.stream(Say(["It is in hall H-412 on floor 3."])),
    ]
    events = await turn(team(wire, stub, server(log)), home)
    assert only(events, TurnCompleted)[0].answer == "It is in hall H-412 on floor 3."
    assert [each["text"] for each in calls(log)] == ["hall H-412", "floor 3"]
    first, second, third = stub.requests
    assert {"mcp__t__echo", "mcp__t__slow"} <= set(list_offered_tools(wire, first))
    assert exchange(wire, first) == []
    told = exchange(wire, second)
    assert [(kind, said) for kind, _, said in told[:1]] == [("call", {"text": "hall H-412"})]
    assert (told[1][0], told[1][1]) == ("result", told[0][1])
    assert "hall H-412" in told[1][2]
    assert "quoted data" in told[1][2], "it is no instruction"
    assert exchange(wire, third)[:2] == told, "the beginning stays as it was, for the caches of prompts"
    assert [kind for kind, _, _ in exchange(wire, third)] == ["call", "result", "call", "result"]
    assert len({name for _, name, _ in exchange(wire, third)}) == 2, "the stub names its calls alike, the log does not"
    made, returned = only(events, ToolCalled), only(events, ToolReturned)
    assert [each.call_id for each in made] == [each.call_id for each in returned]
    assert [each.batch for each in made] == [1, 2]
    assert only(events, TurnCompleted)[0].usage.requests == 3
    assert not list_servers_left(tmp_path)


async def test_two_calls_of_one_reply(wire: Wire, stub: Stub, tools: dict[str, Any], home: Path):
    late = ("mcp__t__slow", '{"seconds": 0.4, "text": "hall H-412"}')
    stub.replies = [wire.stream(Say(calls=[late, FLOOR])), wire.stream(Say(["There."]))]
    events = await turn(team(wire, stub, tools), home)
    told = exchange(wire, stub.requests[1])
    assert [kind for kind, _, _ in told] == ["call", "call", "result", "result"]
    assert [name for _, name, _ in told[:2]] == [name for _, name, _ in told[2:]], "as they were called"
    assert "hall H-412" in told[2][2]
    assert "floor 3" in told[3][2]
    assert only(events, TurnCompleted)[0].answer == "There."


async def test_a_tool_that_fails_is_told_and_the_conversation_goes_on(
    wire: Wire, stub: Stub, tools: dict[str, Any], home: Path
):
    stub.replies = [
        wire.stream(Say(calls=[("mcp__t__fail", "{}"), ("mcp__t__gone", "{}")])),
        wire.stream(Say(["It cannot be found out."])),
    ]
    events = await turn(team(wire, stub, tools), home)
    told = [said for kind, _, said in exchange(wire, stub.requests[1]) if kind == "result"]
    assert "the disk is on fire" in told[0]
    assert "there is no tool 'mcp__t__gone'" in told[1]
    assert [each.failed for each in only(events, ToolReturned)] == [True, True]
    assert only(events, TurnCompleted)[0].answer == "It cannot be found out."


async def test_a_tool_before_a_vote(wire: Wire, stub: Stub, tools: dict[str, Any], home: Path):
    stub.replies = [
        wire.stream(Say(["hall 1"])),
        wire.stream(Say(calls=[HALL])),
        wire.stream(Say(calls=[("vote", '{"reason": "checked", "choice": "A"}')])),
        wire.stream(Say(["The pump is there."])),
    ]
    events = await turn(team(wire, stub, tools, agents=2), home)
    ballot = next(each for each in only(events, BallotCast) if each.agent_id == "ann")
    assert ballot.reason == "checked"
    assert "hall H-412" in exchange(wire, stub.requests[2])[1][2]
    assert {"vote", "new_answer", "mcp__t__echo"} <= set(list_offered_tools(wire, stub.requests[2]))


async def test_thinking_before_a_call_is_given_back_with_it(stub: Stub, tools: dict[str, Any], home: Path):
    """Anthropic refuses a request after a call that thinks, when the thinking before the call is not in it."""
    wire = AnthropicWire()
    stub.replies = [
        wire.stream(Say(reasoning=["I need the hall."], calls=[HALL])),
        wire.stream(Say(["hall H-412"])),
    ]
    events = await turn(team(wire, stub, tools, thinking_tokens=2_000), home)
    assert all("thinking" in request.body for request in stub.requests)
    (calling,) = [m for m in stub.requests[1].body["messages"] if m["role"] == "assistant"]
    assert [part["type"] for part in calling["content"]] == ["thinking", "tool_use"]
    assert calling["content"][0]["thinking"] == "I need the hall."
    assert only(events, TurnCompleted)[0].answer == "hall H-412"


SEALED = "c2VhbGVkIHRob3VnaHQ="


async def test_state_of_a_call_goes_back_in_another_process(stub: Stub, tools: dict[str, Any], home: Path):
    wire = OpenAIWire()
    called = {"index": 0, "id": "c1", "function": {"name": HALL[0], "arguments": HALL[1]}}
    deltas = [
        {"reasoning_content": "I need "},
        {"reasoning_content": "the hall."},
        {"tool_calls": [{**called, "extra_content": {"google": {"thought_signature": SEALED}}}]},
    ]
    parts = [wire.event(wire.chunk(delta)) for delta in deltas]
    stub.replies = [Http(parts=[*parts, wire.event(wire.chunk({}, "tool_calls"))]), Http(500)]
    config = team(wire, stub, tools)
    session_id, events = await ask(config, home, "Where is the pump?")
    assert not only(events, TurnCompleted)
    stub.replies = [wire.stream(Say(["hall H-412"]))]
    _, events = await ask(config, home, "Where is the pump?", session_id)
    assert only(events, TurnCompleted)[0].answer == "hall H-412"
    for request in stub.requests[1:]:
        (calling,) = [message for message in request.body["messages"] if message["role"] == "assistant"]
        assert calling["reasoning_content"] == "I need the hall."
        assert calling["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": SEALED}}


async def test_a_tool_that_the_server_refuses_costs_itself(wire: Wire, stub: Stub, tools: dict[str, Any], home: Path):
    refused = wire.error(400, "Invalid schema for function 'mcp__t__slow': In context=(), it is odd.")
    stub.replies = [refused, refused, wire.stream(Say(calls=[HALL])), wire.stream(Say(["hall H-412"]))]
    events = await turn(team(wire, stub, tools), home)
    assert only(events, TurnCompleted)[0].answer == "hall H-412"
    first, *_, last = [list_offered_tools(wire, request) for request in stub.requests]
    assert sorted(set(first) - set(last)) == ["mcp__t__slow"]
    (notice,) = [event.message for event in only(events, Notice) if "mcp__t__slow" in event.message]
    assert "ann: m does not take" in notice
