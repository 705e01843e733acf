"""massmem's client beside the official SDKs, at a server that records both: the same requests, and the same replies."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import (
    AuthenticationError,
    MalformedResponse,
    ModelNotFound,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from massmem.core.messages import ChatMessage, ChatRequest, ToolCall, ToolSpec, make_attachment
from massmem.providers import Providers
from tests.support.provider_stub import KEY, AnthropicWire, Cut, Http, OpenAIWire, ResponsesWire, Say, Stub, Wire
from tests.support.replies import ask

WIRES: tuple[Wire, ...] = (OpenAIWire(), ResponsesWire(), AnthropicWire())
NAMES = ("chat completions", "responses", "messages")
VOTE = ToolSpec("vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string"}}})
SHOWN = (make_attachment("a.png", "image/png", b"\x00\x01\x02"), make_attachment("b.pdf", "application/pdf", b"%PDF"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Größe 東京 \u2028 \U0001f600?"))
CALLED = (
    *ASK,
    ChatMessage("assistant", "", (ToolCall("call00001", "vote", '{"choice": "Z"}'),)),
    ChatMessage("tool", "no such answer", tool_call_id="call00001"),
)
REQUESTS = {
    "plain": ChatRequest(ASK, "answer", "a"),
    "limits": ChatRequest(ASK, "answer", "a", temperature=0.5, max_tokens=7),
    "tools": ChatRequest(CALLED, "vote", "a", tools=(VOTE,)),
    "schema": ChatRequest(ASK, "vote", "a", schema=SCHEMA),
    "attachments": ChatRequest((ChatMessage("user", "What?", attachments=SHOWN),), "answer", "a"),
}
OWN = ("user-agent", "connection", "accept-encoding", "host", "content-length")
"""Headers in which clients differ."""


@pytest.fixture
async def providers() -> AsyncIterator[Providers]:
    """Providers that have learnt nothing."""
    opened = Providers()
    yield opened
    await opened.close()


def backend(wire: Wire, stub: Stub, **fields: Any) -> BackendConfig:
    usual = {"type": wire.type, "model": "m", "api_key": KEY, "base_url": f"{stub.url}{wire.path}", "max_retries": 0}
    return BackendConfig.model_validate({**usual, **wire.options, **fields})


async def send(wire: Wire, stub: Stub, body: dict[str, Any]) -> AsyncIterator[Any]:
    """Send a body by the official SDK; yield the events of the reply."""
    settings: Any = {"api_key": KEY, "base_url": f"{stub.url}{wire.path}", "max_retries": 0}
    if isinstance(wire, AnthropicWire):
        async with anthropic.AsyncAnthropic(**settings) as client:
            messages: Any = client.messages
            async for event in await messages.create(**body):
                yield event
        return
    async with openai.AsyncOpenAI(**settings) as client:
        create: Any = client.responses.create if isinstance(wire, ResponsesWire) else client.chat.completions.create
        async for event in await create(**body):
            yield event


def matter(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in OWN and not name.startswith("x-stainless")}


@pytest.mark.parametrize("wire", WIRES, ids=NAMES)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("is_extended", [False, True], ids=["", "headers of the environment"])
async def test_both_send_the_same(
    wire: Wire,
    request_: ChatRequest,
    is_extended: bool,
    providers: Providers,
    stub: Stub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stub.replies = [wire.stream(Say(["x"]))]
    fields: dict[str, Any] = {}
    if is_extended:  # which are for an address that the environment names
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_BASE_URL", f"{stub.url}{wire.path}")
            monkeypatch.setenv(f"{name}_CUSTOM_HEADERS", "x-team: blue\nX-Api-Key: other\nno header\nx-empty:")
        fields["base_url"] = None
    await ask(await providers.open(backend(wire, stub, **fields)), request_)
    (ours,) = stub.requests
    with suppress(TypeError):  # of the SDK, at the end of a reply that lacks some fields
        _ = [event async for event in send(wire, stub, ours.body)]
    theirs = stub.requests[1]
    assert (ours.path, ours.body) == (theirs.path, theirs.body)
    assert ours.headers["content-length"] == theirs.headers["content-length"]
    assert matter(ours.headers) == matter(theirs.headers)


def read_events(wire: Wire, events: list[Any]) -> tuple[str, list[tuple[str, str]], tuple[int, int]]:
    """Return text, calls and tokens of a reply, as a program finds them in the events of its SDK."""
    text, calls, counts = "", dict[int, list[str]](), [0, 0]
    for place, event in enumerate(events):
        if isinstance(wire, AnthropicWire):
            match event.type:
                case "message_start":
                    counts[0] = event.message.usage.input_tokens + event.message.usage.cache_read_input_tokens
                case "content_block_start" if event.content_block.type == "tool_use":
                    calls[event.index] = [event.content_block.name, ""]
                case "content_block_delta" if event.delta.type == "text_delta":
                    text += event.delta.text
                case "content_block_delta" if event.delta.type == "input_json_delta":
                    calls[event.index][1] += event.delta.partial_json
                case "message_delta":
                    counts[1] = event.usage.output_tokens
                case _:
                    pass
        elif isinstance(wire, ResponsesWire):
            match event.type:
                case "response.output_text.delta":
                    text += event.delta
                case "response.output_item.done" if event.item.type == "function_call":
                    calls[place] = [event.item.name, event.item.arguments]
                case "response.completed":
                    counts = [event.response.usage.input_tokens, event.response.usage.output_tokens]
                case _:
                    pass
        else:
            if event.usage:
                counts = [event.usage.prompt_tokens, event.usage.completion_tokens]
            for choice in event.choices:
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    written = calls.setdefault(call.index, ["", ""])
                    written[0] += call.function.name or ""
                    written[1] += call.function.arguments or ""
    return text, [(name, arguments) for name, arguments in calls.values()], (counts[0], counts[1])


@pytest.mark.parametrize("wire", WIRES, ids=NAMES)
@pytest.mark.parametrize(
    "say",
    [
        Say(["Par", "is: ", "東京 \U0001f600\u2028", "\n\n", '"quoted"\\']),
        Say(["I vote."], calls=[("vote", '{"choice": "ä\\n"}')]),
        Say(["x" * 5000] * 20, reasoning=["so"]),
    ],
    ids=["text", "calls", "long"],
)
async def test_both_read_the_same(wire: Wire, say: Say, providers: Providers, stub: Stub) -> None:
    stub.replies = [wire.stream(say)]
    reply = await ask(await providers.open(backend(wire, stub)), REQUESTS["tools"])
    events = [event async for event in send(wire, stub, stub.requests[0].body)]
    ours = reply.text, [(call.name, call.arguments) for call in reply.tool_calls]
    assert (*ours, (reply.usage.prompt, reply.usage.completion)) == read_events(wire, events)
    assert reply.text == "".join(say.texts)


@pytest.mark.parametrize("wire", WIRES, ids=NAMES)
@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (401, {}, AuthenticationError),
        (404, {}, ModelNotFound),
        (429, {"retry-after": "7"}, RateLimited),
        (500, {}, ProviderUnavailable),
        (529, {}, ProviderUnavailable),
        (307, {"location": "http://127.0.0.1:1/v1"}, ProviderError),
    ],
)
async def test_both_clients_name_the_same_refusal(
    wire: Wire, status: int, headers: dict[str, str], kind: type[ProviderError], providers: Providers, stub: Stub
) -> None:
    stub.replies = [wire.error(status, "It is the model m.", "some_code", headers)]
    with pytest.raises(kind, match=f"HTTP {status}: It is the model m") as ours:
        await ask(await providers.open(backend(wire, stub)), REQUESTS["plain"])
    sent = len(stub.requests)
    assert [request.path for request in stub.requests if "models" not in request.path] == [stub.requests[0].path]
    if status == 307:  # which the SDK follows, with the key
        return
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as theirs:
        _ = [event async for event in send(wire, stub, stub.requests[0].body)]
    assert theirs.value.status_code == status
    assert "It is the model m." in str(theirs.value)
    assert theirs.value.response.headers.get("retry-after") == headers.get("retry-after")
    assert ours.value.retry_after == (7.0 if headers else None)
    assert len(stub.requests) == sent + 1


BROKEN = (openai.OpenAIError, anthropic.AnthropicError, httpx2.TransportError, json.JSONDecodeError)


@pytest.mark.parametrize("wire", WIRES, ids=NAMES)
@pytest.mark.parametrize(
    ("what", "kind"), [("cut", StreamInterrupted), ("no JSON", (MalformedResponse, StreamInterrupted))]
)
async def test_neither_takes_a_broken_reply(
    wire: Wire, what: str, kind: type[ProviderError], providers: Providers, stub: Stub
) -> None:
    whole = wire.stream(Say(["Par", "is."])).parts
    stub.replies = [Http(parts=[*whole[:2], Cut] if what == "cut" else [b"event: message_start\ndata: {no JSON\n\n"])]
    with pytest.raises(kind):
        await ask(await providers.open(backend(wire, stub)), REQUESTS["plain"])
    with pytest.raises(BROKEN):
        _ = [event async for event in send(wire, stub, stub.requests[0].body)]
