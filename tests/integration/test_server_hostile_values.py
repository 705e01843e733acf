"""Hostile values in every field of `/v1`, `/mcp` and `/api/v1/chat`: answered, or refused in a few clear words."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.support.service import Client, Service, make_agent, make_config

VALUES = {
    "null": "null", "true": "true", "minus one": "-1", "zero": "0", "a half": "0.5", "400 digits": "9" * 400,
    "5,000 digits": "9" * 5_000, "2^63": str(2**63), "1e308": "1e308", "1e999": "1e999", "NaN": "NaN",
    "-Infinity": "-Infinity", "empty text": '""', "blanks": '"  "', "NUL": '"a\\u0000b"', "a path": '"../../passwd"',
    "half a character": '"\\ud800"', "controls": '"a\\r\\nX-Evil: 1\\u001b[2J"', "10 MB": f'"{"x" * 10_000_000}"',
    "empty list": "[]", "empty object": "{}", "list of null": "[null]", "list of objects": "[{}]",
    "the same twice": '["a", "a"]', "10,000 deep": "[" * 10_000 + "]" * 10_000, "a key twice": '{"id": 1, "id": 1}',
    "900 objects deep": '{"a":' * 900 + "1" + "}" * 900, "100,000 items": f"[{'1,' * 99_999}1]",
}  # fmt: skip
HOLE = "<<here>>"
CHAT = {"model": "massmem", "messages": [{"role": "user", "content": "Why?"}]}
RESPONSE = {"model": "massmem", "input": "Why?"}
COUNCIL = "question session_id project team mode files folder evidence answer_schema max_cost max_seconds"
MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
PART = {"type": "text", "text": "Why?"}


ASKED = ("message", "session_id", "team", "agent", "model", "folder", "project", "full", "replaces", "user_id")


def message(**fields: Any) -> dict[str, Any]:
    return CHAT | {"messages": [{"role": "user", "content": "Why?"} | fields]}


def part(**fields: Any) -> dict[str, Any]:
    return message(content=[PART, fields])


def tool(name: Any, **arguments: Any) -> dict[str, Any]:
    return MCP | {"params": {"name": name, "arguments": arguments}}


def list_bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield paths and bodies, each with a hole for a value."""
    chat = "model messages stream stream_options temperature top_p max_tokens max_completion_tokens stop n metadata"
    chat += " response_format tool_choice tools user seed logprobs top_logprobs logit_bias functions unknown"
    yield from (("/v1/chat/completions", CHAT | {name: HOLE}) for name in chat.split())
    yield from (("/v1/chat/completions", message(**{name: HOLE})) for name in ("role", "content", "name", "tool_calls"))
    yield "/v1/chat/completions", CHAT | {"messages": [HOLE, *CHAT["messages"]]}
    yield "/v1/chat/completions", part(type=HOLE)
    yield "/v1/chat/completions", part(type="text", text=HOLE)
    yield "/v1/chat/completions", part(type="image_url", image_url=HOLE)
    yield "/v1/chat/completions", part(type="image_url", image_url={"url": HOLE})
    yield "/v1/chat/completions", part(type="file", file=HOLE)
    yield "/v1/chat/completions", part(type="file", file={"filename": HOLE, "file_data": "data:text/plain;base64,YQ=="})
    yield "/v1/chat/completions", part(type="file", file={"filename": "a.txt", "file_data": HOLE})
    for name in ("session_id", "project", "other"):
        yield "/v1/chat/completions", CHAT | {"metadata": {name: HOLE}}
    yield "/v1/chat/completions", CHAT | {"stream_options": {"include_usage": HOLE}}
    yield "/v1/chat/completions", CHAT | {"response_format": {"type": HOLE}}
    form = {"type": "json_schema", "json_schema": HOLE}
    yield "/v1/chat/completions", CHAT | {"response_format": form}
    for schema in (HOLE, {"type": HOLE}, {"enum": HOLE}, {"minimum": HOLE}, {"properties": HOLE}, {"required": HOLE}):
        yield "/v1/chat/completions", CHAT | {"response_format": form | {"json_schema": {"schema": schema}}}
    response = "model input instructions previous_response_id max_output_tokens text metadata stream store reasoning"
    yield from (("/v1/responses", RESPONSE | {name: HOLE}) for name in response.split())
    for name in ("type", "role", "content"):
        yield "/v1/responses", RESPONSE | {"input": [{"role": "user", "content": "Why?"} | {name: HOLE}]}
    yield "/v1/responses", RESPONSE | {"text": {"format": HOLE}}
    yield from (("/api/v1/chat", {"message": "Why?", name: HOLE}) for name in ASKED)
    yield from (("/mcp", tool("list_sessions") | {name: HOLE}) for name in ("jsonrpc", "id", "method", "params"))
    yield "/mcp", tool(HOLE)
    yield "/mcp", MCP | {"params": {"name": "list_sessions", "arguments": HOLE}}
    for name in (*COUNCIL.split(), "unknown"):
        yield "/mcp", tool("ask_council", **{"question": "Why?", name: HOLE})
    for name in ("session_id", "wait_seconds"):
        yield "/mcp", tool("check_council", **{"session_id": "first", name: HOLE})
    yield "/mcp", tool("cancel_council", session_id=HOLE)
    yield "/mcp", tool("forget", ids=HOLE)
    yield "/mcp", tool("forget", ids=[HOLE])
    for name in ("query", "limit", "project"):
        yield "/mcp", tool("recall", **{"query": "Why?", name: HOLE})
    for name in ("text", "session_id", "project"):
        yield "/mcp", tool("remember", **{"text": "A note.", name: HOLE})
    yield "/mcp", tool("list_sessions", limit=HOLE)
    for name in ("session_id", "limit"):
        yield "/mcp", tool("read_session", **{"session_id": "first", name: HOLE})
    yield "/mcp", MCP | {"method": "resources/read", "params": {"uri": HOLE}}
    yield "/mcp", MCP | {"method": "initialize", "params": HOLE}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {"requests": 1_000_000}
    config = make_config(make_agent("ann", "It is blue."), server={"limits": limits})
    service = Service(tmp_path_factory.mktemp("hostile"), config).start()
    yield service
    assert service.stop() == 0


