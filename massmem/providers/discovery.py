"""Model servers on this machine, looked for at their usual ports. No other address is ever contacted."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from massmem.config.models import BackendConfig, BackendType
from massmem.core.errors import MassmemError
from massmem.providers.presets import PRESETS, resolve

if TYPE_CHECKING:
    from massmem.providers.model_list import ListedModel

SERVER_NAMES: Mapping[BackendType, str] = {
    "ollama": "Ollama", "lmstudio": "LM Studio", "vllm": "vLLM", "llamacpp": "llama.cpp"
}  # fmt: skip

LIST_PATIENCE = 3.0
"""Seconds for the model list of a server that accepts connections."""

_CONNECT_PATIENCE = 0.5
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ANY_HOST = ("0.0.0.0", "::", "")
# Who owns the models of a server, in its own words.
_TYPE_BY_OWNER: Mapping[str, BackendType] = {"vllm": "vllm", "llamacpp": "llamacpp"}

Address = tuple[BackendType, str]
"""The kind of server that is usually there, and its base URL with /v1."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server that runs on this machine."""

    type: BackendType
    base_url: str
    models: "tuple[ListedModel, ...]"

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
    if not await _is_open(url):
        return None
    from massmem.providers.model_list import list_models  # an HTTP client, which most machines need not load

    try:
        # By its own type: no key but that of this kind of server is ever sent there.
        endpoint = resolve(BackendConfig(type=type_, model="any", base_url=url), environ)
        models = await list_models(type_, endpoint, LIST_PATIENCE)
    except MassmemError:
        return None  # something else listens there, or it wants a key that nobody has set
    # Another server may have taken the usual port; some name themselves as owners of their models.
    owner = next((model.owner for model in models if model.owner in _TYPE_BY_OWNER), "")
    return LocalServer(_TYPE_BY_OWNER.get(owner, type_), url, models)


async def _is_open(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_CONNECT_PATIENCE):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _ollama_address(host: str) -> str | None:
    """Return the base URL for OLLAMA_HOST, [http://]HOST[:PORT]; None when it is not on this machine."""
    with suppress(ValueError):
        parts = urlsplit(host if "://" in host else f"http://{host}")
        name = parts.hostname or ""
        if host and parts.scheme == "http" and name in (*_LOOPBACK, *_ANY_HOST):
            shown = "localhost" if name in _ANY_HOST else f"[{name}]" if ":" in name else name
            return f"http://{shown}:{parts.port or 11434}/v1"
    return None
