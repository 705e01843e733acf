"""Agents with tools from a real MCP server: what is asked, called, stored, shown and remembered, and what is not."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, ToolServerError
from massmem.core.events import AnswerSubmitted, BallotCast, Event, Notice, ToolCalled, ToolReturned, TurnCompleted
from massmem.session.session import Session
from tests.support.sessions import ask, collect
from tests.support.tools import calls, list_servers_left, server, team
from tests.support.turns import check_order, only
from tests.unit.providers.test_acp import backend, read_log

pytestmark = pytest.mark.slow

ECHO = {"call": {"tool": "echo", "arguments": {"text": "hall H-412"}}, "text": "I look it up."}


async def turn(config: TeamConfig, home: Path) -> list[Event]:
    _, events = await ask(config, home, "Where is the pump?")
    check_order(events)
    return events


def answer(events: list[Event]) -> str:
    return only(events, TurnCompleted)[0].answer


@pytest.mark.parametrize("native", [True, False])
async def test_a_call_and_its_result_are_events_and_the_answer_is_made_of_them(
    tmp_path: Path, home: Path, native: bool
):
    log = tmp_path / "calls"
    events = await turn(team({"answer": [ECHO, "It is in {result}."]}, server(log), tools=native), home)
    called, returned = only(events, ToolCalled), only(events, ToolReturned)
    assert [(c.name, json.loads(c.arguments), c.batch) for c in called] == [("mcp__t__echo", {"text": "hall H-412"}, 1)]
    assert [(r.name, r.content, r.failed, r.call_id) for r in returned] == [
        ("mcp__t__echo", "hall H-412", False, called[0].call_id)
    ]
    assert events.index(called[0]) < events.index(returned[0]) < events.index(only(events, AnswerSubmitted)[0])
    assert answer(events) == "It is in hall H-412."
    assert [c["tool"] for c in calls(log)] == ["echo"]
    assert not list_servers_left(tmp_path)


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_result_is_remembered_only_where_the_configuration_says_so(tmp_path: Path, home: Path, recorded: bool):
    settings = {"persistent_memory": {"enabled": False}, "recording": {"record_all_tool_calls": recorded}}
    config = team({"answer": [ECHO, "{result}"]}, server(tmp_path / "calls"), memory=settings)
    assert [r.recorded for r in only(await turn(config, home), ToolReturned)] == [recorded]


async def test_calls_of_one_reply_run_at_once_and_each_result_finds_its_call(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    both = [
        {"tool": "slow", "arguments": {"seconds": 0.5, "text": "first"}},
        {"tool": "slow", "arguments": {"seconds": 0.1, "text": "second"}},
    ]
    events = await turn(team({"answer": [{"call": both}, "{result}"]}, server(log)), home)
    assert [c["tool"] for c in calls(log)] == ["slow", "slow", "slept", "slept"]
    assert [r.content for r in only(events, ToolReturned)] == ["second", "first"], "as they end"
    assert answer(events) == "first\nsecond", "as they were called"


async def test_tools_in_a_voting_round(tmp_path: Path, home: Path):
    events = await turn(two_agents(tmp_path), home)
    assert [(c.agent_id, c.round) for c in only(events, ToolCalled)] == [("ann", 2)]
    assert {b.agent_id for b in only(events, BallotCast)} == {"ann", "bob"}


def two_agents(folder: Path) -> TeamConfig:
    ann = {
        "id": "ann",
        "backend": {"type": "scripted", "script": {"vote": [ECHO, {"vote": "A", "reason": "checked"}]}},
        "mcp_servers": [server(folder / "calls")],
    }
    bob = {"id": "bob", "backend": {"type": "scripted"}}
    return TeamConfig.model_validate({"agents": [ann, bob], "memory": {"persistent_memory": {"enabled": False}}})


async def test_forbidden_tool_is_not_offered(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    config = team({"answer": [ECHO, "{result}"]}, server(log, deny=["echo"]))
    events = await turn(config, home)
    assert only(events, ToolReturned)[0].failed
    assert "there is no tool 'echo'" in answer(events)
    assert "mcp__t__echo" not in answer(events)
    allowed = team({"answer": [{"call": {"tool": "die"}}, "{result}"]}, server(log, allow=["echo", "slow"]))
    assert "the tools are: mcp__t__echo, mcp__t__slow" in answer(await turn(allowed, home))
    assert calls(log) == []


async def test_a_program_calls_the_tools_that_the_configuration_allows(tmp_path: Path, home: Path):
    log = tmp_path / "prompts"
    agent = {"id": "ann", "backend": backend("calls", log), "mcp_servers": [server(tmp_path / "calls", allow=["echo"])]}
    config = TeamConfig.model_validate({"agents": [agent], "memory": {"persistent_memory": {"enabled": False}}})
    _, events = await ask(config, home, "Say hello.")
    assert (only(events, ToolCalled)[0].name, answer(events)) == ("mcp__t__echo", "hello")
    first, second = (params["prompt"][0]["text"] for params in read_log(log, "session/prompt"))
    assert first.count("mcp__t__") == 1, "only the allowed tool is named"
    assert "or use one again" in second
    assert calls(tmp_path / "calls")[0]["text"] == "hello"


async def test_a_program_that_needs_no_tool_answers_at_once(tmp_path: Path, home: Path):
    log = tmp_path / "prompts"
    agent = {"id": "ann", "backend": backend("plain", log), "mcp_servers": [server()]}
    config = TeamConfig.model_validate({"agents": [agent], "memory": {"persistent_memory": {"enabled": False}}})
    _, events = await ask(config, home, "How much is 2 + 2?")
    assert answer(events) == "It is 4."
    assert len(read_log(log, "session/prompt")) == 1


async def test_a_tool_that_takes_too_long_and_one_that_fails(tmp_path: Path, home: Path):
    script = {
        "answer": [
            {"call": [{"tool": "slow", "arguments": {"seconds": 60}}, {"tool": "fail"}]},
            "{result}",
        ]
    }
    said = answer(await turn(team(script, server(tmp_path / "calls", timeout=1)), home))
    assert "no answer within 1 s" in said
    assert "the disk is on fire" in said


async def test_a_huge_result_is_cut_for_the_model_and_whole_in_the_log(tmp_path: Path, home: Path):
    script = {"answer": [{"call": {"tool": "huge", "arguments": {"characters": 300_000}}}, "{result}"]}
    events = await turn(team(script, server(tmp_path / "calls", max_result_tokens=500)), home)
    whole, told = only(events, ToolReturned)[0].content, answer(events)
    assert len(whole) == 300_000
    assert "KB left out here; read_earlier(1, 1) shows it" in told
    assert len(told) < 4_000
    assert told.startswith("000000000\n")
    assert whole.strip().endswith(told[-200:]), "its end is shown too"


async def test_more_than_the_log_keeps_is_said(tmp_path: Path, home: Path):
    script = {"answer": [{"call": {"tool": "huge", "arguments": {"characters": 1_200_000}}}, "done"]}
    events = await turn(team(script, server(tmp_path / "calls")), home)
    content = only(events, ToolReturned)[0].content
    assert len(content) < 1_000_100
    assert content.endswith("[200,000 more characters were not kept]")


async def test_a_server_that_dies_in_a_call_does_not_end_the_turn(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    script = {"answer": [{"call": {"tool": "die"}}, ECHO, "Then: {result}"]}
    events = await turn(team(script, server(log)), home)
    assert [r.failed for r in only(events, ToolReturned)] == [True, False]
    assert answer(events) == "Then: hall H-412"
    assert not list_servers_left(tmp_path)


async def test_output_of_a_server_beside_the_protocol_is_shown_and_logged_nowhere(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    with caplog.at_level("DEBUG"):
        events = await turn(team({"answer": [{"call": {"tool": "noise"}}, "{result}"]}, server(tmp_path / "c")), home)
    assert answer(events) == "done"
    assert "private-noise" not in caplog.text + "".join(capfd.readouterr())


async def test_rounds_of_tools_are_bounded(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    config = team({"answer": [{**ECHO, "text": "enough"}]}, server(log), coordination={"max_tool_rounds": 3})
    events = await turn(config, home)
    assert len(calls(log)) == 3
    assert answer(events) == "enough"
    none = team({"answer": [{**ECHO, "text": "none"}]}, server(log), coordination={"max_tool_rounds": 0})
    assert answer(await turn(none, home)) == "none"
    assert len(calls(log)) == 3


async def test_arguments_that_are_no_object_are_told_and_twice_are_enough(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    bad = {"call": {"tool": "echo"}, "raw": "[1, 2"}
    said = answer(await turn(team({"answer": [bad, ECHO, "{result}"]}, server(log)), home))
    assert said == "hall H-412"
    events = await turn(team({"answer": [bad, bad, {**ECHO, "text": "without"}]}, server(log)), home)
    assert [r.failed for r in only(events, ToolReturned)] == [True, True]
    assert "not one JSON object" in only(events, ToolReturned)[0].content
    assert answer(events) == "without"


async def test_stopping_the_turn_cancels_the_call_and_ends_the_server(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    script = {"answer": [{"call": {"tool": "slow", "arguments": {"seconds": 60}}}, "late"]}
    session = await Session.open(team(script, server(log)), home=home)
    turn_ = asyncio.create_task(collect(session.ask("why?")))
    while not calls(log):
        await asyncio.sleep(0.02)
    session.stop("user")
    events = await turn_
    assert events[-1].type == "turn_interrupted"
    await session.close()
    assert not list_servers_left(tmp_path)
    assert [c["tool"] for c in calls(log)] == ["slow"]


async def test_a_call_of_which_nobody_knows_how_it_ended_is_not_made_again(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    slow = {"call": {"tool": "slow", "arguments": {"seconds": 60}}}
    session = await Session.open(team({"answer": [ECHO, slow]}, server(log)), home=home)
    turn_ = asyncio.create_task(collect(session.ask("why?")))
    while len(calls(log)) < 2:
        await asyncio.sleep(0.02)
    session.stop("signal")
    await turn_
    name = session.id
    await session.close()
    again = await Session.open(team({"answer": ["Now: {result}"]}, server(log)), home=home, session_id=name)
    events = await collect(again.finish_turn())
    await again.close()
    assert [(r.name, r.failed) for r in only(events, ToolReturned)] == [("mcp__t__slow", True)]
    assert "not known whether the tool has done its work" in answer(events)
    assert [c["tool"] for c in calls(log)] == ["echo", "slow"]


async def test_a_server_that_does_not_start_is_said_once_and_the_agent_goes_on(home: Path):
    config = team({"answer": ["without tools"]}, server(None, "--broken"))
    events = await turn(config, home)
    told = [n.message for n in only(events, Notice)]
    assert len(told) == 1
    assert "no license found; ann goes on without its tools" in told[0]
    assert answer(events) == "without tools"
    with pytest.raises(ToolServerError, match="no license found"):
        await turn(team({"answer": ["x"]}, server(None, "--broken", required=True)), home)


async def test_a_program_that_is_not_there_is_an_error_before_anything_is_paid(home: Path):
    absent: dict[str, Any] = {"name": "gone", "command": "no-such-program-anywhere"}
    with pytest.raises(InputError, match="'no-such-program-anywhere' of the tool server gone is not there"):
        await turn(team({}, absent), home)
    assert not (home / "massmem.db").exists()
