"""What every ChatProvider does, whatever is behind it.

Another implementation joins by a harness: a class with `open(replies, **backend) -> ChatProvider` that makes the model
behind it say `replies`, added to HARNESSES. Anything it cannot be made to do, it skips with pytest.skip.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from massmem.config.models import BackendConfig
from massmem.core import errors
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    FinishChunk,
    RetryChunk,
    TextChunk,
    ToolCallChunk,
)
from massmem.core.params import ParamSpec
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.tools.actions import (
    AskContext,
    AskUser,
    Vote,
    build_ask_tool,
    build_vote_schema,
    build_vote_tools,
    find_ask_request,
    read_action,
)
from tests.support.provider_stub import (
    KEY,
    AnthropicWire,
    Cut,
    Http,
    OpenAIWire,
    ResponsesWire,
    Say,
    Stub,
    Wire,
    running_stub,
)
from tests.support.replies import ask, collect, collect_reply

ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital of France?"))
VOTE = '{"reason": "right", "choice": "B"}'


@dataclass(frozen=True)
class Fail:
    """The next request fails like this (the names of a script's `error`)."""

    name: str


class Harness(Protocol):
    async def open(self, replies: Sequence[Say | Fail], **backend: Any) -> ChatProvider: ...


class WireHarness:
    def __init__(self, providers: Providers, stub: Stub, wire: Wire) -> None:
        self.providers, self.stub, self.wire = providers, stub, wire

    async def open(self, replies: Sequence[Say | Fail], **backend: Any) -> ChatProvider:
        self.stub.replies = [self.wire.stream(r) if isinstance(r, Say) else self._failure(r.name) for r in replies]
        fields = {"type": self.wire.type, "model": "m", "base_url": self.stub.url + self.wire.path, "api_key": KEY}
        patience = 0.5 if Fail("timeout") in replies else 30
        options = {**fields, **self.wire.options, "timeout": patience, **backend}
        return await self.providers.open(BackendConfig.model_validate(options))

    def _failure(self, name: str) -> Http:
        answers = {
            "rate_limit": self.wire.error(429, "slow down", headers={"retry-after": "0"}),
            "unavailable": self.wire.error(503, "try later"),
            "auth": self.wire.error(401, "bad key"),
            "model_not_found": self.wire.error(404, "no such model"),
            "overflow": self.wire.error(400, "prompt is too long: 213462 tokens > 200000 maximum"),
            "refused": self.wire.stream(Say(["I"], finish="refused")),
            "timeout": Http(head=False, parts=[5.0]),
            "connection": Http(head=False, parts=[Cut]),
            "malformed": Http(parts=[b"event: message_start\ndata: {oops\n\n"]),
        }
        return answers[name]


class ScriptedHarness:
    def __init__(self, providers: Providers) -> None:
        self.providers = providers

    async def open(self, replies: Sequence[Say | Fail], **backend: Any) -> ChatProvider:
        said = [self._reply(r) for r in replies]
        script = {"answer": said, "vote": said, "chunk_size": 3}
        return await self.providers.open(
            BackendConfig.model_validate({"type": "scripted", "script": script, **backend})
        )

    def _reply(self, reply: Say | Fail) -> dict[str, Any]:
        if isinstance(reply, Fail):
            return {"error": reply.name, "retry_after": 0}
        out: dict[str, Any] = {"text": "".join(reply.texts), "reasoning": "".join(reply.reasoning)}
        for name, arguments in reply.calls:
            parsed = json.loads(arguments)
            if name == "ask_user":
                out |= {"ask": parsed["param"], "ask_prompt": parsed["prompt"]}
            else:
                out |= {"vote": parsed["choice"], "reason": parsed["reason"]}
        if reply.pause:
            return {**out, "delay": reply.pause}
        if reply.cut:
            return {**out, "error": "interrupted"}
        return {**out, "finish": reply.finish or "none"}


HARNESSES: dict[str, Callable[[Providers, Stub], Harness]] = {
    "openai": lambda providers, stub: WireHarness(providers, stub, OpenAIWire()),
    "responses": lambda providers, stub: WireHarness(providers, stub, ResponsesWire()),
    "anthropic": lambda providers, stub: WireHarness(providers, stub, AnthropicWire()),
    "scripted": lambda providers, _: ScriptedHarness(providers),
}


@pytest.fixture(params=HARNESSES)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    providers = Providers()
    async with running_stub() as stub:
        yield HARNESSES[request.param](providers, stub)
        await providers.close()


async def test_counting_a_prompt_answers_with_a_number_or_none_and_uses_up_no_reply(harness: Harness) -> None:
    provider = await harness.open([Say(["Paris."])])
    counted = await provider.count_prompt(ChatRequest(ASK, "answer", "a"))
    assert counted is None or counted > 0
    assert (await ask(provider, ChatRequest(ASK, "answer", "a"))).text == "Paris."


async def test_text_comes_in_order_and_the_finish_last(harness: Harness) -> None:
    provider = await harness.open([Say(["Par", "is", "."])])
    chunks = await collect(provider, ChatRequest(ASK, "answer", "a"))
    assert [type(c) for c in chunks] == [*[TextChunk] * (len(chunks) - 1), FinishChunk]
    assert len(chunks) > 2
    assert collect_reply(chunks).text == "Paris."
    assert collect_reply(chunks).finish == "stop"


async def test_reasoning_is_kept_apart_from_text(harness: Harness) -> None:
    provider = await harness.open([Say(["Paris."], reasoning=["Let me ", "think."])])
    reply = await ask(provider, ChatRequest(ASK, "answer", "a"))
    assert (reply.reasoning, reply.text) == ("Let me think.", "Paris.")


async def test_a_tool_call_comes_whole_and_before_the_finish(harness: Harness) -> None:
    provider = await harness.open([Say(calls=[("vote", VOTE)])])
    assert provider.abilities.tools
    request = ChatRequest(ASK, "vote", "a", tools=build_vote_tools(["A", "B"], final=True))
    chunks = await collect(provider, request)
    calls = [c.call for c in chunks if isinstance(c, ToolCallChunk)]
    assert [c.name for c in calls] == ["vote"]
    assert json.loads(calls[0].arguments) == {"reason": "right", "choice": "B"}
    assert calls[0].id
    assert collect_reply(chunks).finish == "tool_calls"


@pytest.mark.parametrize("used", [True, False])
async def test_tools_that_are_optional_may_be_used_or_not(harness: Harness, used: bool) -> None:
    arguments = {"param": "order_id", "prompt": "Which order?"}
    said = Say(calls=[("ask_user", json.dumps(arguments))]) if used else Say(["Par", "is."])
    provider = await harness.open([said])
    asking = AskContext({"order_id": ParamSpec()})
    reply = await ask(provider, ChatRequest(ASK, "answer", "a", tools=(build_ask_tool(asking),), tool_choice="auto"))
    assert find_ask_request(reply, asking) == (AskUser(**arguments) if used else None)
    assert reply.text == ("" if used else "Paris.")


async def test_a_schema_gives_json_text(harness: Harness) -> None:
    text = '{"reason": "right", "action": "vote", "choice": "B"}'
    provider = await harness.open([Say([text])], tools=False)
    assert not provider.abilities.tools
    request = ChatRequest(ASK, "vote", "a", schema=build_vote_schema(["A", "B"], final=True))
    reply = await ask(provider, request)
    assert read_action(reply, ["A", "B"], final=True) == Vote("B", "right")


async def test_usage_is_reported(harness: Harness) -> None:
    provider = await harness.open([Say(["Paris is the capital."])])
    usage = (await ask(provider, ChatRequest(ASK, "answer", "a"))).usage
    assert usage.reported
    assert usage.requests == 1
    assert usage.prompt > 0
    assert usage.completion > 0


async def test_an_empty_reply_is_a_reply(harness: Harness) -> None:
    provider = await harness.open([Say()])
    chunks = await collect(provider, ChatRequest(ASK, "answer", "a"))
    assert collect_reply(chunks).text == ""
    assert isinstance(chunks[-1], FinishChunk)


async def test_a_reply_cut_by_its_token_limit_says_so(harness: Harness) -> None:
    provider = await harness.open([Say(["Par"], finish="length")])
    reply = await ask(provider, ChatRequest(ASK, "answer", "a"))
    assert (reply.finish, reply.is_truncated) == ("length", True)


async def test_any_text_survives(harness: Harness) -> None:
    text = "naïve 日本 🗼 e\u0301 \u202eabc \u2028 \x1b[31m"
    provider = await harness.open([Say([text])])
    odd = (ChatMessage("user", "half \ud83d and nul \x00 and 🗼"),)
    assert (await ask(provider, ChatRequest(odd, "answer", "a"))).text == text


@pytest.mark.parametrize("say", [Say(["Par"], finish=None), Say(["Par"], cut=True)], ids=["no reason", "cut"])
async def test_a_stream_without_a_finish_reason_is_an_error_that_keeps_its_text(harness: Harness, say: Say) -> None:
    provider = await harness.open([say], max_retries=0)
    with pytest.raises(errors.StreamInterrupted) as caught:
        await collect(provider, ChatRequest(ASK, "answer", "a"))
    assert caught.value.partial == "Par"


async def test_an_interrupted_stream_is_sent_again_and_its_text_is_void(harness: Harness) -> None:
    provider = await harness.open([Say(["Lond"], cut=True), Say(["Paris."])])
    chunks = await collect(provider, ChatRequest(ASK, "answer", "a"))
    assert [c.attempt for c in chunks if isinstance(c, RetryChunk)] == [2]
    assert collect_reply(chunks).text == "Paris."
    assert collect_reply(chunks).usage.requests == 2


@pytest.mark.parametrize("name", ["rate_limit", "unavailable", "timeout", "connection"])
async def test_transient_failure_is_tried_again(harness: Harness, name: str) -> None:
    provider = await harness.open([Fail(name), Say(["Paris."])])
    chunks = await collect(provider, ChatRequest(ASK, "answer", "a"))
    assert isinstance(chunks[0], RetryChunk)
    assert collect_reply(chunks).text == "Paris."
    assert collect_reply(chunks).usage.requests == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rate_limit", errors.RateLimited),
        ("unavailable", errors.ProviderUnavailable),
        ("timeout", errors.ProviderTimeout),
        ("connection", errors.ProviderConnectionError),
        ("overflow", errors.ContextOverflow),
        ("auth", errors.AuthenticationError),
        ("model_not_found", errors.ModelNotFound),
        ("refused", errors.ContentRefused),
        ("malformed", errors.MalformedResponse),
    ],
)
async def test_every_failure_has_its_type(harness: Harness, name: str, kind: type[errors.ProviderError]) -> None:
    provider = await harness.open([Fail(name), Say(["never"])], max_retries=0)
    with pytest.raises(errors.ProviderError) as caught:
        await collect(provider, ChatRequest(ASK, "answer", "a"))
    assert type(caught.value) is kind


