"""Model servers: those on this machine, the models that a server lists, and how many tokens each reads.

Asking for the list is also the cheapest way to try an address and a key. The search for servers contacts no address but
the usual ports of this machine.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2

from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS, SERVER_NAMES, BackendType, Dialect
from massmem.core.errors import MalformedResponse, MassmemError, ModelNotFound, ProviderError, ProviderTimeout
from massmem.providers.clients import HTTP_ERRORS, http_client, kind_of, timeouts
from massmem.providers.endpoints import Endpoint, resolve
from massmem.providers.failures import ErrorContext, parse_error_body, parse_json
from massmem.providers.pricing import find_listed_window

# The models of a server

LIST_PATIENCE = 10.0
"""Seconds for a list: some providers of many models need a few."""
WINDOW_PATIENCE = 3.0
"""Seconds for all requests about the window of one model."""

_MAX_MODELS = 2_000
_REQUESTS_AT_ONCE = 8

Json = Mapping[str, Any]
_ALL_DIALECTS: tuple[Dialect, ...] = ("models", "llamacpp", "ollama", "lmstudio")
"""For a server of which only the address is known."""
_ASK_EACH_MODEL = ("ollama", "lmstudio", "llamacpp")
"""The lists of these servers name no windows."""

# vLLM and SGLang; Groq; OpenRouter, Together and Fireworks; Mistral; Anthropic.
_WINDOW_FIELDS = ("max_model_len", "context_window", "context_length", "max_context_length", "max_input_tokens")
_SMALLEST_WINDOW, _LARGEST_WINDOW = 256, 100_000_000
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_NO_CHAT = re.compile(r"embed|rerank|(^|[/-])bge-|minilm|whisper|(^|[/-])(tts|e5|clip|dall-e|sora)-", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ListedModel:
    name: str
    window: int | None = None
    """Tokens that it reads, None when nobody says."""
    owner: str = ""
    """Who it belongs to, in the server's words."""
    abilities: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """As far as the list names them: tools, forced_tools, schema, vision, effort, caching."""

    @property
    def can_chat(self) -> bool:
        """Judged by its name: embedding and speech models stand in the same lists."""
        return _NO_CHAT.search(self.name) is None


async def list_models(
    type_: BackendType, endpoint: Endpoint, patience: float = LIST_PATIENCE
) -> tuple[ListedModel, ...]:
    """Return the models that the server lists, in its order.

    patience: seconds for the list. endpoint.model is not used.

    Raises:
        AuthenticationError: the key is refused.
        ModelNotFound: the server has no list.
        ProviderError: it cannot be reached, or replies with something else.
    """
    models = await read_models(type_, endpoint, patience)
    if type_ in _ASK_EACH_MODEL:
        return await _ask_windows(type_, endpoint, models)
    return await asyncio.to_thread(_add_listed_windows, models, endpoint)


async def read_models(type_: BackendType, endpoint: Endpoint, patience: float) -> list[ListedModel]:
    """Return the models as the server's list has them. Otherwise as `list_models`."""
    context = ErrorContext(type_, "list of models", endpoint.key)
    if endpoint.signer:
        raise context.error(ModelNotFound, "there is no list that massmem can read")
    try:
        async with asyncio.timeout(patience), _connect(type_, endpoint, patience) as server:
            if type_ == "openrouter":
                await server.get_models("/key")  # its list is public, so only this tries the key
            reply = await server.get_models("/models?limit=1000" if type_ == "anthropic" else "/models")
    except TimeoutError as e:
        raise context.error(ProviderTimeout, f"no answer in {patience:g} s") from e
    except tuple(HTTP_ERRORS) as e:
        raise context.error(kind_of(e), str(e) or type(e).__name__) from e
    entries = _find_entries(reply)
    models = [model for entry in entries or () if (model := _parse_model(entry))]
    if entries is None or (entries and not models):
        raise context.error(MalformedResponse, "no list of models")
    return models[:_MAX_MODELS]


