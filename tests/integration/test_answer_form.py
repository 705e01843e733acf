"""The final answer in the form of a JSON Schema."""

from collections.abc import Sequence
from typing import Any

import pytest

from massmem.config.models import CoordinationConfig
from massmem.core.events import AgentFailed, Event, Notice, TurnCompleted, TurnFailed, TurnStarted
from massmem.memory.budget import Budget
from massmem.providers import Providers
from massmem.turn.coordinator import Turn
from tests.support.turns import agent_of, agents_of, check_order, collect_turn, config_of, only
from tests.unit.turn.test_coordinator import VOTE_A, council, find_completion

SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
FITS, WRONG = '{"port": 8080}', '{"port": "8080"}'


async def play(scripts: dict[str, dict[str, Any]], past: Sequence[Event] = (), **settings: Any) -> list[Event]:
    turn = Turn("session_x", 1, "Which port?", 7, past, answer_schema=SCHEMA)
    agents = await agents_of(scripts, tools=settings.pop("tools", True))
    return await collect_turn(turn, agents, CoordinationConfig(**settings))


@pytest.mark.parametrize("tools", [True, False], ids=["tool calls", "constrained output"])
async def test_final_answer_is_the_value_and_its_text(tools: bool):
    events = await play(council(3, vote=VOTE_A, present=FITS), tools=tools)
    check_order(events)
    end = find_completion(events)
    assert (end.data, end.answer) == ({"port": 8080}, '{\n  "port": 8080\n}')
    assert only(events, TurnStarted)[0].answer_schema == SCHEMA


@pytest.mark.parametrize("presentation", ["auto", "synthesize", "as_is"])
async def test_agent_alone_brings_its_answer_into_the_form(presentation: str):
    events = await play({"ann": {"answer": "It is 8080.", "present": FITS}}, presentation=presentation)
    assert find_completion(events).data == {"port": 8080}
    assert find_completion(events).usage.requests == 2


async def test_answer_that_does_not_fit_is_repaired_once():
    events = await play({"ann": {"answer": "It is 8080.", "present": [WRONG, FITS]}})
    assert find_completion(events).data == {"port": 8080}
    assert find_completion(events).usage.requests == 3


async def test_council_whose_answer_does_not_fit_after_its_repair_shows_its_text_and_says_why():
    events = await play({"ann": {"answer": "It is 8080.", "present": [WRONG, "It is 8080, I said."]}})
    check_order(events)
    end = find_completion(events)
    assert (end.answer, end.data, end.presented) == ("It is 8080.", None, False)
    assert "not in the form of the schema" in end.form_error and "not JSON" in end.form_error
    assert f"{end.form_error}; the text is shown" in [notice.message for notice in only(events, Notice)]
    assert only(events, AgentFailed)[0].step == "present"


async def test_form_that_its_provider_failed_to_write_is_asked_for_again():
    end = (await play({"ann": {"answer": "It is 8080.", "present": {"error": "unavailable"}}}))[-1]
    assert isinstance(end, TurnFailed) and end.exit_code == 3


async def test_failed_turn_that_is_resumed_asks_for_the_form_alone():
    past = (await play({"ann": {"answer": "It is 8080.", "present": [WRONG, WRONG]}}))[:-1]
    events = await play({"ann": {"answer": "unused", "present": FITS}}, past)
    assert find_completion(events).data == {"port": 8080}


async def test_limit_that_leaves_no_request_for_the_form_shows_the_text():
    turn = Turn("session_x", 1, "Which port?", 7, answer_schema=SCHEMA)
    settings = CoordinationConfig(max_tokens=300)
    budget = Budget(settings)
    config = config_of("ann", {"answer": "It is 8080. " * 100, "present": FITS})
    provider = budget.limit(config.id, config.backend, await Providers().open(config.backend))
    end = (await collect_turn(turn, {"ann": agent_of(config, provider)}, settings, budget))[-1]
    assert isinstance(end, TurnCompleted) and end.limit == "tokens"
    assert end.answer.startswith("It is 8080.") and "not in the form of the schema" in end.form_error
