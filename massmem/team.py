"""A configuration that was opened: its store, its memory and its models, shared by any number of sessions."""

import os
from pathlib import Path
from typing import Self

from massmem.config.load import resolve_agents
from massmem.config.models import TeamConfig
from massmem.home import make_home
from massmem.providers import Providers, check_key
from massmem.providers.base import ChatProvider
from massmem.recall import SessionMemory
from massmem.store import open_configured
from massmem.store.base import SessionStore
from massmem.windows import Windows

RECORD_AT_EXIT = 3.0
"""Seconds for which closing waits for memories; what is left then is recorded by the next run."""


class Team:
    """Made by `Team.open`, ready after `start`.

    chat: the agents' models, by the agents' ids. windows: what their models read.
    """

    def __init__(self, config: TeamConfig, home: Path, store: SessionStore, memory: SessionMemory) -> None:
        self.config = config
        self.home = home
        self.store = store
        self.memory = memory
        self.agents = resolve_agents(config, os.environ)
        self.chat: dict[str, ChatProvider] = {}
        self.windows = Windows(self.agents)
        self._providers = Providers()
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
            MissingKeyError, HomeError, InputError: see there.
            StoreError: the store cannot be used.
        """
        _check_keys(config)
        make_home(home)
        store = await open_configured(config.store, home, fallback=fallback)
        agents = resolve_agents(config, os.environ)
        memory = config.memory if store.info.durable else config.memory.model_copy(update={"enabled": False})
        return cls(config, home, store, SessionMemory(memory, home, store, agents, debug))

    def beside(self, config: TeamConfig) -> Self:
        """Another team on the same store and memory, whose own settings for them do not count; closed before this one.

        Raises MissingKeyError.
        """
        _check_keys(config)
        guest = type(self)(config, self.home, self.store, self.memory)
        guest._guest = True
        return guest

    def warnings(self) -> list[str]:
        """What is to be said of the store with this answer."""
        info, told = self.store.info, self._told
        self._told = True
        return [*([info.always] if info.always else []), *(() if told else info.once)]

    async def start(self) -> None:
        """Open the models; begin to open the memory and to ask for windows.

        Raises MissingKeyError, MissingModelError, ConfigError: see Providers.open.
        """
        for agent in self.agents:
            self.chat[agent.id] = await self._providers.open(agent.backend)
        if not self._guest:
            self.memory.start()
        self.windows.start()

    async def close(self) -> None:
        """Record for a moment what is still to be remembered, and let go of everything."""
        await self.windows.close()
        if not self._guest:
            await self.memory.close(RECORD_AT_EXIT)
        await self._providers.close()
        if not self._guest:
            await self.store.close()


def _check_keys(config: TeamConfig) -> None:
    for agent in config.agents:
        check_key(agent.backend, os.environ)