async def ask_window(type_: BackendType, endpoint: Endpoint) -> int | None:
    """Return the tokens that `endpoint.model` reads on this server: what the server uses, not what the model could.

    Return None when the server cannot be reached in 3 seconds or does not say.
    """
    dialects = _dialects_of(type_, endpoint)
    if not dialects:
        return None
    try:
        async with asyncio.timeout(WINDOW_PATIENCE), _connect(type_, endpoint, WINDOW_PATIENCE) as server:
            for dialect in dialects:
                if window := await _ask_in(dialect, server):
                    return window
    except (TimeoutError, *HTTP_ERRORS):
        pass
    return None


class _ServerClient:
    """The JSON endpoints of a model server. Each request raises ProviderError for any other reply."""

    def __init__(self, client: httpx2.AsyncClient, type_: BackendType, endpoint: Endpoint) -> None:
        self.model = endpoint.model
        self._client = client
        self._context = ErrorContext(type_, endpoint.model, endpoint.key)
        self._root = endpoint.base_url.removesuffix("/v1")
        if PRESETS[type_].kind == "anthropic":
            self._api = f"{self._root}/v1"
            self._headers = {"x-api-key": endpoint.key, "anthropic-version": "2023-06-01"}
        else:
            self._api = endpoint.base_url
            self._headers = {"authorization": f"Bearer {endpoint.key}"}

    async def get_models(self, path: str = "/models") -> object:
        """Get a path of the API, which is below /v1 at most servers."""
        return await self._request("GET", self._api + path)

    async def get(self, path: str) -> Json:
        """Get an object from the root of the server."""
        return _object(await self._request("GET", self._root + path))

    async def post(self, path: str, body: Json) -> Json:
        return _object(await self._request("POST", self._root + path, body))

    async def _request(self, method: str, url: str, body: Json | None = None) -> object:
        async with self._client.stream(method, url, json=body, headers=self._headers) as reply:
            value = parse_json(await reply.aread())
        if reply.status_code != 200:
            raise parse_error_body(reply.status_code, value).error(self._context)
        if not isinstance(value, dict | list):
            # Many servers answer a path that they do not know with a page.
            raise self._context.error(MalformedResponse, "no JSON object")
        return cast("object", value)


@asynccontextmanager
async def _connect(type_: BackendType, endpoint: Endpoint, patience: float) -> AsyncGenerator[_ServerClient]:
    async with await asyncio.to_thread(http_client, endpoint) as client:
        client.timeout = timeouts(patience)
        yield _ServerClient(client, type_, endpoint)


def _dialects_of(type_: BackendType, endpoint: Endpoint) -> tuple[Dialect, ...]:
    if dialect := PRESETS[type_].dialect:
        return (dialect,)
    is_elsewhere = endpoint.base_url != PRESETS[type_].base_url and type_ != "azure_openai"
    return _ALL_DIALECTS if PRESETS[type_].kind == "openai" and is_elsewhere else ()


async def _ask_in(dialect: Dialect, server: _ServerClient) -> int | None:
    try:
        match dialect:
            case "models":
                entries = _find_entries(await server.get_models()) or ()
                return next((_window_field(entry) for entry in entries if _name_of(entry) == server.model), None)
            case "anthropic":
                return _to_window(_object(await server.get_models(f"/models/{server.model}")).get("max_input_tokens"))
            case "llamacpp":  # the window of one slot: llama-server divides its context among them
                settings = _object((await server.get("/props")).get("default_generation_settings"))
                return _to_window(settings.get("n_ctx"))
            case "ollama":
                return await _ask_ollama(server)
            case "lmstudio":
                entries = _find_entries(await server.get("/api/v0/models")) or ()
                loaded = (entry.get("loaded_context_length") for entry in entries if entry.get("id") == server.model)
                return _to_window(next(loaded, None))
    except ProviderError:
        return None


