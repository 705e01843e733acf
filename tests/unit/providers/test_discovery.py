import json
import time
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.config.presets import BackendType
from massmem.core.errors import (
    AuthenticationError,
    MalformedResponse,
    ModelNotFound,
    ProviderConnectionError,
    ProviderTimeout,
    ProviderUnavailable,
)
from massmem.providers.discovery import ListedModel, LocalServer, find_local_servers, list_models, list_usual_addresses
from massmem.providers.endpoints import resolve
from tests.support.provider_stub import KEY, Http, Stub, running_stub

NOBODY = "http://127.0.0.1:9/v1"


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


async def test_impossible_port_is_no_server():
    assert await find_local_servers({}, [("llamacpp", "http://localhost:99999/v1")]) == []


async def test_a_silent_server_is_given_up_after_seconds(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[30.0])}
    started = time.monotonic()
    assert await find_local_servers({}, [("llamacpp", f"{stub.url}/v1"), ("vllm", f"{stub.url}/v1")]) == []
    assert time.monotonic() - started < 25


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


def says(value: object, status: int = 200) -> Http:
    return Http(status, {"content-type": "application/json"}, [json.dumps(value).encode()])


def listing(*entries: dict[str, Any]) -> Http:
    return says({"object": "list", "data": list(entries)})


async def models_of(type_: BackendType, url: str, **more: float) -> tuple[ListedModel, ...]:
    backend = BackendConfig.model_validate({"type": type_, "model": "m", "base_url": url, "api_key": KEY})
    return await list_models(type_, resolve(backend, {}), **more)


async def test_windows_come_from_the_list_of_the_server_or_else_from_the_price_list(stub: Stub):
    stub.routes = {
        "/v1/models": listing(
            {"id": "a", "max_model_len": 4096, "owned_by": "vllm"}, {"id": "models/gpt-4o"}, {"id": 3}
        )
    }
    assert await models_of("vllm", f"{stub.url}/v1") == (ListedModel("a", 4096, "vllm"), ListedModel("gpt-4o", 128_000))
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_anthropic_is_asked_in_its_own_protocol(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "claude-x", "max_input_tokens": 200_000})}
    assert await models_of("anthropic", stub.url) == (ListedModel("claude-x", 200_000),)
    assert stub.requests[0].path == "/v1/models?limit=1000"
    assert stub.requests[0].headers["x-api-key"] == KEY
    assert "authorization" not in stub.requests[0].headers


async def test_ollama_is_asked_for_the_window_of_each_model(stub: Stub):
    stub.routes = {
        "/v1/models": listing({"id": "m:1b", "owned_by": "library"}, {"id": "nomic-embed-text:latest"}),
        "/api/ps": says({"models": [{"name": "m:1b", "context_length": 8192}]}),
        "/api/show": says({"parameters": ""}),
    }
    chat, embedder = await models_of("ollama", f"{stub.url}/v1")
    assert (chat.name, chat.window, chat.can_chat) == ("m:1b", 8192, True)
    assert (embedder.window, embedder.can_chat) == (None, False)


async def test_a_server_without_models_gives_an_empty_list(stub: Stub):
    stub.routes = {"/v1/models": says({"object": "list", "data": None})}
    assert await models_of("ollama", f"{stub.url}/v1") == ()


A, B = {"id": "a"}, {"id": "b"}


@pytest.mark.parametrize(
    "reply",
    [
        {"data": [A, B]},
        [A, B],
        {"models": [A, B]},
        {"data": [], "models": [A, B]},
        {"data": None, "models": [A, B]},
        {"result": [A, B]},
        {"data": ["a", "b"]},
        ["a", "b"],
        {"data": [None, A, 7, {}, {"id": None}, {"id": ""}, [A], B]},
        {"models": [{"name": "a", "model": "a"}, {"name": "models/b"}]},
        {"data": [{"model_name": "a"}, {"id": "b", "name": "The B"}]},
        {"data": {"a": {"max": 1}, "b": {}}},
        {"a": {"owned_by": "x"}, "b": {"owned_by": "x"}},
    ],
)
async def test_a_list_is_read_element_by_element_in_any_form(stub: Stub, reply: object):
    stub.routes = {"/v1/models": says(reply)}
    assert [model.name for model in await models_of("openai", f"{stub.url}/v1")] == ["a", "b"]


