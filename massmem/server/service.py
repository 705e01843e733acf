"""Start-up: opens everything that the routes work with, once per process."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from starlette.datastructures import Address

from massmem.config.models import TeamConfig
from massmem.core.errors import MassmemError, SessionBusyError, StoreUnavailable
from massmem.core.records import EVERYBODY, Everybody, Owner, SessionRecord
from massmem.server.auth import Tokens, User, authenticate
from massmem.server.errors import Expired, Unauthorized
from massmem.server.limits import Limits
from massmem.server.metrics import Metrics
from massmem.server.turns import Turns
from massmem.session.erasure import finish_forgetting
from massmem.session.sessions import Sessions
from massmem.session.team import Team, Teams, start_teams

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
"""Time between two attempts to reach the store."""

_TAKEOVER_SECONDS = 2.0
"""Time between two looks for the work of killed processes, more or less: not all processes look at once."""

_LOOKS_PER_DELETION = 15
"""One in so many looks is also for deletions."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Values alone: worker processes get it by pickle."""

    config: TeamConfig
    """The team, and the service itself."""
    home: Path
    teams: Mapping[str, TeamConfig] = field(default_factory=dict[str, TeamConfig])
    """Further teams, by the names that requests give."""

    page_token: str = ""
    """Lets a browser of this machine's user in, once; empty: the page is for users with a key or token alone."""
    page_file: Path | None = None
    """File with the token, which goes when it is used up."""
    page_key: str = ""
    """In hex: with it browsers that were let in come back after a restart on the same port."""
    first_start: bool = False
    """Nothing is set up: the team is a demonstration, and the page lets its user set one up."""

    @property
    def shutdown_seconds(self) -> int:
        """How long connections may stay open once the process is told to end: as long as turns may, and a bit more."""
        return int(self.config.server.grace) + 5

    @property
    def end_seconds(self) -> float:
        """After so many seconds a process that was told to end is killed; all are gone in `server.grace` + 10 s."""
        return self.config.server.grace + 8.5


