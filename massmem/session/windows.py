"""The context windows of a team's models: asked of their servers once, for all sessions of a process."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from massmem.config.models import AgentConfig, BackendConfig
from massmem.memory import tokens
from massmem.memory.tokens import Buffer
from massmem.providers.learnt import LearntModels
from massmem.providers.presets import resolve
from massmem.providers.windows import ContextWindow, find_window
from massmem.turn.compressor import TokenMeter

_LOADED_ON_DEMAND = ("ollama", "lmstudio")
"""Servers that know a model's window once they have loaded it."""


class Windows:
    def __init__(self, agents: Sequence[AgentConfig], learnt: LearntModels) -> None:
        """learnt: what is known of windows from earlier refusals."""
        self._agents = tuple(agents)
        self._learnt = learnt
        self._asking: asyncio.Task[dict[str, ContextWindow]] | None = None

    def start(self) -> None:
        """Begin to ask the servers for their windows and to load the vocabulary; return at once."""
        self._asking = asyncio.create_task(self._ask())

    async def create_meters(self) -> dict[str, TokenMeter]:
        """Return a meter for each agent, by its id, for one session to learn with."""
        if self._asking is None:
            self.start()
        assert self._asking is not None  # set by start
        windows = await asyncio.shield(self._asking)
        return {agent.id: self._create_meter(agent.backend, windows[agent.id]) for agent in self._agents}

    async def ask_again(self, meters: dict[str, TokenMeter]) -> None:
        """Ask servers that had not loaded their models before the first turn."""
        for agent in self._agents:
            meter = meters[agent.id]
            if meter.assumed and agent.backend.type in _LOADED_ON_DEMAND:
                window = await find_window(agent.backend, os.environ, self._learnt)
                meter.window, meter.assumed = window.tokens, window.source == "assumed"
                if self._asking is not None:
                    (await asyncio.shield(self._asking))[agent.id] = window

    async def close(self) -> None:
        """End what still runs."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking

    async def _ask(self) -> dict[str, ContextWindow]:
        """Agents with the same model at the same endpoint have the same window, which is asked for once."""
        backends = {_model_key(agent.backend): agent.backend for agent in self._agents}
        asking = asyncio.gather(*(find_window(backend, os.environ, self._learnt) for backend in backends.values()))
        answers, _ = await asyncio.gather(asking, tokens.load(backends.values()))
        windows = dict(zip(backends, answers, strict=True))
        return {agent.id: windows[_model_key(agent.backend)] for agent in self._agents}

    def _create_meter(self, backend: BackendConfig, window: ContextWindow) -> TokenMeter:
        def remember(size: int) -> None:
            if backend.type not in ("local", "scripted"):
                self._learnt.remember_window(resolve(backend, os.environ), size)

        buffer = Buffer(tokens.counter_for(backend))
        return TokenMeter(window.tokens, buffer, assumed=window.source == "assumed", remember=remember)


def _model_key(backend: BackendConfig) -> tuple[object, ...]:
    script = (backend.script or {}).get("context_window")
    return backend.type, backend.model, backend.base_url, backend.context_window, script