async def _ask_ollama(server: _ServerClient) -> int | None:
    """Return the window of the running model; of one that is not loaded, what its Modelfile sets."""
    name = server.model if ":" in server.model else f"{server.model}:latest"
    running = await server.get("/api/ps")
    if "models" not in running:
        return None  # not Ollama: it might take the POST below for a question to its model
    for model in _find_entries(running) or ():
        if name in (model.get("name"), model.get("model")):
            return _to_window(model.get("context_length"))
    details = await server.post("/api/show", {"model": server.model})
    if details.get("remote_model"):  # in Ollama's cloud, which gives a model all that it can read
        info = _object(details.get("model_info"))
        return next((_to_window(info[key]) for key in info if key.endswith(".context_length")), None)
    parameters = details.get("parameters")
    num_ctx = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return _to_window(int(num_ctx[1])) if num_ctx else None


async def _ask_windows(type_: BackendType, endpoint: Endpoint, models: list[ListedModel]) -> tuple[ListedModel, ...]:
    limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def add_window(model: ListedModel) -> ListedModel:
        async with limit:
            return replace(model, window=await ask_window(type_, replace(endpoint, model=model.name)))

    return tuple(await asyncio.gather(*map(add_window, models)))


def _add_listed_windows(models: list[ListedModel], endpoint: Endpoint) -> tuple[ListedModel, ...]:
    url = endpoint.base_url
    return tuple(
        model if model.window else replace(model, window=find_listed_window(model.name, url)) for model in models
    )


def _parse_model(entry: Json) -> ListedModel | None:
    name = _name_of(entry)
    if not name.isprintable() or not 0 < len(name) <= 300:
        return None
    owner = str(entry.get("owned_by") or "")
    return ListedModel(name, _window_field(entry), owner, _read_abilities(entry))


# The words of lists for what a model can do. OpenRouter; Mistral and Anthropic; LM Studio.
_PARAMETERS = {"tools": "tools", "tool_choice": "forced_tools", "structured_outputs": "schema", "reasoning": "effort"}
_CAPABILITIES = {
    "function_calling": "tools", "tool_use": "tools", "structured_outputs": "schema", "vision": "vision",
    "image_input": "vision", "effort": "effort", "reasoning": "effort",
}  # fmt: skip


def _read_abilities(entry: Json) -> dict[str, bool]:
    """Return what an entry of a list says that its model can do, in the dialects of several providers."""
    abilities: dict[str, bool] = {}
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list):
        abilities |= {name: word in parameters for word, name in _PARAMETERS.items()}
    modalities = _object(entry.get("architecture")).get("input_modalities")
    if isinstance(modalities, list):
        abilities["vision"] = "image" in modalities
    if "input_cache_read" in _object(entry.get("pricing")):
        abilities["caching"] = True
    listed = entry.get("capabilities")
    if isinstance(listed, list):
        words = cast("list[object]", listed)
        return abilities | {name: True for word, name in _CAPABILITIES.items() if word in words}
    capabilities = _object(cast("object", listed))
    for word, name in _CAPABILITIES.items():
        value = capabilities.get(word)
        value = _object(value).get("supported", value)
        if isinstance(value, bool):
            abilities[name] = value
    return abilities


def _window_field(entry: Json) -> int | None:
    return next((window for name in _WINDOW_FIELDS if (window := _to_window(entry.get(name)))), None)


_LISTS = ("data", "models", "result", "items")
"""Under which the servers of the protocol have their models."""


def _find_entries(reply: object) -> list[Json] | None:
    """Return the models of a list, which is bare, under a name, or a mapping of names; None when there is none.

    What is no model in it is empty.
    """
    named = [value for name, value in _object(reply).items() if name in _LISTS]
    listed: object = next((value for value in named if value), ()) if named else reply
    if listed == ():
        return []
    if isinstance(listed, list):
        entries = cast("list[object]", listed)
        return [{"id": entry} if isinstance(entry, str) else _object(entry) for entry in entries]
    models = _object(listed)
    is_mapping = bool(models) and "error" not in models and all(isinstance(value, dict) for value in models.values())
    return [{"id": name, **value} for name, value in models.items()] if is_mapping else None


