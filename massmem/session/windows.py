"""How much the agents' models read: asked of their servers once, for all sessions of a process."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from massmem.config.models import AgentConfig, BackendConfig
from massmem.memory import tokens
from massmem.memory.buffer import Buffer
from massmem.providers.windows import ContextWindow, context_window
from massmem.turn.meter import Meter

_LOAD_LATE = ("ollama", "lmstudio")


class Windows:
    def __init__(self, agents: Sequence[AgentConfig]) -> None:
        self._agents = tuple(agents)
        self._found: asyncio.Task[dict[str, ContextWindow]] | None = None

    def start(self) -> None:
        """Begin to ask the servers for their windows and to load the vocabulary; returns at once."""
        self._found = asyncio.create_task(self._ask())

    async def meters(self) -> dict[str, Meter]:
        """A meter for each agent, by its id, for one session to learn with."""
        if self._found is None:
            self.start()
        assert self._found is not None  # made by start
        windows = await asyncio.shield(self._found)
        return {agent.id: _meter(agent.backend, windows[agent.id]) for agent in self._agents}

    async def ask_again(self, meters: dict[str, Meter]) -> None:
        """A server that had not loaded its model before the first turn can say now how much that reads."""
        for agent in self._agents:
            meter = meters[agent.id]
            if meter.assumed and agent.backend.type in _LOAD_LATE:
                window = await context_window(agent.backend, os.environ)
                meter.window, meter.assumed = window.tokens, window.source == "assumed"
                if self._found is not None:
                    (await asyncio.shield(self._found))[agent.id] = window

    async def close(self) -> None:
        """End what still runs."""
        if self._found is not None:
            self._found.cancel()
            with suppress(asyncio.CancelledError):
                await self._found

    async def _ask(self) -> dict[str, ContextWindow]:
        """Agents with the same model at the same place have the same window, which is asked for once."""
        places = {_served_by(agent.backend): agent.backend for agent in self._agents}
        asked = asyncio.gather(*(context_window(backend, os.environ) for backend in places.values()))
        found, _ = await asyncio.gather(asked, tokens.load(places.values()))
        windows = dict(zip(places, found, strict=True))
        return {agent.id: windows[_served_by(agent.backend)] for agent in self._agents}


def _served_by(backend: BackendConfig) -> tuple[object, ...]:
    script = (backend.script or {}).get("context_window")
    return backend.type, backend.model, backend.base_url, backend.context_window, script


def _meter(backend: BackendConfig, window: ContextWindow) -> Meter:
    return Meter(window.tokens, Buffer(tokens.counter_for(backend)), assumed=window.source == "assumed")
