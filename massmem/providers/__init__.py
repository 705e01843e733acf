"""Models behind one port (base.py): opens the one that a backend names."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from massmem.config.models import BackendConfig
from massmem.loading import without_collections
from massmem.providers.base import ChatProvider
from massmem.providers.presets import PRESETS, Kind, check_key

if TYPE_CHECKING:
    from massmem.providers.anthropic import AnthropicClients
    from massmem.providers.local import LocalRuntimes
    from massmem.providers.openai import OpenAIClients
    from massmem.providers.scripted import ScriptedClients

    Clients = AnthropicClients | LocalRuntimes | OpenAIClients | ScriptedClients

__all__ = ["Providers", "check_key"]


class Providers:
    """Opens the provider that a backend names; one HTTP client per endpoint and key, shared by all agents."""

    def __init__(self) -> None:
        self._clients: dict[Kind, Clients] = {}
        self._lock = asyncio.Lock()

    async def open(self, backend: BackendConfig) -> ChatProvider:
        """A provider that is ready to stream. Loads its library first, in a thread, so that the event loop goes on.

        Raises:
            MissingKeyError: at once, before anything is loaded.
            ConfigError: the endpoint, the model or the script is missing or wrong.
            MissingModelError: local only, see massmem.providers.local.
        """
        check_key(backend, os.environ)
        async with self._lock:
            return await asyncio.to_thread(self._open, backend)

    async def close(self) -> None:
        """Close all connections and unload models."""
        clients = list(self._clients.values())
        self._clients.clear()
        for each in clients:
            await each.close()

    def _open(self, backend: BackendConfig) -> ChatProvider:
        kind = PRESETS[backend.type].kind
        if kind not in self._clients:
            with without_collections():
                self._clients[kind] = _OPENERS[kind]()
        return self._clients[kind].open(backend)


def _openai() -> "OpenAIClients":
    from massmem.providers.openai import OpenAIClients

    return OpenAIClients()


def _anthropic() -> "AnthropicClients":
    from massmem.providers.anthropic import AnthropicClients

    return AnthropicClients()


def _local() -> "LocalRuntimes":
    from massmem.providers.local import LocalRuntimes

    return LocalRuntimes()


def _scripted() -> "ScriptedClients":
    from massmem.providers.scripted import ScriptedClients

    return ScriptedClients()


_OPENERS: Mapping[Kind, "Callable[[], Clients]"] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "local": _local,
    "scripted": _scripted,
}
