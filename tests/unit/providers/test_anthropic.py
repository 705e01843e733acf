"""What goes over the wire to Anthropic's API, and what comes back."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core.messages import ChatMessage, ChatRequest, ToolCall, ToolSpec, make_attachment
from massmem.providers.anthropic import DEFAULT_MAX_TOKENS, AnthropicFactory, AnthropicProvider, request_body
from tests.support.provider_stub import KEY, AnthropicWire, Cut, Http, Say, Stub
from tests.support.replies import ask

WIRE = AnthropicWire()
ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital?"))
VOTE = ToolSpec("vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string"}}})
WIRE_VOTE = {
    "name": "vote",
    "description": "Vote.",
    "input_schema": {"type": "object", "properties": {"choice": {"type": "string"}}},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def text(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": t} for t in texts]}


SYSTEM = [{"type": "text", "text": "Be brief."}]
BASE = {
    "model": "m",
    "max_tokens": DEFAULT_MAX_TOKENS,
    "messages": [text("user", "Capital?")],
    "stream": True,
    "system": SYSTEM,
}

SHOWN = (
    make_attachment("a.png", "image/png", b"\x00\x01\x02"),
    make_attachment("b.pdf", "application/pdf", b"\x03\x04\x05"),
)
BODIES: dict[str, tuple[ChatRequest, dict[str, Any], dict[str, Any]]] = {
    "plain": (ChatRequest(ASK, "answer", "a"), {}, BASE),
    "limits from the configuration": (
        ChatRequest(ASK, "answer", "a"),
        {"temperature": 1.5, "max_tokens": 100},
        {**BASE, "max_tokens": 100},
    ),
    "limits of the request win": (
        ChatRequest(ASK, "answer", "a", temperature=0.0, max_tokens=7),
        {"temperature": 0.5, "max_tokens": 100},
        {**BASE, "max_tokens": 7},
    ),
    "tools": (
        ChatRequest(ASK, "vote", "a", tools=(VOTE,)),
        {},
        {**BASE, "tools": [WIRE_VOTE], "tool_choice": {"type": "auto"}},
    ),
    "tools that need not be used": (
        ChatRequest(ASK, "answer", "a", tools=(VOTE,), tool_choice="auto"),
        {},
        {**BASE, "tools": [WIRE_VOTE], "tool_choice": {"type": "auto"}},
    ),
    "tools that are closed": (
        ChatRequest(ASK, "answer", "a", tools=(VOTE,), tool_choice="none"),
        {},
        {**BASE, "tools": [WIRE_VOTE], "tool_choice": {"type": "none"}},
    ),
    "schema": (
        ChatRequest(ASK, "vote", "a", schema=SCHEMA),
        {},
        {**BASE, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    "thinking takes no forced call": (
        ChatRequest(ASK, "vote", "a", tools=(VOTE,), temperature=0.2),
        {"thinking_tokens": 9_000},
        {
            **BASE,
            "max_tokens": DEFAULT_MAX_TOKENS + 9_000,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "medium"},
            "tools": [WIRE_VOTE],
            "tool_choice": {"type": "auto"},
        },
    ),
    "an effort beside a schema": (
        ChatRequest(ASK, "vote", "a", schema=SCHEMA),
        {"effort": "high", "max_tokens": 100},
        {
            **BASE,
            "max_tokens": 24_100,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
    "as little effort as there is": (
        ChatRequest(ASK, "answer", "a"),
        {"effort": "none"},
        {**BASE, "output_config": {"effort": "low"}},
    ),
    "schema that is no object, with bounds": (
        ChatRequest(ASK, "vote", "a", schema={"anyOf": [{"type": "string", "maxLength": 3}, SCHEMA]}),
        {},
        {
            **BASE,
            "output_config": {
                "format": {
                    "type": "json_schema",
                    "schema": {
                        "type": "object",
                        "properties": {"reply": {"anyOf": [{"type": "string"}, SCHEMA]}},
                        "required": ["reply"],
                        "additionalProperties": False,
                    },
                }
            },
        },
    ),
    "a tool call, its result and more": (
        ChatRequest(
            (
                ChatMessage("user", "Vote."),
                ChatMessage("assistant", "Well.", (ToolCall("call00001", "vote", '{"choice": "Z"}'),)),
                ChatMessage("tool", "no such answer", tool_call_id="call00001"),
                ChatMessage("user", "Again."),
            ),
            "vote",
        ),
        {},
        {
            "model": "m",
            "max_tokens": DEFAULT_MAX_TOKENS,
            "stream": True,
            "messages": [
                text("user", "Vote."),
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Well."},
                        {"type": "tool_use", "id": "call00001", "name": "vote", "input": {"choice": "Z"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "call00001", "content": "no such answer"},
                        {"type": "text", "text": "Again."},
                    ],
                },
            ],
        },
    ),
    "system parts and neighbours are joined, empty ones left out": (
        ChatRequest(
            (
                ChatMessage("system", "One."),
                ChatMessage("system", ""),
                ChatMessage("user", "a\x00"),
                ChatMessage("user", ""),
                ChatMessage("system", "Two."),
                ChatMessage("user", "b"),
            ),
            "answer",
        ),
        {},
        {**BASE, "system": [{"type": "text", "text": "One.\n\nTwo."}], "messages": [text("user", "a\ufffd", "b")]},
    ),
    "pictures and documents before the text": (
        ChatRequest((ChatMessage("user", "What is it?", attachments=SHOWN),), "answer"),
        {},
        {
            "model": "m",
            "max_tokens": DEFAULT_MAX_TOKENS,
            "stream": True,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}},
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "AwQF"},
                            "title": "b.pdf",
                        },
                        {"type": "text", "text": "What is it?"},
                    ],
                }
            ],
        },
    ),
    "the assistant never has the last word": (
        ChatRequest((ChatMessage("user", "Q"), ChatMessage("assistant", "so far")), "answer"),
        {},
        {
            "model": "m",
            "max_tokens": DEFAULT_MAX_TOKENS,
            "stream": True,
            "messages": [text("user", "Q"), text("assistant", "so far"), text("user", "Go on.")],
        },
    ),
}


def without_marks(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without marks for the cache."""
    return json.loads(json.dumps(body).replace(f", {MARK}", ""))


