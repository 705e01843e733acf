"""A configuration that was opened: its store, its memory and its models, shared by any number of sessions."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from massmem.config.home import make_home
from massmem.config.load import resolve_agents
from massmem.config.models import NO_STORE, AgentConfig, TeamConfig
from massmem.core.errors import InputError
from massmem.providers import Providers, check_key
from massmem.providers.base import ChatProvider
from massmem.recording.forgetting import open_durable_memory
from massmem.session.lease import ProcessLock
from massmem.session.recall import SessionMemory
from massmem.session.windows import Windows
from massmem.store import open_configured
from massmem.store.ports import SessionStore
from massmem.telemetry.spans import Tracer, open_tracer
from massmem.telemetry.stages import Stages
from massmem.tools.toolbox import Toolboxes

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

RECORD_AT_EXIT = 3.0
"""Seconds for which closing waits for memories; what is left then is recorded by the next run."""


class Team:
    """Made by `Team.open`, ready after `start`.

    chat: the agents' models, by the agents' ids. windows: what their models read.
    tools: what they may call. tracer, stages: who is told of turns, where the configuration wants it.
    process: who owns sessions here.
    """

    def __init__(self, config: TeamConfig, home: Path, store: SessionStore, memory: SessionMemory) -> None:
        self.config = config
        self.home = home
        self.store = store
        self.memory = memory
        self.agents = resolve_agents(config, os.environ)
        self.chat: dict[str, ChatProvider] = {}
        self._pricing: asyncio.Task[bool] | None = None
        self.windows = Windows(self.agents)
        self.tools = Toolboxes(self.agents)
        written = config.store.url != NO_STORE
        self.stages = Stages(config.telemetry.stages if written else None, config.telemetry.redact)
        self.tracer = Tracer({})
        self._tracing = ExitStack()
        self._providers = Providers()
        # What is in the memory of this process is nobody else's.
        self.process = ProcessLock(home if store.info.durable else None)
        self._guest = False
        self._told = False

    @classmethod
    async def open(
        cls, config: TeamConfig, *, home: Path, debug: Path | None = None, fallback: bool = False
    ) -> Self:  # fmt: skip
        """Check the keys and open the store. home: the folder for massmem's own files, made when missing.

        debug: a folder for debug files of what is remembered; None: none are written. fallback: only new sessions are
        wanted, so that they may be held in memory when Redis is down; nothing is remembered of them.

        Raises:
            MissingKeyError, HomeError, InputError: see there; also when the program of a tool server is not there.
            StoreError: the store cannot be used.
        """
        _check_keys(config)
        Toolboxes(config.agents).check()
        if config.store.url != NO_STORE:
            make_home(home)
        store = await open_configured(config.store, home, fallback=fallback)
        agents = resolve_agents(config, os.environ)
        memory = config.memory if store.info.durable else config.memory.model_copy(update={"enabled": False})
        return cls(config, home, store, SessionMemory(memory, home, store, agents, debug))

    def beside(self, config: TeamConfig) -> Self:
        """Another team on the same store and memory, whose own settings for them do not count; closed before this one.

        Raises MissingKeyError, InputError.
        """
        _check_keys(config)
        Toolboxes(config.agents).check()
        guest = type(self)(config, self.home, self.store, self.memory)
        guest._guest = True
        guest.process = self.process
        return guest

    def take_warnings(self) -> list[str]:
        """Return what the user should know of the store and of tools with this answer; some of it only once."""
        info, told = self.store.info, self._told
        self._told = True
        return [*([info.always] if info.always else []), *(() if told else info.once), *self.tools.take_notices()]

    @asynccontextmanager
    async def open_durable_memory(self) -> AsyncGenerator["IndexedMemory"]:
        """The memory, to search and change; opened for the block when this team does not have it open.

        Raises:
            MemoryUnavailable: another process has it, or its server is away.
        """
        memory = await self.memory.opened()
        if memory is not None:
            yield memory
            return
        async with open_durable_memory(self.config.memory, self.home) as memory:
            yield memory

    async def start(self) -> None:
        """Open the models; begin to open the memory, to start tool servers and to ask for windows.

        Raises:
            MissingKeyError, MissingModelError, ConfigError: see Providers.open.
            InputError: the costs of a turn are limited, and nobody knows a model's price; or spans are wanted without
                the package that sends them.
        """
        spans = open_tracer({agent.id: agent for agent in self.agents}, enabled=self.config.telemetry.otel)
        self.tracer = self._tracing.enter_context(spans)
        self.tools.start()
        for agent in self.agents:
            self.chat[agent.id] = await self._providers.open(agent.backend)
        if self.config.coordination.max_cost is not None:
            await asyncio.to_thread(_check_prices, self.agents, self.chat)
        # Beside the first request, which takes longer: it loads the list of prices.
        self._pricing = asyncio.create_task(asyncio.to_thread(_all_known, self.chat))
        if not self._guest:
            self.memory.start()
        self.windows.start()

    async def close(self) -> None:
        """Record for a moment what is still to be remembered, and let go of everything."""
        await asyncio.to_thread(self._tracing.close)
        if self._pricing is not None:
            await self._pricing
        await asyncio.gather(self.tools.close(), self.windows.close())
        if not self._guest:
            await self.memory.close(RECORD_AT_EXIT)
        await self._providers.close()
        if not self._guest:
            self.process.close()
            await self.store.close()


def _all_known(chat: Mapping[str, ChatProvider]) -> bool:
    return all(provider.price.is_known for provider in chat.values())


def _check_prices(agents: Sequence[AgentConfig], chat: Mapping[str, ChatProvider]) -> None:
    unknown = [agent for agent in agents if not chat[agent.id].price.is_known]
    if unknown:
        models = ", ".join(f"{agent.id} ({agent.backend.type} {agent.backend.model or 'default'})" for agent in unknown)
        raise InputError(
            f"the cost of a turn cannot be limited: the price is not known for {models}",
            "give the agent's backend.price in the configuration, or limit tokens instead: --max-tokens N",
        )


def _check_keys(config: TeamConfig) -> None:
    for agent in config.agents:
        check_key(agent.backend, os.environ)
