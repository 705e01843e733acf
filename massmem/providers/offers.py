"""The models that a server offers. To ask for them is also the cheapest way to try an address and a key."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import httpx2  # noqa: TID253 - loaded with this module only, for commands that look at servers

from massmem.config.models import BackendType
from massmem.errors import MalformedResponse, ProviderTimeout
from massmem.providers.failures import Source, complaint
from massmem.providers.http import HTTP_ERRORS, http_client, kind_of
from massmem.providers.presets import PRESETS, Endpoint
from massmem.providers.window_server import WINDOW_FIELDS, asked_window, listed, window_of
from massmem.providers.window_table import table_window

PATIENCE = 10.0
"""Seconds for a list: some providers of many models need a few."""

_LONGEST_REPLY = 16_000_000
_MOST = 2_000
_AT_ONCE = 8
# Their lists name no windows; each model is asked for by itself.
_ASKED_ONE_BY_ONE = ("ollama", "lmstudio", "llamacpp")
_NO_CHAT = re.compile(r"embed|rerank|(^|[/-])bge-|minilm|whisper|(^|[/-])(tts|e5|clip|dall-e|sora)-", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Offered:
    """A model. window: tokens that it reads, None where nobody says. owner: whoever the server says it is of."""

    name: str
    window: int | None = None
    owner: str = ""

    @property
    def chats(self) -> bool:
        """Judged by its name: embedding and speech models stand in the same lists."""
        return _NO_CHAT.search(self.name) is None


async def offered_models(type_: BackendType, endpoint: Endpoint, patience: float = PATIENCE) -> tuple[Offered, ...]:
    """What the server at the endpoint offers, as it lists it.

    patience: seconds for the list. endpoint.model is not looked at.

    Raises:
        AuthenticationError: the key is refused.
        ModelNotFound: the server keeps no list.
        ProviderError: it cannot be reached, or replies with something else.
    """
    source = Source(type_, "list of models", endpoint.key)
    try:
        async with asyncio.timeout(patience), await asyncio.to_thread(http_client, endpoint) as client:
            found = await _listed(_Asker(client, type_, endpoint, source))
    except TimeoutError as e:
        raise source.error(ProviderTimeout, f"no answer in {patience:g} s") from e
    except tuple(HTTP_ERRORS) as e:
        kind = kind_of(e, HTTP_ERRORS)
        raise source.error(kind, str(e) or type(e).__name__) from e
    return await _with_windows(type_, endpoint, found[:_MOST])


@dataclass(frozen=True, slots=True)
class _Asker:
    client: httpx2.AsyncClient
    type: BackendType
    endpoint: Endpoint
    source: Source

    async def get(self, path: str) -> Mapping[str, Any]:
        """path: below the base address of the protocol, /v1 included. Raises ProviderError."""
        anthropic = PRESETS[self.type].kind == "anthropic"
        base = f"{self.endpoint.base_url.removesuffix('/v1')}/v1" if anthropic else self.endpoint.base_url
        key = self.endpoint.key
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"} if anthropic else {}
        headers = headers or {"authorization": f"Bearer {key}"}
        async with self.client.stream("GET", base + path, headers=headers, timeout=PATIENCE) as reply:
            data = bytearray()
            async for chunk in reply.aiter_bytes():
                data += chunk
                if len(data) > _LONGEST_REPLY:
                    raise self.source.error(MalformedResponse, "the list is longer than any")
        try:
            body: object = json.loads(data)
        except ValueError:
            body = data[:1_000].decode("utf-8", "replace")
        if reply.status_code != 200:
            raise complaint(reply.status_code, body).error(self.source)
        if not isinstance(body, dict):
            raise self.source.error(MalformedResponse, "no JSON object")
        return cast("Mapping[str, Any]", body)


async def _listed(asker: _Asker) -> list[Offered]:
    if asker.type == "openrouter":
        await asker.get("/key")  # its list is shown to everybody; this is not
    anthropic = PRESETS[asker.type].kind == "anthropic"
    body = await asker.get("/models?limit=1000" if anthropic else "/models")
    if "data" not in body:
        raise asker.source.error(MalformedResponse, "no list of models")
    return list(_entries(body))


def _entries(body: Mapping[str, Any]) -> Iterator[Offered]:
    for entry in listed(body):
        name = entry.get("id")
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 300:
            window = next((tokens for key in WINDOW_FIELDS if (tokens := window_of(entry.get(key)))), None)
            yield Offered(name.removeprefix("models/"), window, str(entry.get("owned_by") or ""))


async def _with_windows(type_: BackendType, endpoint: Endpoint, models: list[Offered]) -> tuple[Offered, ...]:
    if type_ not in _ASKED_ONE_BY_ONE:
        return tuple(replace(m, window=m.window or table_window(m.name)) for m in models)
    one_of = asyncio.Semaphore(_AT_ONCE)

    async def asked(model: Offered) -> Offered:
        async with one_of:
            return replace(model, window=await asked_window(type_, replace(endpoint, model=model.name)))

    return tuple(await asyncio.gather(*map(asked, models)))
