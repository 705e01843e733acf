"""Whatever an agent's server replies, clients of the service get documented shapes: of OpenAI, of MCP, of the page."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from tests.integration.test_mcp_server import open_http
from tests.support.json_server import serve_posts
from tests.support.provider_stub import OpenAIWire
from tests.support.service import Service, make_config, make_token

WIRE = OpenAIWire()
TEXT = "The ferry sails at noon."


def stream(*chunks: Mapping[str, Any]) -> tuple[int, str, bytes]:
    frames = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return 200, "text/event-stream", frames + b"data: [DONE]\n\n"


def say(text: object, finish: str | None = "stop", **more: Any) -> tuple[int, str, bytes]:
    return stream(WIRE.chunk({"content": text}), WIRE.chunk({}, finish) | more)


def fail(status: int, body: object) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(body).encode()


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "delete_all", "arguments": '{"a": '}}

# What the server of the model sends, and the text that clients get; None: an error.
REPLIES: Mapping[str, tuple[tuple[int, str, bytes], str | None]] = {
    "whole": (say(TEXT), TEXT),
    "think": (say(f"<think>hm</think>{TEXT}"), TEXT),
    "halves": (
        stream(WIRE.chunk({"content": "A \ud83d"}), WIRE.chunk({"content": "\ude00 b \ud83d"}, "stop")),
        "A \U0001f600 b \ufffd",
    ),
    "control": (say("a\x00b\x1b[2J\u2028c"), "a\ufffdb\x1b[2J\u2028c"),
    "frames": (say("data: [DONE]\n\nevent: error\r\ndata: {}"), "data: [DONE]\n\nevent: error\r\ndata: {}"),
    "huge": (say("x" * 200_000), "x" * 200_000),
    "usage-null": (say(TEXT, usage=None), TEXT),
    "usage-text": (say(TEXT, usage={"prompt_tokens": "7", "completion_tokens": -1, "total_tokens": None}), TEXT),
    "cut": (say(TEXT, "length"), TEXT),
    "odd-finish": (say(TEXT, "network_error"), None),
    "no-finish": (say(TEXT, None), None),
    "filtered": (say("I", "content_filter"), None),
    "refusal": (stream(WIRE.chunk({"refusal": "I will not."}), WIRE.chunk({}, "stop")), None),
    "error-200": (fail(200, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}), None),
    "error-late": (stream(WIRE.chunk({"content": "The"}), {"error": {"code": 502, "message": "gone"}}), None),
    "error-400": (fail(400, {"detail": [{"loc": ["body"], "msg": "no"}]}), None),
    "page": ((200, "text/html", b"<html><title>Sign in</title></html>"), None),
    "nothing": ((200, "text/event-stream", b""), None),
}  # fmt: skip
LIMITS = {"requests": 100_000, "turns_per_user": 100}
WORDS_BEFORE_THE_ERROR = ("odd-finish", "no-finish", "filtered", "error-late")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    def respond(body: bytes) -> tuple[int, str, bytes]:
        question = json.loads(body)["messages"][1]["content"]
        return REPLIES[question.split("Shape: ")[1].split("\n")[0]][0]

    with serve_posts(respond) as url:
        served = {"type": "openai", "model": "m", "base_url": url, "api_key": "test-key-0123", "max_retries": 0}
        config = make_config({"id": "hal", "backend": served}, server={"limits": LIMITS}, memory={"enabled": False})
        service = Service(tmp_path_factory.mktemp("odd"), config).start()
        yield service
        service.stop()
        assert [line for line in service.read_log() if "a request failed" in line.get("message", "")] == []


@pytest.fixture(scope="module")
def schemas(service: Service) -> dict[str, Any]:
    return service.client("reader", "admin").get("/openapi.json").json()


def find_text(name: str, *, is_alone: bool = False) -> str | None:
    """Return what clients get. A council asks once for the rest of a reply that is cut, a single agent does not."""
    text = REPLIES[name][1]
    return text and text * (2 if name == "cut" and not is_alone else 1)


def check(schemas: dict[str, Any], path: str, status: int, body: object) -> None:
    """Compare a body with the OpenAPI description of its path and status."""
    described = schemas["paths"][path]["post"]["responses"]
    content = described.get(str(status), described.get("default"))["content"]["application/json"]
    jsonschema.validate(body, {**content["schema"], "components": schemas["components"]})


def read_frames(text: str) -> list[str]:
    """Return the data of the events of a stream, as WHATWG HTML has them."""
    events = [event for event in text.replace("\r\n", "\n").split("\n\n") if event.strip()]
    lines = [
        [line for line in event.split("\n") if not line.startswith((":", "event:", "id:", "retry:"))]
        for event in events
    ]
    assert all(line.startswith("data: ") for event in lines for line in event)
    return ["\n".join(line.removeprefix("data: ") for line in event) for event in lines if event]


@pytest.mark.parametrize("model", ["massmem", "massmem/default/hal"], ids=["council", "one agent"])
@pytest.mark.parametrize("name", REPLIES)
def test_chat_completions(service: Service, schemas: dict[str, Any], name: str, model: str) -> None:
    text, client = find_text(name, is_alone=model.endswith("hal")), service.client(name)
    body = {"model": model, "messages": [{"role": "user", "content": f"Shape: {name}"}]}
    whole = client.post("/v1/chat/completions", body)
    check(schemas, "/v1/chat/completions", whole.status_code, whole.json())
    streamed = client.post("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    if text is None:
        assert whole.status_code >= 500
        assert isinstance(whole.json()["error"]["message"], str)
        if name not in WORDS_BEFORE_THE_ERROR:
            assert streamed.status_code >= 500 or "error" in json.loads(read_frames(streamed.text)[-1])
            return
        *chunks, last = map(json.loads, read_frames(streamed.text))
        assert set(last["error"]) == {"message", "type", "param", "code"}
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks), "it is not complete"
        return
    finish = "length" if name == "cut" else "stop"
    completion = ChatCompletion.model_validate(whole.json(), strict=True)
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == (text, finish)
    *frames, done = read_frames(streamed.text)
    assert done == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(frame, strict=True) for frame in frames]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == text
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == [finish]
    for usage in (completion.usage, chunks[-1].usage):
        assert usage is not None
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


@pytest.mark.parametrize("name", REPLIES)
def test_responses(service: Service, schemas: dict[str, Any], name: str) -> None:
    text = find_text(name)
    with OpenAI(base_url=f"{service.url}/v1", api_key=make_token(name), max_retries=0) as client:
        kinds: list[str] = []
        try:
            response = client.responses.create(model="massmem", input=f"Shape: {name}")
            for event in client.responses.create(model="massmem", input=f"Shape: {name}", stream=True):
                kinds.append(event.type)
        except openai.APIError:
            assert text is None
            return
    assert text is not None
    assert response.output_text == text
    assert kinds[-1] == ("response.incomplete" if name == "cut" else "response.completed")
    Response.model_validate(response.model_dump(), strict=True)
    check(schemas, "/v1/responses", 200, json.loads(response.model_dump_json()))


@pytest.mark.parametrize("name", REPLIES)
async def test_mcp(service: Service, name: str) -> None:
    async with open_http(service, name) as client:
        result = await client.call_tool("ask_council", {"question": f"Shape: {name}"})
    text = find_text(name)
    assert result.is_error is (text is None)
    if text is not None:
        assert result.structured_content is not None
        assert result.structured_content["answer"] == text


@pytest.mark.parametrize("name", REPLIES)
def test_page(service: Service, schemas: dict[str, Any], name: str) -> None:
    text, client = find_text(name), service.client(name)
    body = {"message": f"Shape: {name}"}
    whole = client.post("/api/v1/chat", body)
    check(schemas, "/api/v1/chat", whole.status_code, whole.json())
    last = json.loads(read_frames(client.post("/api/v1/chat/stream", body).text)[-1])
    if text is None:
        assert (last["type"], "error" in whole.json()) == ("turn_failed", True)
        return
    assert (last["type"], last["answer"], whole.json()["response"]) == ("turn_completed", text, text)
    assert client.read_history(whole.json()["session_id"])[-1] == ("assistant", text)
