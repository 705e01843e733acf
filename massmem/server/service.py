"""Everything that the routes work with, opened once per process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from massmem.config.models import TeamConfig
from massmem.server.auth import Tokens
from massmem.server.conversations import Conversations
from massmem.server.limits import Limits
from massmem.server.metrics import Metrics
from massmem.server.observed import Observer
from massmem.server.removal import Removal
from massmem.server.takeover import Takeover
from massmem.server.turns import Turns
from massmem.session.team import Team

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    config: TeamConfig
    team: Team
    tokens: Tokens
    limits: Limits
    metrics: Metrics
    conversations: Conversations
    turns: Turns
    removal: Removal

    @property
    def warning(self) -> str:
        """To be said with every answer; no name of a host is in it."""
        return "" if self.team.store.info.durable else "this conversation is held in memory, and ends with the service"


@asynccontextmanager
async def opened(
    config: TeamConfig, others: Mapping[str, TeamConfig], home: Path, *, stopping: asyncio.Event
) -> AsyncGenerator[Service]:
    """Open the service; at the end of the block its turns are finished, or handed over.

    others: further teams by name. stopping: set when the process is told to end, before the block does.

    Raises what keeps it from starting: InputError (no secret, no such key), StoreError, ...
    """
    tokens, limits, metrics = Tokens(config.server.jwt), Limits(config.server.limits), Metrics()
    async with AsyncExitStack() as stack:
        team = await Team.open(config, home=home, fallback=config.server.workers == 1)
        stack.push_async_callback(team.close)
        await team.start()
        teams = {"": team}
        for name, other in others.items():
            teams[name] = team.beside(other)
            stack.push_async_callback(teams[name].close)
            await teams[name].start()
        turns = Turns(teams, limits, Observer(metrics))
        removal = Removal(team, turns)
        service = Service(config, team, tokens, limits, metrics, Conversations(team.store), turns, removal)
        async with _in_background(Takeover(team.store, turns, removal).run()):
            async with _in_background(_hand_over(stopping, turns, config.server.grace)):
                yield service
            await turns.stop(0)


async def _hand_over(stopping: asyncio.Event, turns: Turns, grace: float) -> None:
    await stopping.wait()
    await turns.stop(grace)


@asynccontextmanager
async def _in_background(work: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
