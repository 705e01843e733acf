"""Turns in which agents ask the user: what is sent, when the turn waits, and who acts again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import CoordinationConfig, TeamConfig
from massmem.core.events import (
    AgentFailed,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    ParamCleared,
    ParamProvided,
    ParamRequested,
    RoundStarted,
    TurnCompleted,
    TurnResumed,
    TurnWaiting,
    UserReplied,
    WinnerDecided,
)
from massmem.core.params import ParamSpec
from massmem.providers import Providers
from massmem.session.session import Session
from massmem.store import open_store
from massmem.tools.actions import AskContext
from massmem.turn.coordinator import Turn
from tests.support.contexts import RequestKeeper, answer
from tests.support.provider_stub import KEY, OpenAIWire, Say, running_stub
from tests.support.sessions import collect
from tests.support.turns import Scripts, agent_of, agents_of, check_order, collect_turn, config_of, only

PARAMS = {"order_id": ParamSpec(pattern=r"O-\d{5}", examples=("O-12345",)), "zip": ParamSpec()}
ASKS = {"ask": "order_id", "ask_prompt": "Which order?", "text": "Order {order_id} is on its way."}
VOTE_A = {"vote": "A", "reason": "r"}


async def play(
    scripts: Scripts,
    past: Sequence[Event] = (),
    replies: Sequence[Event] = (),
    *,
    asking: AskContext | None = None,
    tools: bool = True,
    **settings: Any,
) -> list[Event]:
    agents = await agents_of(scripts, tools=tools, asking=asking or AskContext(PARAMS))
    resumed: list[Event] = []
    if past:  # as the session resumes it
        resumed.append(TurnResumed(session_id="session_x", turn=1, question="where is it?", agents=tuple(agents)))
    turn = Turn("session_x", 1, "where is it?", 7, [*past, *resumed], replies, PARAMS)
    return resumed + await collect_turn(turn, agents, CoordinationConfig(**settings))


def build_reply_events(param: str = "order_id") -> list[Event]:
    return [UserReplied(param=param, text="O-98765"), ParamProvided(param=param)]


KNOWN = AskContext(PARAMS, known={"order_id": "O-98765"})


@pytest.mark.parametrize("tools", [True, False], ids=["tool calls", "text"])
async def test_turn_waits_after_the_round_and_only_the_asking_agents_act_again(tools: bool):
    scripts = {"ann": {"answer": ASKS}, "bob": {"answer": "bob's answer"}, "cyd": {"answer": ASKS}}
    first = await play(scripts, tools=tools)
    check_order(first)
    assert only(first, AnswerSubmitted)[0].content == "bob's answer", "the others finish their step"
    (asked,) = only(first, TurnWaiting)
    assert (asked.param, asked.prompt, asked.agents, asked.asked) == ("order_id", "Which order?", ("ann", "cyd"), 1)
    assert asked.usage.requests == 3
    rest = await play(scripts, first, build_reply_events(), asking=KNOWN, tools=tools)
    check_order(rest)
    assert [e.type for e in rest[:3]] == ["turn_resumed", "user_replied", "param_provided"]
    assert only(rest, RoundStarted)[0].agents == ("ann", "cyd")
    assert [a.content for a in only(rest, AnswerSubmitted)] == ["Order O-98765 is on its way."] * 2
    assert [a.number for a in only(first + rest, AnswerSubmitted)] == [1, 2, 3]
    assert isinstance(rest[-1], TurnCompleted)
    assert rest[-1].usage.requests == 3 + 2 + 3 + 1, "asked, answered, voted, presented"


async def test_turn_resumed_without_a_reply_asks_again_and_costs_nothing():
    first = await play({"ann": {"answer": ASKS}})
    again = await play({"ann": {"answer": {"error": "auth"}}}, first)
    assert [e.type for e in again] == ["turn_resumed", "turn_waiting"]
    assert isinstance(again[-1], TurnWaiting)
    assert (again[-1].asked, again[-1].shown) == (1, True)


async def test_reply_without_the_value_leads_to_a_clearer_question():
    past = await play({"ann": {"answer": ASKS}})
    for number in (2, 3):
        past += await play({"ann": {"answer": ASKS}}, past, [UserReplied(param="order_id", text="hm")])
        assert isinstance(past[-1], TurnWaiting)
        assert (past[-1].asked, past[-1].shown) == (number, False)
    assert "For example: O-12345." in past[-1].prompt


async def test_agent_goes_on_without_a_param_that_was_given_up():
    scripts = {"ann": {"answer": {"ask": "order_id", "text": "I cannot say."}}}
    past = await play(scripts)
    replies = [UserReplied(param="order_id", text="hm"), ParamCleared(param="order_id", why="gave_up")]
    rest = await play(scripts, past, replies, asking=AskContext(PARAMS, given_up=frozenset({"order_id"})))
    assert isinstance(rest[-1], TurnCompleted)
    assert rest[-1].answer == "I cannot say."


async def test_user_is_asked_for_two_params_without_a_request_in_between():
    scripts = {"ann": {"answer": ASKS}, "bob": {"answer": {"ask": "zip", "text": "zip {zip}"}}}
    events = await play(scripts)
    assert isinstance(events[-1], TurnWaiting)
    assert events[-1].param == "order_id"
    events += await play(scripts, events, build_reply_events(), asking=KNOWN)
    assert [e.type for e in events[-4:]] == ["turn_resumed", "user_replied", "param_provided", "turn_waiting"]
    assert isinstance(events[-1], TurnWaiting)
    assert (events[-1].param, events[-1].agents) == ("zip", ("bob",))
    both = AskContext(PARAMS, known={"order_id": "O-98765", "zip": "12345"})
    rest = await play(scripts, events, build_reply_events("zip"), asking=both)
    assert only(rest, RoundStarted)[0].agents == ("ann", "bob")
    assert {a.content for a in only(rest, AnswerSubmitted)} == {"Order O-98765 is on its way.", "zip 12345"}


async def test_agent_may_ask_in_a_voting_round():
    scripts = {
        "ann": {"answer": "one", "vote": [{"ask": "order_id", "ask_prompt": "Which?", "vote": "first"}]},
        "bob": {"answer": "two", "vote": VOTE_A},
    }
    for tools in (True, False):
        first = await play(scripts, tools=tools)
        check_order(first)
        assert only(first, ParamRequested)[0].round == 2
        assert [b.agent_id for b in only(first, BallotCast)] == ["bob"]
        rest = await play(scripts, first, build_reply_events(), asking=KNOWN, tools=tools)
        assert [b.agent_id for b in only(rest, BallotCast)] == ["ann"]
        assert only(rest, WinnerDecided)


async def test_ballots_are_voided_once_the_round_is_complete():
    scripts = {
        "ann": {"answer": "one", "vote": [{"ask": "order_id", "new_answer": "better"}, VOTE_A]},
        "bob": {"answer": "two", "vote": [VOTE_A]},
    }
    first = await play(scripts)
    assert not only(first, BallotsVoided)
    rest = await play(scripts, first, build_reply_events(), asking=KNOWN)
    assert only(rest, BallotsVoided)[0].agents == ("bob",)


async def test_agent_cannot_ask_in_the_last_round():
    scripts = {"ann": {"vote": {"ask": "order_id", "vote": "first"}}, "bob": {"vote": VOTE_A}}
    events = await play(scripts, max_rounds=2)
    assert isinstance(events[-1], TurnCompleted)


async def test_failed_agent_is_not_asked_again_when_the_user_replies():
    scripts = {"ann": {"answer": ASKS}, "bob": {"answer": {"error": "auth"}}}
    first = await play(scripts)
    rest = await play(scripts, first, build_reply_events(), asking=KNOWN)
    assert {e.agent_id for e in only(rest, AgentStarted)} == {"ann"}
    assert isinstance(rest[-1], TurnCompleted)


async def test_agent_that_asks_for_a_known_value_is_told_it():
    request = '{"action": "ask_user", "prompt": "Which?", "param": "order_id"}'
    scripts = {"ann": {"answer": [{"raw": request}, "thanks"]}}
    events = await play(scripts, asking=KNOWN, tools=False)
    assert isinstance(events[-1], TurnCompleted)
    assert (events[-1].answer, events[-1].usage.requests) == ("thanks", 2)
    stubborn = await play({"ann": {"answer": {"raw": request}}}, asking=KNOWN, tools=False)
    (failure,) = only(stubborn, AgentFailed)
    assert "order_id is known" in failure.message
    assert "O-98765" not in failure.model_copy(update={"partial": ""}).model_dump_json()


async def test_unusable_request_is_repaired_once():
    scripts = {"ann": {"answer": [{"raw": '{"action": "ask_user", "param": "shoe"}'}, "without it"]}}
    events = await play(scripts, tools=False)
    assert isinstance(events[-1], TurnCompleted)
    assert events[-1].answer == "without it"


async def test_round_that_was_cut_off_is_finished_before_the_user_is_asked():
    scripts = {"ann": {"answer": ASKS}, "bob": {"answer": "bob's"}}
    whole = await play(scripts)
    cut = [e for e in whole[:-1] if not isinstance(e, AnswerSubmitted)]
    rest = await play(scripts, cut)
    assert {e.agent_id for e in only(rest, AgentStarted)} == {"bob"}
    assert isinstance(rest[-1], TurnWaiting)


async def test_user_is_asked_although_the_time_is_up():
    scripts = {"ann": {"answer": ASKS}, "bob": {"answer": {"text": "late", "delay": 30}}}
    events = await play(scripts, timeout=0.3)
    assert isinstance(events[-1], TurnWaiting)


async def test_agent_of_a_team_without_params_is_sent_the_question_alone():
    config = config_of("ann", {"answer": "because"})
    provider = RequestKeeper(await Providers().open(config.backend))
    assert (await answer(agent_of(config, provider), "why?"))[-1].type == "answer_submitted"
    (request,) = provider.requests
    assert [message.content for message in request.messages if message.role == "user"] == ["why?"]
    assert (request.tools, request.schema) == ((), None)


async def test_value_that_a_server_quotes_in_its_error_is_masked_where_it_is_stored_and_shown(tmp_path: Path):
    wire, value, url = OpenAIWire(), "O-4711", f"sqlite:///{tmp_path / 'massmem.db'}"
    script = {"answer": {"ask": "order_id", "ask_prompt": "Which order?", "text": "It is {order_id}."}}
    async with running_stub() as stub:
        served = {"type": "openai", "model": "m", "base_url": f"{stub.url}/v1", "api_key": KEY}
        served |= {"max_retries": 0, "context_window": 8_000}
        config = TeamConfig.model_validate(
            {
                "agents": [
                    {"id": "ann", "backend": {"type": "scripted", "script": script}},
                    {"id": "bob", "backend": served},
                ],
                "params": {"order_id": {"pattern": "O-[0-9]+"}},
                "memory": {"persistent_memory": {"enabled": False}},
                "store": {"url": url},
            }
        )
        quoting = wire.error(400, f"the message 'It is {value}.' is refused")
        stub.replies = [wire.stream(Say(["It is lost."])), quoting, quoting, quoting]
        session = await Session.open(config, home=tmp_path)
        assert isinstance((await collect(session.ask("Where is my parcel?")))[-1], TurnWaiting)
        events = await collect(session.ask(value))
        await session.close()
    store = await open_store(url, tmp_path)
    stored = await store.read_turn_events(session.id, 1)
    await store.close()
    for failures in ([e for e in log if isinstance(e, AgentFailed)] for log in (events, stored)):
        assert {failure.agent_id for failure in failures} == {"bob"}, "once more when it was voted for, and presents"
        for failure in failures:
            assert "[order_id]" in failure.message
            assert value not in failure.model_dump_json()