@dataclass(frozen=True, slots=True)
class Service:
    settings: Settings
    team: Team
    teams: Teams
    """All teams, also `team`, as DEFAULT_TEAM."""
    tokens: Tokens
    limits: Limits
    metrics: Metrics
    turns: Turns
    must_erase: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: the files of the store may still hold bytes of deleted sessions."""

    @property
    def warning(self) -> str | None:
        """On the store, for every answer; it names no host."""
        if self.team.store.info.durable:
            return None
        return "this conversation is held in memory, and ends with the service"

    async def finish_forgetting(self, owner: Owner | Everybody) -> None:
        """Finish what was to be forgotten of an owner when a process was killed.

        Raises MemoryUnavailable: it is not forgotten yet, and nothing of the owner is to be shown.
        """
        team = self.team
        await finish_forgetting(team.config, team.home, team.store, team.open_durable_memory, owner)

    async def delete_session(self, session: SessionRecord) -> None:
        """Delete the session and what is remembered of it. When that fails half-way, `finish_deletions` goes on.

        Raises SessionBusyError: a turn of it is under way.
        """
        await self.turns.wait_for_end(session.session_id)
        try:
            result = await Sessions.of(self.team, session.owner).delete([session], erases=False)
        except MassmemError as e:
            left = await self.team.store.get_session(session.session_id)
            if left is not None and left.status != "deleting":
                raise
            log.warning("the rest of a deleted session will be erased later: %s", e.message)
        else:
            if result.busy:
                raise SessionBusyError("a question to this session is under way")
        self.must_erase.set()

    async def finish_deletions(self) -> None:
        """Delete what is left of deleted sessions, also of those that another process began."""
        sessions = Sessions.of(self.team, EVERYBODY)
        if (await sessions.delete(await sessions.list_deleting(), erases=False)).sessions:
            self.must_erase.set()
        if self.must_erase.is_set() and await self.team.store.erase_deleted():
            self.must_erase.clear()

    async def authenticate(self, headers: list[str], sender: Address | None) -> User:
        """Return the user that the Authorization headers of a request name.

        Raises as `auth.authenticate`, and RetryLater: the sender has sent too many wrong keys.
        """
        try:
            return await authenticate(headers, self.tokens, self.team.store)
        except Unauthorized as e:
            if e.error == "invalid_token" and not isinstance(e, Expired):
                await self.limits.count_wrong_key("" if sender is None else sender.host)
            raise


@asynccontextmanager
async def open_service(settings: Settings, stopping: asyncio.Event) -> AsyncGenerator[Service]:
    """Open the service for the block; at its end turns are finished, or handed over to another process.

    stopping: set when the process is told to end, before the block ends.

    Raises what keeps the service from starting: InputError (no secret, no key of a model), StoreError, ...
    """
    config = settings.config
    tokens, limits, metrics = Tokens(config.server.jwt), Limits(config.server.limits), Metrics()
    async with AsyncExitStack() as stack:
        fallback, records = config.server.workers == 1, config.server.record
        team = await Team.open(config, home=settings.home, fallback=fallback, records=records, finishes=False)
        stack.push_async_callback(team.close)
        team.memory.report_usage = metrics.count_usage
        for warning in team.take_warnings():
            log.warning("%s", warning)
        teams = Teams(await stack.enter_async_context(start_teams(team, settings.teams)))
        stack.push_async_callback(teams.close)
        turns = Turns(teams, limits, metrics)
        service = Service(settings, team, teams, tokens, limits, metrics, turns)
        async with _run_in_background(_take_over_work(service)):
            async with _run_in_background(_stop_turns(turns, stopping, config.server.grace)):
                yield service
            await turns.stop(0)


@asynccontextmanager
async def keep_service_open(
    settings: Settings, stopping: asyncio.Event, on_open: Callable[[Service], None]
) -> AsyncGenerator[None]:
    """Keep the service open for the block. While its store is unreachable, try again in the background.

    on_open: called once, with the open service.

    Raises as `open_service`, except when the store is unreachable.
    """
    attempted, closing = asyncio.Event(), asyncio.Event()

    async def keep_open() -> None:
        while not closing.is_set():
            try:
                async with open_service(settings, stopping) as service:
                    on_open(service)
                    attempted.set()
                    await closing.wait()
            except StoreUnavailable as e:
                log.error("the store cannot be reached; trying again: %s", e.message)  # noqa: TRY400 - no traceback
            except MassmemError as e:
                if not attempted.is_set():
                    raise
                log.error("the service cannot be opened: %s", e.message)  # noqa: TRY400 - no traceback
            attempted.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(closing.wait(), _RETRY_SECONDS)

    # One task opens and closes the service: some libraries refuse to be closed by another task.
    task = asyncio.create_task(keep_open())
    task.add_done_callback(lambda _: attempted.set())
    await attempted.wait()
    if task.done():
        await task
    try:
        yield
    finally:
        closing.set()
        await task


async def _take_over_work(service: Service) -> None:
    """Finish what killed processes were to forget and to delete, and resume their turns, until cancelled.

    Open the memory, too, once there is something to record.
    """
    looks = 0
    while True:
        work = [partial(service.finish_forgetting, EVERYBODY), service.turns.resume_cut_off]
        work.append(service.team.memory.open_if_due)
        if looks % _LOOKS_PER_DELETION == 0:
            work.append(service.finish_deletions)
        for finish in work:
            try:
                await finish()
            except MassmemError as e:
                log.warning("the work of killed processes cannot be taken over now: %s", e.message)
        looks += 1
        await asyncio.sleep(_TAKEOVER_SECONDS * random.uniform(0.5, 1.5))


async def _stop_turns(turns: Turns, stopping: asyncio.Event, grace: float) -> None:
    await stopping.wait()
    await turns.stop(grace)


@asynccontextmanager
async def _run_in_background(work: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