@pytest.mark.parametrize("name", ["overflow", "auth", "model_not_found", "refused", "malformed"])
async def test_lasting_failure_is_not_tried_again(harness: Harness, name: str) -> None:
    provider = await harness.open([Fail(name), Say(["never"])])
    with pytest.raises(errors.ProviderError):
        await collect(provider, ChatRequest(ASK, "answer", "a"))
    reply = await ask(provider, ChatRequest(ASK, "answer", "a"))
    assert reply.text == "never"


async def test_the_stream_can_be_left_early(harness: Harness) -> None:
    provider = await harness.open([Say(["Paris is ", "the capital."], pause=0.05)])
    async with aclosing(provider.stream(ChatRequest(ASK, "answer", "a"))) as chunks:
        async for chunk in chunks:
            assert isinstance(chunk, TextChunk)
            break
    reply = await ask(provider, ChatRequest(ASK, "answer", "a"))
    assert reply.text == "Paris is the capital."


@pytest.mark.parametrize(
    "wire", [OpenAIWire(), ResponsesWire(), AnthropicWire()], ids=["chat", "responses", "anthropic"]
)
async def test_names_near_a_model_that_does_not_exist_are_in_the_hint(wire: Wire) -> None:
    providers = Providers()
    listed: dict[str, Any] = {"data": [{"id": name} for name in ("gpt-6-mini", "sonata", "gpt-6")], "has_more": False}
    async with running_stub() as stub:
        body = json.dumps(listed).encode()
        stub.routes["/v1/models"] = Http(headers={"content-type": "application/json"}, parts=[body])
        provider = await WireHarness(providers, stub, wire).open([Fail("model_not_found")], model="gpt-6-mimi")
        with pytest.raises(errors.ModelNotFound) as caught:
            await ask(provider, ChatRequest(ASK, "answer", "a"))
        await providers.close()
    assert caught.value.hint.startswith("Did you mean gpt-6-mini or gpt-6?")
    assert "sonata" not in caught.value.hint
