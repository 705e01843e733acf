"""Requests to servers of OpenAI's protocol, by both of its APIs, and what comes back from odd ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from massmem.config.models import BackendConfig
from massmem.core import errors
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    RetryChunk,
    ToolCall,
    ToolSpec,
    make_attachment,
)
from massmem.providers.clients import HTTP_ERRORS, kind_of
from massmem.providers.endpoints import resolve
from massmem.providers.learnt import LearntModels
from massmem.providers.openai import OpenAIFactory, build_chat_body, build_response_body
from tests.support.newest_server import TOOLS_ON_CHAT
from tests.support.openai_provider import open_openai
from tests.support.provider_stub import KEY, Cut, Http, OpenAIWire, ResponsesWire, Say, Stub
from tests.support.replies import ask, collect, collect_reply

WIRE = OpenAIWire()
ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital?"))
VOTE = ToolSpec("vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string"}}})
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
SHOWN = (
    make_attachment("a.png", "image/png", b"\x00\x01\x02"),
    make_attachment("b.pdf", "application/pdf", b"\x03\x04\x05"),
)
TOOL_TURN = (
    ChatMessage("user", "Vote."),
    ChatMessage("assistant", "", (ToolCall("call00001", "vote", '{"choice": "Z"}'),)),
    ChatMessage("tool", "no such answer", tool_call_id="call00001"),
)
BASE = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital?"}],
    "stream": True,
    "stream_options": {"include_usage": True},
}

BODIES: dict[str, tuple[ChatRequest, dict[str, Any], dict[str, Any]]] = {
    "plain": (ChatRequest(ASK, "answer", "a"), {}, BASE),
    "limits from the configuration": (
        ChatRequest(ASK, "answer", "a"),
        {"temperature": 0.5, "max_tokens": 100},
        {**BASE, "temperature": 0.5, "max_tokens": 100},
    ),
    "limits of the request win": (
        ChatRequest(ASK, "answer", "a", temperature=0.0, max_tokens=7),
        {"temperature": 0.5, "max_tokens": 100},
        {**BASE, "temperature": 0.0, "max_tokens": 7},
    ),
    "tools": (
        ChatRequest(ASK, "vote", "a", tools=(VOTE,)),
        {},
        {
            **BASE,
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "vote",
                        "description": "Vote.",
                        "parameters": {"type": "object", "properties": {"choice": {"type": "string"}}},
                    },
                }
            ],
            "tool_choice": "required",
        },
    ),
    "tools that need not be used": (
        ChatRequest(ASK, "answer", "a", tools=(ToolSpec("ask_user", "Ask.", {"type": "object"}),), tool_choice="auto"),
        {},
        {
            **BASE,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "ask_user", "description": "Ask.", "parameters": {"type": "object"}},
                }
            ],
            "tool_choice": "auto",
        },
    ),
    "tools that are closed": (
        ChatRequest(ASK, "answer", "a", tools=(ToolSpec("f", "Do.", {"type": "object"}),), tool_choice="none"),
        {},
        {
            **BASE,
            "tools": [
                {"type": "function", "function": {"name": "f", "description": "Do.", "parameters": {"type": "object"}}}
            ],
            "tool_choice": "none",
        },
    ),
    "schema": (
        ChatRequest(ASK, "vote", "a", schema=CLOSED),
        {},
        {
            **BASE,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": CLOSED, "strict": True},
            },
        },
    ),
    "a schema that OpenAI would not take as strict": (
        ChatRequest(ASK, "vote", "a", schema={"anyOf": [CLOSED]}),
        {},
        {
            **BASE,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": {"anyOf": [CLOSED]}, "strict": False},
            },
        },
    ),
    "a tool call and its result": (
        ChatRequest(TOOL_TURN, "vote", "a"),
        {},
        {
            **BASE,
            "messages": [
                {"role": "user", "content": "Vote."},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call00001",
                            "type": "function",
                            "function": {"name": "vote", "arguments": '{"choice": "Z"}'},
                        }
                    ],
                },
                {"role": "tool", "content": "no such answer", "tool_call_id": "call00001"},
            ],
        },
    ),
    "pictures and documents before the text": (
        ChatRequest((ChatMessage("user", "What is it?", attachments=SHOWN),), "answer", "a"),
        {},
        {
            **BASE,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
                        {
                            "type": "file",
                            "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,AwQF"},
                        },
                        {"type": "text", "text": "What is it?"},
                    ],
                }
            ],
        },
    ),
    "what cannot be sent is replaced": (
        ChatRequest((ChatMessage("user", "a\x00b\ud83dc"),), "answer", "a"),
        {},
        {**BASE, "messages": [{"role": "user", "content": "a\ufffdb\ufffdc"}]},
    ),
}


def test_openai_itself_gets_max_completion_tokens() -> None:
    backend = BackendConfig(type="openai", model="m", max_tokens=9)
    body = build_chat_body(ChatRequest(ASK, "answer"), backend, resolve(backend, {"OPENAI_API_KEY": "k"}))
    assert body == {**BASE, "max_completion_tokens": 9, "prompt_cache_key": body["prompt_cache_key"]}


async def test_organisation_and_project_are_not_told_to_others(
    clients: OpenAIFactory, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    stub.replies = [WIRE.stream(Say(["x"]))]
    await ask(open_openai(clients, stub), ChatRequest(ASK, "answer"))
    assert "secret" not in json.dumps(stub.requests[0].headers)


@pytest.mark.parametrize(
    ("message", "backend", "request_", "gone", "instead"),
    [
        ("Unknown parameter: 'stream_options'", {}, ChatRequest(ASK, "answer"), "stream_options", {}),
        (
            "Unsupported value: 'temperature' does not support 0.2 with this model.",
            {"temperature": 0.2},
            ChatRequest(ASK, "answer"),
            "temperature",
            {},
        ),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            {"max_tokens": 50},
            ChatRequest(ASK, "answer"),
            "max_tokens",
            {"max_completion_tokens": 50},
        ),
        (
            "deepseek-reasoner does not support this tool_choice",
            {},
            ChatRequest(ASK, "vote", tools=(VOTE,)),
            "",
            {"tool_choice": "auto"},
        ),
    ],
)
async def test_an_option_that_the_server_refuses_is_replaced_once_and_for_all(
    clients: OpenAIFactory,
    stub: Stub,
    message: str,
    backend: dict[str, Any],
    request_: ChatRequest,
    gone: str,
    instead: dict[str, Any],
) -> None:
    stub.replies = [WIRE.error(400, message), WIRE.stream(Say(["x"]))]
    provider = open_openai(clients, stub, **backend)
    chunks = await collect(provider, request_)
    assert isinstance(chunks[0], RetryChunk)
    assert collect_reply(chunks).usage.requests == 2
    await ask(provider, request_)
    assert len(stub.requests) == 3
    for later in stub.requests[1:]:
        assert gone not in later.body
        assert {k: later.body[k] for k in instead} == instead


async def test_model_that_refuses_pictures_is_known_not_to_see(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [WIRE.error(400, "Invalid content type. image_url is only supported by certain models.")]
    provider, request = (
        open_openai(clients, stub),
        ChatRequest((ChatMessage("user", "?", attachments=SHOWN),), "answer"),
    )
    assert provider.abilities.vision is None
    with pytest.raises(errors.RequestRejected, match="it does not see pictures"):
        await ask(provider, request)
    assert provider.abilities.vision is False
    assert open_openai(clients, stub, vision=True).abilities.vision is True, "the configuration knows better"


async def test_model_sees_what_the_list_of_its_server_says(stub: Stub, tmp_path: Path) -> None:
    learnt = LearntModels(tmp_path)
    clients = OpenAIFactory(learnt)
    provider = open_openai(clients, stub)
    fields = {"type": "openai", "model": "m", "api_key": KEY, "base_url": f"{stub.url}/v1"}
    backend = BackendConfig.model_validate(fields)
    learnt.remember_abilities(resolve(backend, {}), {"m": {"vision": False}})
    assert provider.abilities.vision is False
    assert open_openai(clients, stub, vision=True).abilities.vision is True
    await clients.close()


async def test_an_option_that_is_refused_again_is_an_error(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [WIRE.error(400, "max_tokens and max_completion_tokens are not supported")]
    with pytest.raises(errors.RequestRejected):
        await ask(open_openai(clients, stub, max_tokens=5), ChatRequest(ASK, "answer"))
    assert len(stub.requests) == 3


async def test_a_value_that_is_too_large_is_an_error_at_once(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [WIRE.error(400, "max_tokens is too large: 100000. At most 16384 tokens.")]
    with pytest.raises(errors.RequestRejected, match="too large: 100000"):
        await ask(open_openai(clients, stub, max_tokens=100_000), ChatRequest(ASK, "answer"))
    assert len(stub.requests) == 1


async def test_a_connection_that_breaks_after_the_finish_reason_costs_only_the_usage(
    clients: OpenAIFactory, stub: Stub
) -> None:
    stub.replies = [Http(parts=[WIRE.event(WIRE.chunk({"content": "Paris."}, "stop")), Cut])]
    reply = await ask(open_openai(clients, stub), ChatRequest(ASK, "answer"))
    assert (reply.text, reply.usage.reported) == ("Paris.", False)


def list_exported(module: Any) -> dict[str, type[Exception]]:
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {n: c for n, c in members.items() if isinstance(c, type) and issubclass(c, Exception)}


def test_every_exception_of_the_http_client_is_mapped() -> None:
    classes = {n for n, c in list_exported(httpx2).items() if not any(issubclass(c, known) for known in HTTP_ERRORS)}
    assert classes == set()
    assert kind_of(_instance(httpx2.ReadTimeout)) is errors.ProviderTimeout
    assert kind_of(_instance(httpx2.RemoteProtocolError)) is errors.ProviderConnectionError
    assert kind_of(_instance(httpx2.DecodingError)) is errors.MalformedResponse
    assert kind_of(_instance(httpx2.InvalidURL)) is errors.RequestRejected


def _instance(cls: type[Exception]) -> Exception:
    """Made without its constructor: each wants other arguments, and only the class matters."""
    return cls.__new__(cls)


RESPONSES = ResponsesWire()
RESPONSE_VOTE = ToolSpec(
    "vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string", "maxLength": 1}}}
)
ANSWER = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]}
CLOSED_ANSWER = {**ANSWER, "additionalProperties": False}
RESPONSE_BASE = {
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


RESPONSE_BODIES: dict[str, tuple[ChatRequest, dict[str, Any], dict[str, Any]]] = {
    "plain": (ChatRequest(ASK, "answer"), {}, RESPONSE_BASE),
    "pictures and documents before the text": (
        ChatRequest((ChatMessage("user", "What is it?", attachments=SHOWN),), "answer"),
        {},
        {
            **RESPONSE_BASE,
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
        {**RESPONSE_BASE, "temperature": 0.0, "max_output_tokens": 100, "reasoning": {"effort": "xhigh"}},
    ),
    "tools": (
        ChatRequest(ASK, "vote", tools=(RESPONSE_VOTE,)),
        {},
        {
            **RESPONSE_BASE,
            "tools": [
                {
                    "type": "function",
                    "name": "vote",
                    "description": "Vote.",
                    "parameters": RESPONSE_VOTE.parameters,
                    "strict": False,
                }
            ],
            "tool_choice": "required",
        },
    ),
    "schema, without bounds": (
        ChatRequest(ASK, "vote", schema=CLOSED_ANSWER),
        {},
        RESPONSE_BASE | format_of({**CLOSED_ANSWER, "properties": {"a": {"type": "string"}}}, strict=True),
    ),
    "schema of an open object": (
        ChatRequest(ASK, "vote", schema=ANSWER),
        {},
        RESPONSE_BASE | format_of({**ANSWER, "properties": {"a": {"type": "string"}}}, strict=False),
    ),
    "schema that is no object": (
        ChatRequest(ASK, "vote", schema={"anyOf": [{"type": "object", "properties": {}, "required": []}]}),
        {},
        RESPONSE_BASE
        | format_of(wrap({"anyOf": [{"type": "object", "properties": {}, "required": []}]}), strict=False),
    ),
    "a tool call and its result": (
        ChatRequest(CALLED, "vote"),
        {},
        {
            **RESPONSE_BASE,
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Vote."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I vote."}]},
                {"type": "function_call", "call_id": "call00001", "name": "vote", "arguments": '{"choice": "Z"}'},
                {"type": "function_call_output", "call_id": "call00001", "output": "no such answer"},
            ],
        },
    ),
}


CASES = [*(("chat", name) for name in BODIES), *(("responses", name) for name in RESPONSE_BODIES)]


@pytest.mark.parametrize(("api", "name"), CASES)
async def test_the_request_body_is_exactly_this(clients: OpenAIFactory, stub: Stub, api: str, name: str) -> None:
    is_chat = api == "chat"
    request, backend, body = (BODIES if is_chat else RESPONSE_BODIES)[name]
    stub.replies = [(WIRE if is_chat else RESPONSES).stream(Say(["x"]))]
    await ask(open_openai(clients, stub, **({} if is_chat else {"api": api}), **backend), request)
    assert stub.requests[0].body == body
    assert stub.requests[0].path == ("/v1/chat/completions" if is_chat else "/v1/responses")
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_openai_itself_is_asked_for_what_it_thought_and_to_read_its_cache() -> None:
    backend = BackendConfig(type="openai", model="m", effort="low")
    endpoint = resolve(backend, {"OPENAI_API_KEY": "k"})
    first = build_response_body(ChatRequest(ASK, "answer", "ann"), backend, endpoint)
    assert first["reasoning"] == {"effort": "low", "summary": "auto"}
    assert first["include"] == ["reasoning.encrypted_content"]
    question = (ASK[0], ChatMessage("user", "Capital?\n\nSeveral assistants answered this."))
    vote = build_response_body(ChatRequest(question, "vote", "ann"), backend, endpoint)
    other = build_response_body(ChatRequest(ASK, "answer", "bob"), backend, endpoint)
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
    wire = RESPONSES if path.endswith("responses") else WIRE
    stub.replies = [wire.stream(Say(["x"]))]
    await ask(open_openai(clients, stub, **backend), ChatRequest(ASK, "answer"))
    assert stub.requests[0].path == path


async def test_model_that_takes_no_tools_on_chat_completions_is_asked_on_responses(
    clients: OpenAIFactory, stub: Stub
) -> None:
    refused = WIRE.error(400, TOOLS_ON_CHAT)
    stub.replies = [refused, RESPONSES.stream(Say(calls=[("vote", '{"choice": "A"}')]))]
    request = ChatRequest(ASK, "vote", tools=(RESPONSE_VOTE,))
    chunks = await collect(open_openai(clients, stub), request)
    assert isinstance(chunks[0], RetryChunk)
    assert collect_reply(chunks).tool_calls == [ToolCall("call_0", "vote", '{"choice": "A"}')]
    await ask(open_openai(clients, stub), request)
    paths = ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    assert [request.path for request in stub.requests] == paths, "another agent does not try again"


@pytest.mark.parametrize("reply", [Http(404), Http(405), WIRE.error(400, "m is not supported with the Responses API.")])
async def test_endpoint_without_the_responses_api_is_asked_on_chat_completions(
    clients: OpenAIFactory, stub: Stub, reply: Http
) -> None:
    stub.replies = [reply, WIRE.stream(Say(["x"]))]
    provider = open_openai(clients, stub, type="azure_openai")
    assert (await ask(provider, ChatRequest(ASK, "answer"))).text == "x"
    assert stub.requests[1].path.endswith("/chat/completions")


async def test_model_that_does_not_exist_is_no_missing_api(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [RESPONSES.error(404, "The model `gpt-9` does not exist", "model_not_found")]
    with pytest.raises(errors.ModelNotFound):
        await ask(open_openai(clients, stub, type="azure_openai"), ChatRequest(ASK, "answer"))
    assert [request.path.rpartition("/")[2] for request in stub.requests] == ["responses", "models"]


async def test_options_of_reasoning_are_left_out_for_a_model_that_does_not_reason(
    clients: OpenAIFactory, stub: Stub
) -> None:
    stub.replies = [
        RESPONSES.error(400, "Encrypted content is not supported with this model."),
        RESPONSES.stream(Say(["x"])),
    ]
    await ask(open_openai(clients, stub, type="azure_openai"), ChatRequest(ASK, "answer"))
    assert "include" in stub.requests[0].body
    assert not {"include", "reasoning"} & stub.requests[1].body.keys()


async def test_thoughts_before_a_call_go_back_with_its_result(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [
        RESPONSES.stream(Say(reasoning=["hm"], calls=[("vote", '{"choice": "Z"}')])),
        RESPONSES.stream(Say(["x"])),
    ]
    provider = open_openai(clients, stub, api="responses")
    reply = await ask(provider, ChatRequest(ASK, "vote", tools=(RESPONSE_VOTE,)))
    renamed = replace(reply.tool_calls[0], id="call_r2b1n1")
    result = ChatMessage("tool", "no such answer", tool_call_id="call_r2b1n1")
    messages = (*ASK, ChatMessage("assistant", "", (renamed,)), result)
    await ask(provider, ChatRequest(messages, "vote", tools=(RESPONSE_VOTE,)))
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    assert [item["type"] for item in stub.requests[1].body["input"]][-3:] == [
        "reasoning", "function_call", "function_call_output",
    ]  # fmt: skip
    assert stub.requests[1].body["input"][2] == thought


async def test_programs_that_openai_runs_are_shown_and_go_back_with_calls(clients: OpenAIFactory, stub: Stub) -> None:
    program = {
        "type": "code_interpreter_call", "id": "ci_1", "status": "completed", "container_id": "cntr_1",
        "code": "print(6 * 7)", "outputs": [{"type": "logs", "logs": "42\n"}],
    }  # fmt: skip
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "vote", "arguments": '{"choice": "Z"}'}
    items = [thought, program, call]
    events = [{"type": "response.output_item.done", "output_index": i, "item": item} for i, item in enumerate(items)]
    end = {"type": "response.completed", "response": {"status": "completed", "output": items, "usage": {}}}
    stub.replies = [Http(parts=[WIRE.event(event) for event in (*events, end)]), RESPONSES.stream(Say(["x"]))]
    provider = open_openai(clients, stub, code_execution=True)
    reply = await ask(provider, ChatRequest(ASK, "answer", tools=(RESPONSE_VOTE,)))
    assert stub.requests[0].body["tools"][-1] == {"type": "code_interpreter", "container": {"type": "auto"}}
    assert "code_interpreter_call.outputs" in stub.requests[0].body["include"]
    assert reply.reasoning.count("print(6 * 7)") == 1
    assert "\n42\n" in reply.reasoning
    result = ChatMessage("tool", "no such answer", tool_call_id=reply.tool_calls[0].id)
    messages = (*ASK, ChatMessage("assistant", "", tuple(reply.tool_calls)), result)
    await ask(provider, ChatRequest(messages, "answer", tools=(RESPONSE_VOTE,)))
    assert stub.requests[1].body["input"][2:4] == [thought, program]
    await ask(provider, ChatRequest(ASK, "summary"))
    assert "tools" not in stub.requests[2].body, "a summary needs no program"


async def test_programs_that_gemini_runs_are_shown(clients: OpenAIFactory, stub: Stub) -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "print(6 * 7)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42\n"}},
        {"text": "It is 42."},
    ]
    events = [{"candidates": [{"content": {"parts": [part], "role": "model"}}]} for part in parts]
    end = {
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 5},
    }
    stub.replies = [Http(parts=[WIRE.event(event) for event in (*events, end)])]
    reply = await ask(open_openai(clients, stub, type="gemini", code_execution=True), ChatRequest(ASK, "answer"))
    assert stub.requests[0].body["tools"] == [{"code_execution": {}}]
    assert (reply.text, "print(6 * 7)" in reply.reasoning, "42" in reply.reasoning) == ("It is 42.", True, True)


async def test_extra_fields_stand_in_each_request_and_replace_nothing(clients: OpenAIFactory, stub: Stub) -> None:
    stub.replies = [RESPONSES.stream(Say(["x"]))]
    fields = {"text": {"verbosity": "low"}, "top_p": 0.5}
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    provider = open_openai(clients, stub, api="responses", extra_body=fields)
    await ask(provider, ChatRequest(ASK, "answer", schema=schema))
    body = stub.requests[0].body
    assert (body["top_p"], body["text"]["verbosity"], body["text"]["format"]["name"]) == (0.5, "low", "reply")
    with pytest.raises(ValueError, match="massmem writes tools itself"):
        BackendConfig(type="openai", extra_body={"tools": []})
