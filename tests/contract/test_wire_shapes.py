"""Every API times every shape of reply, as its public reference shows it, in full, read from a real HTTP server.

The shapes are in `wire_shapes/API.txt`, each below a line with its name and HTTP status. What a provider without a
wire does is in test_chat_provider.py (scripted) and in tests/unit/providers/test_local.py (on a real model).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import ContentRefused, ContextOverflow, ProviderError
from massmem.core.messages import ChatMessage, ChatRequest, FinishReason, Purpose, Usage
from massmem.providers import Providers
from massmem.tools.actions import Vote, build_vote_schema, build_vote_tools, read_action
from tests.support.provider_stub import KEY, Http, Stub, running_stub
from tests.support.replies import ask

APIS: Mapping[str, Mapping[str, Any]] = {
    "chat": {"type": "openai", "api": "chat"},
    "responses": {"type": "openai", "api": "responses"},
    "anthropic": {"type": "anthropic"},
}


USUAL = Usage(21, 5)


@dataclass(frozen=True)
class Expected:
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: FinishReason = "stop"
    usage: Usage = USUAL
    error: type[ProviderError] | None = None
    message: str = ""


VOTE = '{"reason": "It names the city.", "choice": "B"}'
FORM = '{"reason": "It names the city.", "action": "vote", "choice": "B"}'
READ, LIST = ("mcp__files__read", '{"path":"a.txt"}'), ("mcp__files__list", "{}")

SHAPES: Mapping[str, tuple[Purpose, Expected]] = {
    "answer": ("answer", Expected("The capital is Paris.")),
    "vote": ("vote", Expected(calls=(("vote", VOTE),), finish="tool_calls")),
    "present": ("present", Expected("Paris is the capital of France.")),
    "tools": ("answer", Expected(calls=(READ, LIST), finish="tool_calls")),
    "structured output": ("vote", Expected(FORM)),
    "overflow": ("answer", Expected(error=ContextOverflow, message="context|prompt is too long")),
    "refusal": ("answer", Expected(error=ContentRefused, message="I cannot help with that")),
    "length": ("answer", Expected("The capital", finish="length")),
    "content filter": ("answer", Expected(error=ContentRefused, message="ended the reply early")),
    "usage": ("answer", Expected("Paris.", usage=Usage(1200, 340, cached=1024, reasoning=320))),
}


def read_shape(api: str, shape: str) -> Http:
    text = Path(__file__).with_name("wire_shapes").joinpath(f"{api}.txt").read_text()
    section = re.search(rf"^=== {shape} (\d+)\n(.*?)(?=^=== |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section is not None, f"{api}.txt has no {shape}"
    status = int(section[1])
    type_ = "text/event-stream; charset=utf-8" if status == 200 else "application/json"
    # The last event ends with an empty line, as all do.
    return Http(status, {"content-type": type_}, [f"{section[2].strip()}\n\n".encode()])


def request_of(shape: str, purpose: Purpose) -> ChatRequest:
    messages = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital of France?"))
    if shape == "structured output":
        return ChatRequest(messages, purpose, schema=build_vote_schema(["A", "B"], final=True))
    return ChatRequest(messages, purpose, tools=build_vote_tools(["A", "B"], final=True), tool_choice="auto")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("api", APIS)
async def test_shape_is_read(api: str, shape: str) -> None:
    purpose, expected = SHAPES[shape]
    providers = Providers()
    async with running_stub() as stub:
        provider = await providers.open(backend_of(api, stub))
        stub.replies = [read_shape(api, shape)]
        try:
            if expected.error is not None:
                with pytest.raises(expected.error, match=expected.message):
                    await ask(provider, request_of(shape, purpose))
                return
            reply = await ask(provider, request_of(shape, purpose))
        finally:
            await providers.close()
    assert (reply.text, reply.finish) == (expected.text, expected.finish)
    assert tuple((call.name, call.arguments) for call in reply.tool_calls) == expected.calls
    assert reply.usage == replace(expected.usage, requests=1, reported=True, cost=0.0)
    if purpose == "vote":
        assert read_action(reply, ["A", "B"], final=True) == Vote("B", "It names the city.")


def backend_of(api: str, stub: Stub) -> BackendConfig:
    base_url = stub.url if api == "anthropic" else f"{stub.url}/v1"
    fields = {"model": "m", "base_url": base_url, "api_key": KEY, "max_retries": 0, **APIS[api]}
    return BackendConfig.model_validate(fields)
