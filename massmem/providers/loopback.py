"""Model servers on this machine, looked for at their usual ports. No other address is ever contacted."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from massmem.config.models import BackendConfig, BackendType
from massmem.errors import MassmemError
from massmem.providers.presets import PRESETS, resolve

if TYPE_CHECKING:
    from massmem.providers.offers import Offered

SERVERS: tuple[BackendType, ...] = ("ollama", "lmstudio", "vllm", "llamacpp")
NAMES: Mapping[BackendType, str] = {
    "ollama": "Ollama", "lmstudio": "LM Studio", "vllm": "vLLM", "llamacpp": "llama.cpp"
}  # fmt: skip

PATIENCE = 3.0
"""Seconds for a server that has answered the door."""

_DOOR = 0.5
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ANYWHERE = ("0.0.0.0", "::", "")
# What the servers say of whom their models are.
_OWNERS: Mapping[str, BackendType] = {"vllm": "vllm", "llamacpp": "llamacpp"}

Place = tuple[BackendType, str]
"""The kind of server that usually is there, and its address with /v1."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    type: BackendType
    base_url: str
    models: "tuple[Offered, ...]"

    @property
    def usual(self) -> bool:
        """It is where a backend of its type looks without a base_url."""
        return self.base_url == PRESETS[self.type].base_url


def places(environ: Mapping[str, str]) -> list[Place]:
    """Where servers usually are, and where OLLAMA_HOST and LLAMA_ARG_PORT put them, as far as that is this machine."""
    found: dict[BackendType, str] = {type_: PRESETS[type_].base_url for type_ in SERVERS}
    if (own := _ollama(environ.get("OLLAMA_HOST", ""))) is not None:
        found["ollama"] = own
    if (port := environ.get("LLAMA_ARG_PORT", "")).isdecimal():
        found["llamacpp"] = f"http://localhost:{port}/v1"
    return list(found.items())


async def local_servers(at: Sequence[Place], environ: Mapping[str, str]) -> list[LocalServer]:
    """The servers that run at these places, asked all at once: half a second when there is none, 4 at most."""
    found = await asyncio.gather(*(_found(type_, url, environ) for type_, url in at))
    return [server for server in found if server is not None]


async def _found(type_: BackendType, url: str, environ: Mapping[str, str]) -> LocalServer | None:
    if not await _open(url):
        return None
    from massmem.providers.offers import offered_models  # an HTTP client, which most machines need not load

    try:
        # By its own type: no key but that of this kind of server is ever sent there.
        endpoint = resolve(BackendConfig(type=type_, model="any", base_url=url), environ)
        offered = await offered_models(type_, endpoint, PATIENCE)
    except MassmemError:
        return None  # something else listens there, or it wants a key that nobody has set
    return LocalServer(_kind(type_, offered), url, offered)


def _kind(usual: BackendType, offered: "Sequence[Offered]") -> BackendType:
    """What runs there; its models say it where another server has taken the port."""
    for model in offered:
        if model.owner in _OWNERS:
            return _OWNERS[model.owner]
    return usual


async def _open(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_DOOR):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _ollama(host: str) -> str | None:
    """OLLAMA_HOST as Ollama reads it: [http://]HOST[:PORT]; None when it is not on this machine."""
    with suppress(ValueError):
        parts = urlsplit(host if "://" in host else f"http://{host}")
        name = parts.hostname or ""
        if host and parts.scheme == "http" and name in (*_LOOPBACK, *_ANYWHERE):
            shown = "localhost" if name in _ANYWHERE else f"[{name}]" if ":" in name else name
            return f"http://{shown}:{parts.port or 11434}/v1"
    return None
