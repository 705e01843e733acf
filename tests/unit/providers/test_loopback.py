import json
import time
from typing import Any

import pytest

from massmem.providers.loopback import LocalServer, local_servers, places
from massmem.providers.offers import Offered
from tests.support.provider_stub import Http, Stub, running_stub

NOBODY = "http://127.0.0.1:9/v1"


def listing(*entries: dict[str, Any]) -> Http:
    body = json.dumps({"object": "list", "data": list(entries)}).encode()
    return Http(headers={"content-type": "application/json"}, parts=[body])


async def test_servers_are_found_with_their_models(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "m", "max_model_len": 4096, "owned_by": "vllm"})}
    async with running_stub() as other:
        other.routes = {"/v1/models": listing({"id": "q", "owned_by": "llamacpp"})}
        found = await local_servers([("vllm", f"{stub.url}/v1"), ("ollama", NOBODY), ("vllm", f"{other.url}/v1")], {})
    assert found == [
        LocalServer("vllm", f"{stub.url}/v1", (Offered("m", 4096, "vllm"),)),
        LocalServer("llamacpp", f"{other.url}/v1", (Offered("q", None, "llamacpp"),)),
    ]
    assert not found[0].usual


async def test_whatever_else_listens_there_is_no_model_server(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[b"<html>hello</html>"])}
    assert await local_servers([("llamacpp", f"{stub.url}/v1")], {}) == []


async def test_one_that_hangs_is_not_waited_for_long(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[30.0])}
    began = time.monotonic()
    assert await local_servers([("llamacpp", f"{stub.url}/v1"), ("vllm", f"{stub.url}/v1")], {}) == []
    assert time.monotonic() - began < 6


async def test_no_key_of_a_provider_is_sent(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "m"})}
    keys = {"OPENAI_API_KEY": "sk-secret", "VLLM_API_KEY": "for-vllm"}
    await local_servers([("vllm", f"{stub.url}/v1"), ("lmstudio", f"{stub.url}/v1")], keys)
    sent = sorted(r.headers["authorization"] for r in stub.requests if r.path == "/v1/models")
    assert sent == ["Bearer for-vllm", "Bearer no-key"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://localhost:11434/v1"),
        ("127.0.0.1:11500", "http://127.0.0.1:11500/v1"),
        ("0.0.0.0", "http://localhost:11434/v1"),
        ("http://localhost:99", "http://localhost:99/v1"),
        ("[::1]:99", "http://[::1]:99/v1"),
        ("gpu-box:11434", "http://localhost:11434/v1"),
        ("https://example.com", "http://localhost:11434/v1"),
        ("127.0.0.1:99999999", "http://localhost:11434/v1"),
    ],
)
def test_where_ollama_is(host: str, url: str):
    assert dict(places({"OLLAMA_HOST": host}))["ollama"] == url


def test_all_places_are_on_this_machine():
    found = places({"OLLAMA_HOST": "example.com", "LLAMA_ARG_PORT": "8090"})
    assert [type_ for type_, _ in found] == ["ollama", "lmstudio", "vllm", "llamacpp"]
    assert all(url.startswith("http://localhost:") for _, url in found)
    assert dict(found)["llamacpp"] == "http://localhost:8090/v1"
