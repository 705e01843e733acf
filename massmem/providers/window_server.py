"""Asks a model server how many tokens it reads. What it really uses counts, not what the model could."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import httpx2  # noqa: TID253 - loaded with this module only, which windows.py imports when there is a server to ask

from massmem.config.models import BackendType
from massmem.providers.http import HTTP_ERRORS, http_client
from massmem.providers.presets import PRESETS, Endpoint

PATIENCE = 3.0
"""Seconds for all questions to one server together."""

_LONGEST_REPLY = 8_000_000
_SMALLEST, _LARGEST = 256, 100_000_000

Json = Mapping[str, Any]
Dialect = Literal["models", "anthropic", "llamacpp", "ollama", "lmstudio"]

# "models" is the list of the OpenAI protocol. Providers that are not here name no window in theirs.
_ASKED: Mapping[BackendType, tuple[Dialect, ...]] = {
    "anthropic": ("anthropic",),
    "groq": ("models",),
    "together": ("models",),
    "openrouter": ("models",),
    "mistral": ("models",),
    "fireworks": ("models",),
    "ollama": ("ollama",),
    "lmstudio": ("lmstudio",),
    "vllm": ("models",),
    "llamacpp": ("llamacpp",),
}
# A server of which only the address is known.
_ANY: tuple[Dialect, ...] = ("models", "llamacpp", "ollama", "lmstudio")

# vLLM and SGLang; Groq; OpenRouter, Together and Fireworks; Mistral; Anthropic.
WINDOW_FIELDS = ("max_model_len", "context_window", "context_length", "max_context_length", "max_input_tokens")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


def dialects(type_: BackendType, endpoint: Endpoint) -> tuple[Dialect, ...]:
    """In which ways the server of a backend can be asked; none for a provider that does not say."""
    if PRESETS[type_].kind == "openai" and type_ not in _ASKED and endpoint.base_url != PRESETS[type_].base_url:
        return () if type_ == "azure_openai" else _ANY
    return _ASKED.get(type_, ())


async def asked_window(type_: BackendType, endpoint: Endpoint) -> int | None:
    """What the server says, None when it cannot be reached in PATIENCE seconds or does not say."""
    try:
        async with asyncio.timeout(PATIENCE), await asyncio.to_thread(http_client, endpoint) as client:
            for dialect in dialects(type_, endpoint):
                if window := await _ASK[dialect](_Server(client, endpoint)):
                    return window
    except (TimeoutError, *HTTP_ERRORS):
        pass
    return None


class _Server:
    """One server's JSON. path: from the root of the server, without the /v1 of the OpenAI protocol."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._root = endpoint.base_url.removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {endpoint.key}"}
        self.base_url = endpoint.base_url
        self.model = endpoint.model
        self.key = endpoint.key

    async def get(self, path: str) -> Json:
        return await self._ask("GET", self._root + path)

    async def post(self, path: str, body: Json) -> Json:
        return await self._ask("POST", self._root + path, body)

    async def models(self) -> Json:
        return await self._ask("GET", f"{self.base_url}/models")

    async def anthropic_model(self) -> Json:
        headers = {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        return await self._ask("GET", f"{self._root}/v1/models/{self.model}", headers=headers)

    async def _ask(self, method: str, url: str, body: Json | None = None, headers: Json | None = None) -> Json:
        """The reply, empty when it is no JSON object: many servers answer a path that they do not know with a page."""
        asked = self._client.stream(method, url, json=body, headers=dict(headers or self._headers), timeout=PATIENCE)
        async with asked as reply:
            data = bytearray()
            async for chunk in reply.aiter_bytes():
                data += chunk
                if len(data) > _LONGEST_REPLY:
                    return {}
        if reply.status_code != 200:
            return {}
        try:
            return _object(json.loads(data))
        except ValueError:
            return {}


async def _models(server: _Server) -> int | None:
    for model in listed(await server.models()):
        if model.get("id") == server.model:
            return next((window for name in WINDOW_FIELDS if (window := window_of(model.get(name)))), None)
    return None


async def _anthropic(server: _Server) -> int | None:
    return window_of((await server.anthropic_model()).get("max_input_tokens"))


async def _llamacpp(server: _Server) -> int | None:
    """n_ctx of one slot: llama-server divides its context among them."""
    settings = _object((await server.get("/props")).get("default_generation_settings"))
    return window_of(settings.get("n_ctx"))


async def _ollama(server: _Server) -> int | None:
    """The window of the running model; of one that is not loaded, what its Modelfile sets."""
    name = server.model if ":" in server.model else f"{server.model}:latest"
    running = await server.get("/api/ps")
    if "models" not in running:
        return None  # not Ollama: it might take what is posted below for a question to its model
    for model in listed(running, "models"):
        if name in (model.get("name"), model.get("model")):
            return window_of(model.get("context_length"))
    shown = await server.post("/api/show", {"model": server.model})
    if shown.get("remote_model"):  # in Ollama's cloud, which gives a model all that it can read
        known = _object(shown.get("model_info"))
        return next((window_of(known[key]) for key in known if key.endswith(".context_length")), None)
    parameters = shown.get("parameters")
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return window_of(int(found[1])) if found else None


async def _lmstudio(server: _Server) -> int | None:
    for model in listed(await server.get("/api/v0/models")):
        if model.get("id") == server.model:
            return window_of(model.get("loaded_context_length"))
    return None


_ASK = {
    "models": _models,
    "anthropic": _anthropic,
    "llamacpp": _llamacpp,
    "ollama": _ollama,
    "lmstudio": _lmstudio,
}


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def listed(reply: Json, name: str = "data") -> Iterator[Json]:
    found = reply.get(name)
    for each in cast("list[object]", found) if isinstance(found, list) else ():
        yield _object(each)


def window_of(value: object) -> int | None:
    """A number that can be one: some servers say 0, or an absurd limit, for "unknown"."""
    return value if type(value) is int and _SMALLEST <= value <= _LARGEST else None
