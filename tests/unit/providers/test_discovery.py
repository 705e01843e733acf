import json
import time
from typing import Any

import pytest

from massmem.providers.discovery import LocalServer, find_local_servers, list_usual_addresses
from massmem.providers.model_list import ListedModel
from tests.support.provider_stub import Http, Stub, running_stub

NOBODY = "http://127.0.0.1:9/v1"


def listing(*entries: dict[str, Any]) -> Http:
    body = json.dumps({"object": "list", "data": list(entries)}).encode()
    return Http(headers={"content-type": "application/json"}, parts=[body])


async def test_servers_are_found_with_their_models(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "m", "max_model_len": 4096, "owned_by": "vllm"})}
    async with running_stub() as other:
        other.routes = {"/v1/models": listing({"id": "q", "owned_by": "llamacpp"})}
        addresses = [("vllm", f"{stub.url}/v1"), ("ollama", NOBODY), ("vllm", f"{other.url}/v1")]
        servers = await find_local_servers({}, addresses)
    assert servers == [
        LocalServer("vllm", f"{stub.url}/v1", (ListedModel("m", 4096, "vllm"),)),
        LocalServer("llamacpp", f"{other.url}/v1", (ListedModel("q", None, "llamacpp"),)),
    ]
    assert not servers[0].has_usual_address


async def test_another_program_on_the_port_is_no_model_server(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[b"<html>hello</html>"])}
    assert await find_local_servers({}, [("llamacpp", f"{stub.url}/v1")]) == []


async def test_a_silent_server_is_given_up_after_seconds(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[30.0])}
    started = time.monotonic()
    assert await find_local_servers({}, [("llamacpp", f"{stub.url}/v1"), ("vllm", f"{stub.url}/v1")]) == []
    assert time.monotonic() - started < 6


async def test_only_the_key_for_this_kind_of_server_is_sent(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "m"})}
    keys = {"OPENAI_API_KEY": "sk-secret", "VLLM_API_KEY": "for-vllm"}
    await find_local_servers(keys, [("vllm", f"{stub.url}/v1"), ("lmstudio", f"{stub.url}/v1")])
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
def test_ollama_host_is_used_when_it_is_on_this_machine(host: str, url: str):
    assert dict(list_usual_addresses({"OLLAMA_HOST": host}))["ollama"] == url


def test_usual_addresses_are_all_on_this_machine():
    addresses = list_usual_addresses({"OLLAMA_HOST": "example.com", "LLAMA_ARG_PORT": "8090"})
    assert [type_ for type_, _ in addresses] == ["ollama", "lmstudio", "vllm", "llamacpp"]
    assert all(url.startswith("http://localhost:") for _, url in addresses)
    assert dict(addresses)["llamacpp"] == "http://localhost:8090/v1"
