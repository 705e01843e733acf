"""Models behind one port (base.py). `Providers` opens the one that a backend names."""

import asyncio
import os

from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS, Kind
from massmem.providers.base import ChatProvider, OpenFolder, ProviderFactory
from massmem.providers.endpoints import check_key
from massmem.providers.learnt import LearntModels
from massmem.providers.retry import LocalPauses, Pauses

__all__ = ["Providers", "check_key"]


class Providers:
    """Opens providers. Agents with the same endpoint and key share one HTTP client, those with one file one model."""

    def __init__(
        self, learnt: LearntModels | None = None, pauses: Pauses | None = None, open_folder: OpenFolder | None = None
    ) -> None:
        """learnt: what servers have refused before; None: nothing, and it is forgotten with this object.

        pauses: of endpoints that want no requests; None: only this object's providers know of them.

        open_folder: of agent programs; None: they are allowed nothing that they ask for.
        """
        self._learnt = learnt or LearntModels()
        self._pauses = pauses or LocalPauses()
        self._open_folder = open_folder
        self._factories: dict[Kind, ProviderFactory] = {}
        self._lock = asyncio.Lock()

    async def open(self, backend: BackendConfig) -> ChatProvider:
        """Return a provider that is ready to stream. Loads its library in a thread: the event loop goes on.

        Raises:
            MissingKeyError: at once, before anything is loaded.
            ConfigError: the endpoint, the model or the script is missing or wrong.
            MissingModelError: local only, see massmem.providers.local.
        """
        check_key(backend, os.environ)
        async with self._lock:
            return await asyncio.to_thread(self._open, backend)

    async def close(self) -> None:
        factories = list(self._factories.values())
        self._factories.clear()
        for factory in factories:
            await factory.close()

    def _open(self, backend: BackendConfig) -> ChatProvider:
        kind = PRESETS[backend.type].kind
        if kind not in self._factories:
            self._factories[kind] = self._load_factory(kind)
        return self._factories[kind].open(backend)

    def _load_factory(self, kind: Kind) -> ProviderFactory:
        """Import the adapter: only the libraries that are used get loaded."""
        match kind:
            case "openai":
                from massmem.providers.openai import OpenAIFactory

                return OpenAIFactory(self._learnt, self._pauses)
            case "anthropic":
                from massmem.providers.anthropic import AnthropicFactory

                return AnthropicFactory(self._learnt, self._pauses)
            case "acp":
                from massmem.providers.acp import AcpFactory

                return AcpFactory(self._open_folder)
            case "local":
                from massmem.providers.local import LocalFactory

                return LocalFactory()
            case "scripted":
                from massmem.providers.scripted import ScriptedFactory

                return ScriptedFactory()
