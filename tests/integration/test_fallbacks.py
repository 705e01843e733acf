"""A provider fails for good, and another model goes on: over real sockets, whole turns."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import (
    AgentFailed,
    AgentRetrying,
    AnswerSubmitted,
    BallotCast,
    ContextCompressed,
    Event,
    Notice,
    TurnCompleted,
    TurnFailed,
)
from massmem.core.messages import make_attachment
from massmem.evaluation.evaluate import report_entrant
from massmem.evaluation.items import Item
from massmem.evaluation.runner import Answers, ItemResult
from massmem.render.text import describe_event
from massmem.render.turn_view import TurnView
from massmem.session.session import Session
from tests.support.pictures import PNG
from tests.support.provider_stub import KEY, AnthropicWire, Http, OpenAIWire, ResponsesWire, Say, Stub, running_stub
from tests.support.sessions import ask, collect
from tests.support.tools import server
from tests.support.turns import check_order, only

CHAT, RESPONSES, ANTHROPIC = OpenAIWire(), ResponsesWire(), AnthropicWire()
WRONG_KEY = CHAT.error(401, "Incorrect API key provided", "invalid_api_key")


@pytest.fixture
async def first() -> AsyncIterator[Stub]:
    async with running_stub() as stub:
        yield stub


@pytest.fixture
async def second() -> AsyncIterator[Stub]:
    async with running_stub() as stub:
        yield stub


def backend(url: str, wire: OpenAIWire | AnthropicWire = CHAT, model: str = "m", **more: Any) -> dict[str, Any]:
    address = {"type": wire.type, "model": model, "base_url": f"{url}{wire.path}", "api_key": KEY, **wire.options}
    return {**address, "context_window": 100_000, "max_retries": 0, **more}


def team(*backends: dict[str, Any], **coordination: Any) -> TeamConfig:
    agents = [{"id": name, "backend": one} for name, one in zip(("ann", "bob", "cid"), backends, strict=False)]
    memory = {"persistent_memory": {"enabled": False}}
    return TeamConfig.model_validate({"agents": agents, "memory": memory, "coordination": coordination})


def dead_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def show(events: list[Event]) -> tuple[dict[str, Any], list[str]]:
    """What JSON and the lines of progress say of a turn."""
    view, lines = TurnView(), list[str]()
    for event in events:
        view.feed(event)
        lines.append(describe_event(event, view) or "")
    return view.result.model_dump(mode="json"), lines


@pytest.mark.parametrize(
    "failure",
    [
        WRONG_KEY,
        CHAT.error(404, "The model does not exist", "model_not_found"),
        CHAT.error(429, "You exceeded your current quota", "insufficient_quota"),
        CHAT.error(503, "overloaded"),
        CHAT.stream(Say(["It is forty"], cut=True)),
        None,
    ],
    ids=["401", "404", "quota", "503", "mid-stream", "dead"],
)
async def test_the_next_model_answers_under_its_own_name(
    failure: Http | None, first: Stub, second: Stub, tmp_path: Path
):
    first.replies = [failure] if failure else []
    second.replies = [ANTHROPIC.stream(Say(["It is four."]))]
    url = dead_url() if failure is None else first.url
    price = {"input": 1_000_000, "output": 0}
    fallback = backend(second.url, ANTHROPIC, "spare", price=price)
    _, events = await ask(team(backend(url, fallback=[fallback])), tmp_path, "2 + 2?")
    check_order(events)
    (switch,) = only(events, AgentRetrying)
    assert (switch.fallback, switch.delay) == ("anthropic spare", 0.0)
    (completed,) = only(events, TurnCompleted)
    assert (completed.answer, completed.fallback) == ("It is four.", "anthropic spare")
    assert only(events, AnswerSubmitted)[0].fallback == "anthropic spare"
    assert not only(events, AgentFailed)
    shown, lines = show(events)
    assert shown["fallback"] == shown["agents"][0]["answers"][0]["fallback"] == "anthropic spare"
    assert any(line.startswith("ann goes on with anthropic spare: ") for line in lines)
    assert any("by anthropic spare" in line for line in lines)
    if failure == WRONG_KEY:
        assert completed.usage.cost == pytest.approx(20.0, abs=25), "at the price of the model that answered"


async def test_the_rest_of_the_turn_stays_with_it_and_the_next_turn_begins_with_the_first(
    first: Stub, second: Stub, tmp_path: Path
):
    # The first model can call tools, the second is asked for JSON: the ballot is asked for in its own way.
    first.replies = [WRONG_KEY]
    ballot = {"reason": "it is right", "action": "vote", "choice": "A"}
    second.replies = [CHAT.stream(Say(["Four."])), CHAT.stream(Say([json.dumps(ballot)]))]
    ann = backend(first.url, fallback=[backend(second.url, model="spare", tools=False)])
    bob = {"type": "scripted", "script": {"answer": [{"text": "Perhaps 5."}], "vote": [{"vote": "A"}]}}
    config = team(ann, bob, presentation="as_is", max_rounds=2, early_stop=False)
    session_id, events = await ask(config, tmp_path, "2 + 2?")
    ballots = {ballot.agent_id: ballot for ballot in only(events, BallotCast)}
    assert ballots["ann"].fallback == "openai spare"
    assert ballots["bob"].fallback == ""
    assert len(first.requests) == 1, "it is not asked again in this turn"
    assert "tools" not in second.requests[1].body
    assert len(only(events, AgentRetrying)) == 1
    await ask(config, tmp_path, "And 3 + 3?", session_id)
    assert len(first.requests) == 2


async def test_all_models_fail_and_the_error_names_each(first: Stub, second: Stub, tmp_path: Path):
    first.replies, second.replies = [CHAT.error(503, "overloaded")], [CHAT.error(404, "no such model")]
    config = team(backend(first.url, fallback=[backend(second.url, model="spare"), backend(dead_url(), model="last")]))
    _, events = await ask(config, tmp_path, "2 + 2?")
    check_order(events)
    (failed,) = only(events, AgentFailed)
    assert "all its models failed: openai (m): HTTP 503: overloaded; openai (spare): HTTP 404" in failed.message
    assert "openai (last): 127.0.0.1" in failed.message
    assert only(events, TurnFailed)[0].exit_code == 3, "the last one may be back soon"


async def test_a_bad_answer_is_no_failure_of_the_provider(first: Stub, second: Stub, tmp_path: Path):
    for useless in (CHAT.stream(Say([" "])), CHAT.stream(Say([], finish="refused"))):
        first.replies = [useless]
        _, events = await ask(team(backend(first.url, fallback=[backend(second.url)])), tmp_path, "2 + 2?")
        assert only(events, TurnFailed)
        assert not second.requests


async def test_a_smaller_window_gets_a_compressed_prompt(first: Stub, second: Stub, tmp_path: Path):
    first.replies = [
        CHAT.stream(Say(["word " * 600])),
        CHAT.stream(Say(["word " * 600])),
        CHAT.error(503, "overloaded"),
    ]
    second.replies = [CHAT.stream(Say(["Four."]))]
    config = team(backend(first.url, fallback=[backend(second.url, model="small", context_window=1_500)]))
    session_id = None
    for question in ("tell me of sand", "tell me of stone"):
        session_id, _ = await ask(config, tmp_path, question, session_id)
    _, events = await ask(config, tmp_path, "2 + 2?", session_id)
    assert only(events, TurnCompleted)[0].answer == "Four."
    assert only(events, ContextCompressed)[0].window == 1_500
    assert len(json.dumps(second.requests[-1].body["messages"])) < 6_000
    # A question that is too long for it is read in parts; what cannot be made to fit is said.
    _, events = await ask(config, tmp_path, "x1 " * 1_500, session_id)
    assert any("read the question in" in notice.message for notice in only(events, Notice))
    agent = config.agents[0].model_copy(update={"system_message": "be kind " * 1_500})
    _, events = await ask(config.model_copy(update={"agents": (agent,)}), tmp_path, "2 + 2?", session_id)
    assert "small reads 1,500 tokens" in only(events, TurnFailed)[0].message


async def test_state_of_a_provider_is_not_sent_to_another(first: Stub, second: Stub, tmp_path: Path):
    call = ("mcp__t__echo", '{"text": "hall 4"}')
    first.replies = [RESPONSES.stream(Say(reasoning=["Hm."], calls=[call])), CHAT.error(503, "overloaded")]
    second.replies = [CHAT.stream(Say(["In hall 4."]))]
    config = team(backend(first.url, RESPONSES, fallback=[backend(second.url, model="spare")]))
    agent = config.agents[0].model_validate(
        {
            **config.agents[0].model_dump(exclude={"backend"}),
            "backend": config.agents[0].backend,
            "mcp_servers": [server()],
        }
    )
    _, events = await ask(config.model_copy(update={"agents": (agent,)}), tmp_path, "Where?")
    assert only(events, TurnCompleted)[0].answer == "In hall 4."
    assert "sealed" in json.dumps(first.requests[1].body), "its own gets it back"
    sent = json.dumps(second.requests[0].body)
    assert "hall 4" in sent
    assert "sealed" not in sent


async def test_one_failed_provider_of_all_is_named_once_and_not_asked_in_vain(first: Stub, tmp_path: Path):
    first.replies = [WRONG_KEY]
    one = backend(first.url, fallback=[backend(first.url)])
    _, events = await ask(team(one, one, one, max_concurrency=1), tmp_path, "2 + 2?")
    check_order(events)
    assert len(first.requests) == 1
    (failed,) = only(events, TurnFailed)
    assert failed.message.count("Incorrect API key") == 1
    assert "all models of the team are at one provider" in failed.message
    _, lines = show(events)
    assert "bob failed as ann did" in lines


async def test_a_model_that_does_not_see_is_passed_over(first: Stub, second: Stub, tmp_path: Path):
    first.replies, second.replies = [CHAT.error(503, "overloaded")], [CHAT.stream(Say(["A cat."]))]
    blind, sighted = backend(dead_url(), model="blind", vision=False), backend(second.url, model="sees", vision=True)
    config = team(backend(first.url, vision=True, fallback=[blind, sighted]))
    picture = make_attachment("cat.png", "image/png", PNG)
    async with await Session.open(config, home=tmp_path) as session:
        events = await collect(session.ask("What is it?", attachments=[picture]))
    assert only(events, TurnCompleted)[0].fallback == "openai sees"


async def test_a_limit_of_cost_needs_the_price_of_every_model(first: Stub, tmp_path: Path):
    priced = backend(
        first.url, price={"input": 1, "output": 1}, fallback=[backend("http://192.0.2.1", model="unknown")]
    )
    with pytest.raises(InputError, match=r"price is not known for ann \(openai unknown\)"):
        await ask(team(priced, max_cost=1.0), tmp_path, "2 + 2?")


def test_an_evaluation_counts_answers_of_fallbacks_apart():
    items = [Item("1", "2 + 2?", "number", ("4",)), Item("2", "3 + 3?", "number", ("6",))]
    common = {"team": "t", "seed": 0, "winner": "ann"}
    results = [
        ItemResult(**common, item="1", answer="4", members={"ann": "4", "bob": "5"}),
        ItemResult(**common, item="2", answer="7", members={"ann": "7", "bob": "6"}, fallbacks={"ann": "openai spare"}),
    ]
    report = report_entrant(Answers("t", items, results, [True, False]))
    assert report.fallbacks == {"ann (openai spare)": 1}
    assert report.council is not None
    counts = {name: (share.count, share.total) for name, share in report.council.members.items()}
    assert counts == {"ann": (1, 1), "ann (openai spare)": (0, 1), "bob": (1, 2)}
