"""What goes over the wire to the Responses API, what comes back, and when it is used."""

from dataclasses import replace
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core import errors
from massmem.core.attachments import make_attachment
from massmem.core.messages import ChatMessage, ChatRequest, RetryChunk, ToolCall, ToolSpec
from massmem.providers.openai import OpenAIFactory
from massmem.providers.presets import resolve
from massmem.providers.responses import request_body
from tests.support.newest_server import TOOLS_ON_CHAT
from tests.support.openai_provider import open_openai
from tests.support.provider_stub import Http, OpenAIWire, ResponsesWire, Say, Stub
from tests.support.replies import ask, collect, collect_reply

WIRE, CHAT = ResponsesWire(), OpenAIWire()
ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital?"))
VOTE = ToolSpec("vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string", "maxLength": 1}}})
ANSWER = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]}
CLOSED = {**ANSWER, "additionalProperties": False}
BASE = {
    "model": "m",
    "input": [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Capital?"}]},
    ],
    "stream": True,
    "store": False,
}
CALLED = (
    ChatMessage("user", "Vote."),
    ChatMessage("assistant", "I vote.", (ToolCall("call00001", "vote", '{"choice": "Z"}'),)),
    ChatMessage("tool", "no such answer", tool_call_id="call00001"),
)


def format_of(schema: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "reply", "schema": schema, "strict": strict}}}


def wrap(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"reply": schema}, "required": ["reply"], "additionalProperties": False}


SHOWN = (
    make_attachment("a.png", "image/png", b"\x00\x01\x02"),
    make_attachment("b.pdf", "application/pdf", b"\x03\x04\x05"),
)
BODIES: dict[str, tuple[ChatRequest, dict[str, Any], dict[str, Any]]] = {
    "plain": (ChatRequest(ASK, "answer"), {}, BASE),
    "pictures and documents before the text": (
        ChatRequest((ChatMessage("user", "What is it?", attachments=SHOWN),), "answer"),
        {},
        {
            **BASE,
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "data:image/png;base64,AAEC"},
                        {
                            "type": "input_file",
                            "filename": "b.pdf",
                            "file_data": "data:application/pdf;base64,AwQF",
                        },
                        {"type": "input_text", "text": "What is it?"},
                    ],
                }
            ],
        },
    ),
    "limits and effort": (
        ChatRequest(ASK, "answer", temperature=0.0),
        {"max_tokens": 100, "effort": "max"},
        {**BASE, "temperature": 0.0, "max_output_tokens": 100, "reasoning": {"effort": "xhigh"}},
    ),
    "tools": (
        ChatRequest(ASK, "vote", tools=(VOTE,)),
        {},
        {
            **BASE,
            "tools": [
                {
                    "type": "function",
                    "name": "vote",
                    "description": "Vote.",
                    "parameters": VOTE.parameters,
                    "strict": False,
                }
            ],
            "tool_choice": "required",
        },
    ),
    "schema, without bounds": (
        ChatRequest(ASK, "vote", schema=CLOSED),
        {},
        BASE | format_of({**CLOSED, "properties": {"a": {"type": "string"}}}, strict=True),
    ),
    "schema of an open object": (
        ChatRequest(ASK, "vote", schema=ANSWER),
        {},
        BASE | format_of({**ANSWER, "properties": {"a": {"type": "string"}}}, strict=False),
    ),
    "schema that is no object": (
        ChatRequest(ASK, "vote", schema={"anyOf": [{"type": "object", "properties": {}, "required": []}]}),
        {},
        BASE | format_of(wrap({"anyOf": [{"type": "object", "properties": {}, "required": []}]}), strict=False),
    ),
    "a tool call and its result": (
        ChatRequest(CALLED, "vote"),
        {},
        {
            **BASE,
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Vote."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I vote."}]},
                {"type": "function_call", "call_id": "call00001", "name": "vote", "arguments": '{"choice": "Z"}'},
                {"type": "function_call_output", "call_id": "call00001", "output": "no such answer"},
            ],
        },
    ),
}


@pytest.mark.parametrize("name", BODIES)
async def test_the_request_body_is_exactly_this(clients: OpenAIFactory, stub: Stub, name: str) -> None:
    request, backend, body = BODIES[name]
    stub.replies = [WIRE.stream(Say(["x"]))]
    await ask(open_openai(clients, stub, api="responses", **backend), request)
    assert stub.requests[0].body == body
    assert stub.requests[0].path == "/v1/responses"


