import json
import time
from typing import Any

import pytest

from massmem.config.models import BackendConfig, BackendType
from massmem.errors import (
    AuthenticationError,
    MalformedResponse,
    ModelNotFound,
    ProviderConnectionError,
    ProviderTimeout,
    ProviderUnavailable,
)
from massmem.providers.offers import Offered, offered_models
from massmem.providers.presets import resolve
from tests.support.provider_stub import KEY, Http, Stub


def says(value: object, status: int = 200) -> Http:
    return Http(status, {"content-type": "application/json"}, [json.dumps(value).encode()])


def listing(*entries: dict[str, Any]) -> Http:
    return says({"object": "list", "data": list(entries)})


async def offers(type_: BackendType, url: str, **more: float) -> tuple[Offered, ...]:
    backend = BackendConfig.model_validate({"type": type_, "model": "m", "base_url": url, "api_key": KEY})
    return await offered_models(type_, resolve(backend, {}), **more)


async def test_a_list_with_windows(stub: Stub):
    stub.routes = {
        "/v1/models": listing(
            {"id": "a", "max_model_len": 4096, "owned_by": "vllm"}, {"id": "models/gpt-4o"}, {"id": 3}
        )
    }
    assert await offers("vllm", f"{stub.url}/v1") == (Offered("a", 4096, "vllm"), Offered("gpt-4o", 128_000))
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_anthropic_in_its_own_protocol(stub: Stub):
    stub.routes = {"/v1/models?limit=1000": listing({"id": "claude-x", "max_input_tokens": 200_000})}
    assert await offers("anthropic", stub.url) == (Offered("claude-x", 200_000),)
    assert stub.requests[0].headers["x-api-key"] == KEY
    assert "authorization" not in stub.requests[0].headers


async def test_ollama_says_the_window_of_each_model(stub: Stub):
    stub.routes = {
        "/v1/models": listing({"id": "m:1b", "owned_by": "library"}, {"id": "nomic-embed-text:latest"}),
        "/api/ps": says({"models": [{"name": "m:1b", "context_length": 8192}]}),
        "/api/show": says({"parameters": ""}),
    }
    chat, embedder = await offers("ollama", f"{stub.url}/v1")
    assert (chat.name, chat.window, chat.chats) == ("m:1b", 8192, True)
    assert (embedder.window, embedder.chats) == (None, False)


async def test_a_server_without_a_model(stub: Stub):
    stub.routes = {"/v1/models": says({"object": "list", "data": None})}
    assert await offers("ollama", f"{stub.url}/v1") == ()


async def test_a_key_that_is_refused(stub: Stub):
    stub.routes = {"/v1/models": says({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)}
    with pytest.raises(AuthenticationError) as raised:
        await offers("openai", f"{stub.url}/v1")
    assert "Incorrect API key" in raised.value.message
    assert KEY not in raised.value.message


async def test_openrouter_shows_its_list_to_everybody_so_the_key_is_asked_for(stub: Stub):
    stub.routes = {"/v1/models": listing({"id": "a"}), "/v1/key": says({"error": {"message": "No auth"}}, 401)}
    with pytest.raises(AuthenticationError):
        await offers("openrouter", f"{stub.url}/v1")
    stub.routes["/v1/key"] = says({"data": {}})
    assert [model.name for model in await offers("openrouter", f"{stub.url}/v1")] == ["a"]


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
async def test_what_else_a_server_may_say(stub: Stub, reply: Http, kind: type[Exception]):
    stub.routes = {"/v1/models": reply}
    with pytest.raises(kind):
        await offers("openai", f"{stub.url}/v1")


async def test_a_server_that_says_nothing_is_not_waited_for(stub: Stub):
    stub.routes = {"/v1/models": Http(parts=[30.0])}
    began = time.monotonic()
    with pytest.raises(ProviderTimeout):
        await offers("openai", f"{stub.url}/v1", patience=0.3)
    assert time.monotonic() - began < 5


async def test_nobody_there():
    with pytest.raises(ProviderConnectionError):
        await offers("openai", "http://127.0.0.1:9/v1")


def test_what_a_name_tells():
    for name in ("text-embedding-3-small", "BAAI/bge-m3", "all-minilm:22m", "whisper-1", "tts-1", "x/e5-large"):
        assert not Offered(name).chats, name
    for name in ("gpt-5-mini", "llama3.1:8b", "qwen3:8b", "claude-sonnet-5", "google/gemma-3"):
        assert Offered(name).chats, name