MARK = '"cache_control": {"type": "ephemeral"}'


@pytest.fixture
async def clients() -> AsyncIterator[AnthropicFactory]:
    clients = AnthropicFactory()
    yield clients
    await clients.close()


def open_anthropic(clients: AnthropicFactory, stub: Stub, **fields: Any) -> AnthropicProvider:
    base = {"type": "anthropic", "model": "m", "api_key": KEY, "base_url": stub.url, "max_retries": 0}
    provider = clients.open(BackendConfig.model_validate({**base, **fields}))
    assert isinstance(provider, AnthropicProvider)
    return provider


@pytest.mark.parametrize("name", BODIES)
async def test_the_request_body_is_exactly_this(clients: AnthropicFactory, stub: Stub, name: str) -> None:
    request, backend, body = BODIES[name]
    stub.replies = [WIRE.stream(Say(["x"]))]
    await ask(open_anthropic(clients, stub, **backend), request)
    assert without_marks(stub.requests[0].body) == body
    assert stub.requests[0].path == "/v1/messages"
    assert KEY in stub.requests[0].headers.get("x-api-key", "") + stub.requests[0].headers.get("authorization", "")


def counts(value: object) -> Http:
    return Http(headers={"content-type": "application/json"}, parts=[json.dumps(value).encode()])


async def test_a_prompt_is_counted_as_it_would_be_sent(clients: AnthropicFactory, stub: Stub) -> None:
    stub.routes = {"/v1/messages/count_tokens": counts({"input_tokens": 321})}
    request = ChatRequest(ASK, "vote", tools=(VOTE,))
    assert await open_anthropic(clients, stub).count_prompt(request) == 321
    (asked,) = stub.requests
    sent = request_body(request, BackendConfig(type="anthropic"), "m")
    assert asked.body == {name: value for name, value in sent.items() if name not in ("max_tokens", "stream")}


@pytest.mark.parametrize(
    "reply",
    [Http(404), Http(529), Http(head=False, parts=[Cut]), counts({"tokens": 3}), counts({"input_tokens": "many"})],
    ids=["no such endpoint", "overloaded", "cut", "another field", "words"],
)
async def test_a_count_that_cannot_be_had_fails_nothing(clients: AnthropicFactory, stub: Stub, reply: Http) -> None:
    stub.replies = [reply]
    assert await open_anthropic(clients, stub).count_prompt(ChatRequest(ASK, "answer")) is None


async def test_a_connection_that_breaks_after_the_stop_reason_costs_nothing(
    clients: AnthropicFactory, stub: Stub
) -> None:
    whole = WIRE.stream(Say(["Paris."]))
    stub.replies = [Http(parts=[*whole.parts[:-1], Cut])]
    assert (await ask(open_anthropic(clients, stub), ChatRequest(ASK, "answer"))).text == "Paris."


async def test_system_prompt_history_and_step_are_marked_for_the_cache(clients: AnthropicFactory, stub: Stub) -> None:
    stub.replies = [WIRE.stream(Say(["x"]))]
    history = (ChatMessage("user", "Q1"), ChatMessage("assistant", "A1"), ChatMessage("user", "Q2"))
    await ask(open_anthropic(clients, stub), ChatRequest((ASK[0], *history), "answer"))
    body = stub.requests[0].body
    assert [MARK in json.dumps(part) for part in (body["system"], *body["messages"])] == [True, False, True, True]