def _name_of(entry: Json) -> str:
    """Return the name that requests give to a listed model, "" when it has none."""
    names = (entry.get(field) for field in ("id", "name", "model", "model_name"))
    return next((name for name in names if isinstance(name, str) and name), "").removeprefix("models/")


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _to_window(value: object) -> int | None:
    """Return a plausible number of tokens: some servers say 0, or an absurd limit, for "unknown"."""
    return value if type(value) is int and _SMALLEST_WINDOW <= value <= _LARGEST_WINDOW else None


# Servers on this machine

LOCAL_PATIENCE = 3.0
"""Seconds for a server on this machine to accept a connection, and for its model list. A busy machine takes its time; a
port on which nobody listens refuses at once."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ANY_HOST = ("0.0.0.0", "::", "")
# Who owns the models of a server, in its own words.
_TYPE_BY_OWNER: Mapping[str, BackendType] = {"vllm": "vllm", "llamacpp": "llamacpp"}

Address = tuple[BackendType, str]
"""The kind of server that is usually there, and its base URL with /v1."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    type: BackendType
    base_url: str
    models: tuple[ListedModel, ...]

    @property
    def has_usual_address(self) -> bool:
        """A backend of its type finds it without a base_url."""
        return self.base_url == PRESETS[self.type].base_url


def list_usual_addresses(environ: Mapping[str, str]) -> list[Address]:
    """Return where servers usually are, and where OLLAMA_HOST and LLAMA_ARG_PORT put them on this machine."""
    addresses: dict[BackendType, str] = {type_: PRESETS[type_].base_url for type_ in SERVER_NAMES}
    if (ollama := _ollama_address(environ.get("OLLAMA_HOST", ""))) is not None:
        addresses["ollama"] = ollama
    if (port := environ.get("LLAMA_ARG_PORT", "")).isdecimal():
        addresses["llamacpp"] = f"http://localhost:{port}/v1"
    return list(addresses.items())


async def find_local_servers(
    environ: Mapping[str, str], addresses: Sequence[Address] | None = None
) -> list[LocalServer]:
    """Return the servers that run at these addresses, by default the usual ones.

    All are asked at once: that takes half a second when there is no server, 4 seconds at most.
    """
    places = list_usual_addresses(environ) if addresses is None else addresses
    servers = await asyncio.gather(*(_find_server(type_, url, environ) for type_, url in places))
    return [server for server in servers if server is not None]


async def _find_server(type_: BackendType, url: str, environ: Mapping[str, str]) -> LocalServer | None:
    try:
        # By its own type: no key but that of this kind of server is ever sent there.
        endpoint = resolve(BackendConfig(type=type_, model="any", base_url=url), environ)
        models = await list_models(type_, endpoint, LOCAL_PATIENCE)
    except MassmemError:
        return None  # something else listens there, or it wants a key that nobody has set
    # Another server may have taken the usual port; some name themselves as owners of their models.
    owner = next((model.owner for model in models if model.owner in _TYPE_BY_OWNER), "")
    return LocalServer(_TYPE_BY_OWNER.get(owner, type_), url, models)


def _ollama_address(host: str) -> str | None:
    """Return the base URL for OLLAMA_HOST, [http://]HOST[:PORT]; None when it is not on this machine."""
    with suppress(ValueError):
        parts = urlsplit(host if "://" in host else f"http://{host}")
        name = parts.hostname or ""
        if host and parts.scheme == "http" and name in (*_LOOPBACK, *_ANY_HOST):
            shown = "localhost" if name in _ANY_HOST else f"[{name}]" if ":" in name else name
            return f"http://{shown}:{parts.port or 11434}/v1"
    return None