async def test_a_refused_key_is_an_authentication_error_without_the_key(stub: Stub):
    stub.routes = {"/v1/models": says({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)}
    with pytest.raises(AuthenticationError) as raised:
        await models_of("openai", f"{stub.url}/v1")
    assert "Incorrect API key" in raised.value.message
    assert KEY not in raised.value.message


async def test_the_key_for_openrouter_is_tried_beside_its_public_list(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "a"}), "/v1/key": says({"error": {"message": "No auth"}}, 401)}
    with pytest.raises(AuthenticationError):
        await models_of("openrouter", f"{stub.url}/v1")
    stub.routes["/v1/key"] = says({"data": {}})
    assert [model.name for model in await models_of("openrouter", f"{stub.url}/v1")] == ["a"]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Http(404), ModelNotFound),
        (says({"error": "busy"}, 503), ProviderUnavailable),
        (says({"hello": "world"}), MalformedResponse),
        (says([1]), MalformedResponse),
        (Http(parts=[b"<html>"]), MalformedResponse),
        (Http(head=False), ProviderConnectionError),
    ],
    ids=["no list", "busy", "another object", "no object", "a page", "nothing"],
)
async def test_a_reply_that_is_no_list_is_an_error(stub: Stub, reply: Http, kind: type[Exception]):
    stub.routes = {"/v1/models": reply}
    with pytest.raises(kind):
        await models_of("openai", f"{stub.url}/v1")


async def test_a_silent_server_times_out(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[30.0])}
    started = time.monotonic()
    with pytest.raises(ProviderTimeout):
        await models_of("openai", f"{stub.url}/v1", patience=0.3)
    assert time.monotonic() - started < 25


async def test_an_unreachable_server_is_a_connection_error():
    with pytest.raises(ProviderConnectionError):
        await models_of("openai", "http://127.0.0.1:9/v1")


def test_models_that_cannot_chat_are_told_by_their_names():
    for name in ("text-embedding-3-small", "BAAI/bge-m3", "all-minilm:22m", "whisper-1", "tts-1", "x/e5-large"):
        assert not ListedModel(name).can_chat, name
    for name in ("gpt-5-mini", "llama3.1:8b", "qwen3:8b", "claude-sonnet-5", "google/gemma-3"):
        assert ListedModel(name).can_chat, name


@pytest.mark.parametrize(
    ("entry", "abilities"),
    [
        # OpenRouter
        (
            {
                "supported_parameters": ["tools", "structured_outputs", "max_tokens"],
                "architecture": {"input_modalities": ["text", "image"]},
                "pricing": {"prompt": "0.000001", "input_cache_read": "0.0000001"},
            },
            {"tools": True, "forced_tools": False, "schema": True, "effort": False, "vision": True, "caching": True},
        ),
        # Mistral
        ({"capabilities": {"function_calling": False, "vision": True}}, {"tools": False, "vision": True}),
        # Anthropic
        (
            {"capabilities": {"image_input": {"supported": True}, "effort": {"supported": False, "low": 1}}},
            {"vision": True, "effort": False},
        ),
        # LM Studio
        ({"capabilities": ["tool_use"]}, {"tools": True}),
        ({"capabilities": 7, "supported_parameters": "all", "architecture": None, "pricing": []}, {}),
    ],
    ids=["openrouter", "mistral", "anthropic", "lmstudio", "odd"],
)
async def test_list_says_what_its_models_can_do(stub: Stub, entry: dict[str, Any], abilities: dict[str, bool]) -> None:
    body = json.dumps({"data": [{"id": "m", **entry}]}).encode()
    stub.routes = {"/v1/models": Http(headers={"content-type": "application/json"}, parts=[body])}
    endpoint = resolve(BackendConfig(type="openai", model="m", base_url=f"{stub.url}/v1"), {})
    (model,) = await list_models("openai", endpoint)
    assert model.abilities == abilities