async def test_question_is_a_block_of_its_own_that_later_turns_begin_with(
    clients: AnthropicFactory, stub: Stub
) -> None:
    stub.replies = [WIRE.stream(Say(["x"]))]
    question = ChatMessage("user", "Capital?\n\nRelevant memories: none", head=len("Capital?"))
    await ask(open_anthropic(clients, stub), ChatRequest((ASK[0], question), "answer"))
    later = (ASK[0], ChatMessage("user", "Capital?"), ChatMessage("assistant", "Paris"), ChatMessage("user", "Sure?"))
    await ask(open_anthropic(clients, stub), ChatRequest(later, "answer"))
    (first,), second = (request.body["messages"] for request in stub.requests)
    assert [block["text"] for block in first["content"]] == ["Capital?", "Relevant memories: none"]
    assert all(MARK in json.dumps(block) for block in first["content"])
    assert second[0]["content"][0]["text"] == first["content"][0]["text"]
    assert json.dumps(second).count(MARK) == 2


async def test_model_that_takes_no_adaptive_thinking_gets_a_budget_and_its_thoughts_back(
    clients: AnthropicFactory, stub: Stub
) -> None:
    call = Say(reasoning=["hm"], calls=[("vote", '{"choice": "Z"}')])
    refused = WIRE.error(400, "adaptive thinking is not supported on this model")
    stub.replies = [refused, WIRE.stream(call), WIRE.stream(Say(["x"]))]
    provider = open_anthropic(clients, stub, thinking_tokens=2048)
    reply = await ask(provider, ChatRequest(ASK, "vote", tools=(VOTE,)))
    assert stub.requests[1].body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert "output_config" not in stub.requests[1].body
    renamed = replace(reply.tool_calls[0], id="call_r2b1n1")
    result = ChatMessage("tool", "no such answer", tool_call_id="call_r2b1n1")
    messages = (*ASK, ChatMessage("assistant", "", (renamed,)), result)
    await ask(provider, ChatRequest(messages, "vote", tools=(VOTE,)))
    blocks = stub.requests[2].body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[0]["thinking"] == "hm"
    other = (*ASK, ChatMessage("assistant", "", (ToolCall("c", "vote", "{}"),)), result)
    await ask(provider, ChatRequest(other, "vote", tools=(VOTE,)))
    assert "thinking" not in stub.requests[3].body, "what was thought before this call is not known"


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("This model does not support the effort parameter.", "output_config"),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control"),
    ],
)
async def test_option_that_is_refused_is_left_out(
    clients: AnthropicFactory, stub: Stub, message: str, gone: str
) -> None:
    stub.replies = [WIRE.error(400, message), WIRE.stream(Say(["x"]))]
    await ask(open_anthropic(clients, stub, effort="low"), ChatRequest(ASK, "answer"))
    assert [gone in json.dumps(request.body) for request in stub.requests] == [True, False]


async def test_programs_that_anthropic_runs_are_shown_and_go_back_with_calls(
    clients: AnthropicFactory, stub: Stub
) -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {}}
    printed = {"type": "bash_code_execution_result", "stdout": "42\n", "stderr": "", "return_code": 0, "content": []}
    result = {"type": "bash_code_execution_tool_result", "tool_use_id": "s1", "content": printed}
    call = {"type": "tool_use", "id": "t1", "name": "vote", "input": {}}
    written = {"type": "input_json_delta", "partial_json": '{"command": "echo $((6*7))"}'}
    chosen = {"type": "input_json_delta", "partial_json": '{"choice": "Z"}'}
    events = [{"type": "message_start", "message": {"usage": {"input_tokens": 1}}}]
    for index, (block, delta) in enumerate(((use, written), (result, None), (call, chosen))):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta}] if delta else []
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}})
    stub.replies = [Http(parts=[WIRE.event(event) for event in events]), WIRE.stream(Say(["x"]))]
    provider = open_anthropic(clients, stub, code_execution=True)
    reply = await ask(provider, ChatRequest(ASK, "answer", tools=(VOTE,)))
    assert stub.requests[0].body["tools"][-1] == {"type": "code_execution_20250825", "name": "code_execution"}
    assert "echo $((6*7))" in reply.reasoning
    assert "\n42\n" in reply.reasoning
    assert [call.name for call in reply.tool_calls] == ["vote"]
    answer = ChatMessage("tool", "no such answer", tool_call_id=reply.tool_calls[0].id)
    messages = (*ASK, ChatMessage("assistant", "", tuple(reply.tool_calls)), answer)
    await ask(provider, ChatRequest(messages, "answer", tools=(VOTE,)))
    sent = stub.requests[1].body["messages"][1]["content"]
    assert sent[:2] == [{**use, "input": {"command": "echo $((6*7))"}}, result]
    assert sent[2]["type"] == "tool_use"