def find_fault(client: Client, path: str, body: dict[str, Any], value: str) -> tuple[str, int]:
    """Return what is wrong with the answer, "": nothing; and its status."""
    text = json.dumps(body).replace(json.dumps(HOLE), value)
    headers = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
    headers["Accept"] = "application/json, text/event-stream"
    answer = requests.post(client.url + path, text.encode(), headers=headers, timeout=60)
    status, words = answer.status_code, answer.text
    if status >= 400 and path != "/mcp":
        error = answer.json()["error"]
        words = error if isinstance(error, str) else error["message"]
    has_no_form = status == 502 and words.startswith("there is an answer, but not in the form of the schema: ")
    is_short = status < 400 or 10 < len(answer.content) < 3_000
    is_inner = any(mark in words for mark in ("Traceback", "massmem/server", "Internal"))
    fault = (status >= 500 and not has_no_form) or not is_short or is_inner
    return (f"{status}: {words[:300]}" if fault else ""), status


def try_all(service: Service, step: int) -> None:
    """step: every so many of the combinations."""
    client = service.client("ann")
    assert client.chat("What is first?", "first").status_code == 200
    history, counts, faults = client.read_history("first"), Counter[int](), list[str]()
    pairs = [(path, body, name) for path, body in list_bodies() for name in VALUES]
    for path, body, name in pairs[::step]:
        fault, status = find_fault(client, path, body, VALUES[name])
        counts[status] += 1
        if fault:
            faults.append(f"{path} {json.dumps(body)[-110:]} {name}: {fault}")
    print(len(pairs[::step]), sorted(counts.items()))
    assert not faults, "\n".join(faults)
    assert client.read_history("first")[: len(history)] == history
    assert client.chat("And now?", "last").json()["response"] == "It is blue."
    assert "Traceback" not in service.log.read_text()


def test_hostile_values_are_refused_or_answered(service: Service) -> None:
    try_all(service, 61)


@pytest.mark.full
def test_every_hostile_value_in_every_field(service: Service) -> None:
    try_all(service, 1)