def test_openai_itself_is_asked_for_what_it_thought_and_to_read_its_cache() -> None:
    backend = BackendConfig(type="openai", model="m", effort="low")
    endpoint = resolve(backend, {"OPENAI_API_KEY": "k"})
    first = request_body(ChatRequest(ASK, "answer", "ann"), backend, endpoint)
    assert first["reasoning"] == {"effort": "low", "summary": "auto"}
    assert first["include"] == ["reasoning.encrypted_content"]
    question = (ASK[0], ChatMessage("user", "Capital?\n\nSeveral assistants answered this."))
    vote = request_body(ChatRequest(question, "vote", "ann"), backend, endpoint)
    other = request_body(ChatRequest(ASK, "answer", "bob"), backend, endpoint)
    assert first["prompt_cache_key"] == vote["prompt_cache_key"] != other["prompt_cache_key"]


@pytest.mark.parametrize(
    ("backend", "path"),
    [
        ({}, "/v1/chat/completions"),
        ({"api": "responses"}, "/v1/responses"),
        ({"api": "chat"}, "/v1/chat/completions"),
        ({"type": "azure_openai"}, "/v1/openai/v1/responses"),
        ({"type": "azure_openai", "api": "chat"}, "/v1/openai/v1/chat/completions"),
        ({"type": "ollama"}, "/v1/chat/completions"),
    ],
)
async def test_openai_and_azure_have_the_responses_api_by_default_and_others_chat_completions(
    clients: OpenAIFactory, stub: Stub, backend: dict[str, Any], path: str
) -> None:
    wire = WIRE if path.endswith("responses") else CHAT
    stub.replies = [wire.stream(Say(["x"]))]
    await ask(open_openai(clients, stub, **backend), ChatRequest(ASK, "answer"))
    assert stub.requests[0].path == path


async def test_model_that_takes_no_tools_on_chat_completions_is_asked_on_responses(
    clients: OpenAIFactory, stub: Stub
) -> None:
    refused = CHAT.error(400, TOOLS_ON_CHAT)
    stub.replies = [refused, WIRE.stream(Say(calls=[("vote", '{"choice": "A"}')]))]
    request = ChatRequest(ASK, "vote", tools=(VOTE,))
    chunks = await collect(open_openai(clients, stub), request)
    assert isinstance(chunks[0], RetryChunk)
    assert collect_reply(chunks).tool_calls == [ToolCall("call_0", "vote", '{"choice": "A"}')]
    await ask(open_openai(clients, stub), request)
    paths = ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    assert [request.path for request in stub.requests] == paths, "another agent does not try again"


@pytest.mark.parametrize("reply", [Http(404), Http(405), CHAT.error(400, "m is not supported with the Responses API.")])
async def test_endpoint_without_the_responses_api_is_asked_on_chat_completions(
    clients: OpenAIFactory, stub: Stub, reply: Http
) -> None:
    stub.replies = [reply, CHAT.stream(Say(["x"]))]
    provider = open_openai(clients, stub, type="azure_openai")
    assert (await ask(provider, ChatRequest(ASK, "answer"))).text == "x"
    assert stub.requests[1].path.endswith("/chat/completions")


async def test_model_that_does_not_exist_is_no_missing_api(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [WIRE.error(404, "The model `gpt-9` does not exist", "model_not_found")]
    with pytest.raises(errors.ModelNotFound):
        await ask(open_openai(clients, stub, type="azure_openai"), ChatRequest(ASK, "answer"))
    assert [request.path.rpartition("/")[2] for request in stub.requests] == ["responses", "models"]


async def test_options_of_reasoning_are_left_out_for_a_model_that_does_not_reason(
    clients: OpenAIFactory, stub: Stub
) -> None:
    stub.replies = [WIRE.error(400, "Encrypted content is not supported with this model."), WIRE.stream(Say(["x"]))]
    await ask(open_openai(clients, stub, type="azure_openai"), ChatRequest(ASK, "answer"))
    assert "include" in stub.requests[0].body
    assert not {"include", "reasoning"} & stub.requests[1].body.keys()


async def test_thoughts_before_a_call_go_back_with_its_result(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [WIRE.stream(Say(reasoning=["hm"], calls=[("vote", '{"choice": "Z"}')])), WIRE.stream(Say(["x"]))]
    provider = open_openai(clients, stub, api="responses")
    reply = await ask(provider, ChatRequest(ASK, "vote", tools=(VOTE,)))
    renamed = replace(reply.tool_calls[0], id="call_r2b1n1")
    result = ChatMessage("tool", "no such answer", tool_call_id="call_r2b1n1")
    messages = (*ASK, ChatMessage("assistant", "", (renamed,)), result)
    await ask(provider, ChatRequest(messages, "vote", tools=(VOTE,)))
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    assert [item["type"] for item in stub.requests[1].body["input"]][-3:] == [
        "reasoning", "function_call", "function_call_output",
    ]  # fmt: skip
    assert stub.requests[1].body["input"][2] == thought
