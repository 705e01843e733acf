"""An open configuration: its store, memory, models and tools, shared by any number of sessions."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from massmem.config.calibrations import find_calibration, read_calibration
from massmem.config.home import make_home
from massmem.config.load import load_config, load_default, resolve_agents
from massmem.config.models import NO_STORE, AgentConfig, BackendConfig, TeamConfig
from massmem.core.errors import InputError, MassmemError
from massmem.core.events import TurnResumed, TurnStarted
from massmem.core.records import EVERYBODY, SessionRecord
from massmem.core.text import one_line
from massmem.core.verdict import Calibration
from massmem.memory import tokens
from massmem.memory.tokens import Buffer
from massmem.providers import Providers, check_key
from massmem.providers.base import ChatProvider
from massmem.providers.endpoints import resolve
from massmem.providers.learnt import LearntModels
from massmem.providers.retry import LocalPauses, Pauses
from massmem.providers.weights import has_few_weights
from massmem.providers.windows import ContextWindow, ask_served_window, find_window
from massmem.recording.forgetting import open_durable_memory
from massmem.session.lease import ProcessLock
from massmem.session.recall import SessionMemory
from massmem.session.registry import FORGETTING, require_database
from massmem.store import open_configured, open_pauses
from massmem.store.ports import SessionStore
from massmem.telemetry import Stages, Tracer, open_tracer
from massmem.tools.toolbox import Toolboxes, read_text_file
from massmem.turn.compressor import TokenMeter

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

RECORD_AT_EXIT = 3.0
"""Seconds for which closing waits for memories; what is left then is recorded by the next run."""


DEFAULT_TEAM = ""
"""The name of the first of several teams on one store."""


class Team:
    """Create it with `Team.open`; it is ready after `start`."""

    def __init__(
        self,
        config: TeamConfig,
        home: Path,
        store: SessionStore,
        memory: SessionMemory,
        pauses: Pauses | None = None,
    ) -> None:
        """pauses: of models that want no requests; None: those of this process."""
        self.config = config
        self.home = home
        self.store = store
        self.memory = memory
        self.agents = resolve_agents(config, os.environ)
        self.chat: dict[str, ChatProvider] = {}
        """The agents' models, by agent id."""
        self.fallbacks: dict[str, list[ChatProvider]] = {}
        """Those that stand in, by agent id, in the order of `backend.fallback`."""
        own_folder = home if config.store.url != NO_STORE else None
        learnt = LearntModels(own_folder)
        self.windows = Windows(self.agents, learnt)
        self.tools = Toolboxes(self.agents, own_folder, agents_file=config.files.agents_file)
        stages_file = config.telemetry.stages if config.store.url != NO_STORE else None
        self.stages = Stages(stages_file, config.telemetry.redact)
        self.tracer = Tracer({})
        # No other process can use a store that is held in memory.
        self.process = ProcessLock(home if store.info.durable else None)
        self._tracing = ExitStack()
        self._pauses = pauses or LocalPauses()
        self._providers = Providers(learnt, self._pauses, read_text_file)
        self._is_guest = False
        self._warned = False
        self._calibration_file = find_calibration(home, config)
        self._misses_calibration = False
        """The user knows that there is none."""

    @classmethod
    async def open(
        cls,
        config: TeamConfig,
        *,
        home: Path,
        debug: Path | None = None,
        fallback: bool = False,
        records: bool = True,
        finishes: bool = True,
    ) -> Self:
        """Check the keys and open the store.

        home: the folder for massmem's own files, created when missing. debug: a folder for debug files of the memory;
        None: none are written. fallback: all sessions will be new ones, so that they may be held in memory when Redis
        is down; nothing is remembered of them. records: False: workers turn messages into memories. finishes: False:
        whoever shows something later finishes what was to be forgotten when a process was killed.

        Raises:
            MissingKeyError, HomeError: see there.
            InputError: the program of a tool server, the package for tools, or a folder is missing.
            StoreError: the store cannot be used.
            MemoryUnavailable: what was to be forgotten is not forgotten yet.
        """
        _check_agents(config)
        if config.store.url != NO_STORE:
            make_home(home)
        await asyncio.to_thread(require_database, home, config.store.url)
        store = await open_configured(config.store, home, fallback=fallback)
        if finishes and (home / FORGETTING).exists():
            from massmem.session.erasure import finish_forgetting

            try:
                await finish_forgetting(
                    config, home, store, partial(open_durable_memory, config.memory, home), EVERYBODY
                )
            except BaseException:
                await store.close()
                raise
        agents = resolve_agents(config, os.environ)
        memory = config.memory if store.info.durable else config.memory.model_copy(update={"enabled": False})
        pauses = await asyncio.to_thread(open_pauses, config.server.limits.counted_in)
        remembered = SessionMemory(memory, home, store, agents, debug, records=records)
        remembered.limits = config.coordination
        return cls(config, home, store, remembered, pauses)

    def with_config(self, config: TeamConfig, store: SessionStore | None = None) -> Self:
        """Return another team on this team's memory, and on this team's store or another one; close it before this one.

        The settings of `config` for store and memory do not count.

        Raises MissingKeyError, InputError.
        """
        _check_agents(config)
        guest = type(self)(config, self.home, store or self.store, self.memory, self._pauses)
        guest._is_guest = True
        if store is None:
            guest.process = self.process
        return guest

    def take_warnings(self) -> list[str]:
        """Return what the user should know of the store and of tools with this answer; some of it only once."""
        info, first = self.store.info, not self._warned
        self._warned = True
        once = [*info.once, self.config.note] if first else []
        return [*filter(None, (info.always, *once)), *self.tools.take_notices()]

    async def load_calibration(self) -> tuple[Calibration | None, list[str]]:
        """Return how often the team was right, None when nobody knows, and what the user should know of that.

        The file is read for every turn: a team may be open for weeks. What is missing is said once.
        """
        try:
            if self._calibration_file.exists():
                return await asyncio.to_thread(read_calibration, self._calibration_file), []
        except InputError as e:
            return None, [f"{e.message}: {e.hint}"]
        first, self._misses_calibration = not self._misses_calibration, True
        return None, self._explain_missing_calibration() if first else []

    def _explain_missing_calibration(self) -> list[str]:
        settings, path = self.config.coordination, self.config.path or "TEAM"
        uses = {"max_error": settings.max_error is not None, "weights": settings.weights == "measured"}
        keys = " and ".join(f"coordination.{key}" for key, is_set in uses.items() if is_set)
        rest = f"agreement alone counts, and every voice the same; massmem eval DATA --config {path} --calibrate"
        return [f"{keys}: this team has no calibration. Until then {rest}"] if keys else []

    @asynccontextmanager
    async def open_durable_memory(self) -> AsyncGenerator["IndexedMemory"]:
        """Yield the memory, to search and change; open it for the block when this team does not have it open.

        Raises MemoryUnavailable: another process has it, or its server is away.
        """
        memory = await self.memory.wait_until_open()
        if memory is not None:
            yield memory
            return
        async with open_durable_memory(self.config.memory, self.home) as memory:
            yield memory

    async def start(self) -> None:
        """Open the models; begin to open the memory, to start tool servers and to ask for windows.

        Raises:
            MissingKeyError, MissingModelError, ConfigError: see Providers.open.
            InputError: the cost of a turn is limited and the price of a model is unknown; or the package that sends
                telemetry is missing.
        """
        spans = open_tracer({agent.id: agent for agent in self.agents}, enabled=self.config.telemetry.otel)
        self.tracer = self._tracing.enter_context(spans)
        self.tools.start()
        for agent in self.agents:
            self.chat[agent.id] = await self._providers.open(agent.backend)
            self.fallbacks[agent.id] = [await self._providers.open(model) for model in agent.backend.fallbacks]
        if self.config.coordination.max_cost is not None:
            await asyncio.to_thread(_check_prices, self.agents, self.chat, self.fallbacks)
        if not self._is_guest:
            self.memory.start(self._pauses)
        self.windows.start()

    async def close(self) -> None:
        """Record for a few seconds what is still queued, then close everything."""
        await asyncio.to_thread(self._tracing.close)
        await asyncio.gather(self.tools.close(), self.windows.close())
        if not self._is_guest:
            await self.memory.close(RECORD_AT_EXIT)
        await self._providers.close()
        if not self._is_guest:
            self.process.close()
            await self._pauses.close()
            await self.store.close()


@asynccontextmanager
async def start_teams(team: Team, others: Mapping[str, TeamConfig]) -> AsyncGenerator[dict[str, Team]]:
    """Start an open team, and others on its store and memory, for the block; yield all by name.

    Raises as `Team.start`.
    """
    async with AsyncExitStack() as stack:
        await team.start()
        named = {DEFAULT_TEAM: team}
        for name, config in others.items():
            named[name] = team.with_config(config)
            stack.push_async_callback(named[name].close)
            await named[name].start()
        yield named


def find_team(teams: Mapping[str, Team], path: str) -> Team | None:
    """Return the team with this configuration; None when there is none. teams: by name."""
    return next((team for team in teams.values() if team.config.path == path), None)


@dataclass(frozen=True, slots=True)
class NextTeam:
    config: TeamConfig
    agents: Sequence[AgentConfig]
    former: tuple[str, ...] = ()
    """Names of the agents of the last turn when one of them is not in this team."""
    reason: str = ""
    """Why the team with which the session began does not go on; empty: it does."""

    @property
    def note(self) -> str:
        """For the user, before the next question; empty: the same team goes on."""
        if not (self.former or self.reason):
            return ""
        names = ", ".join(agent.display_name for agent in self.agents)
        former = f" (so far: {', '.join(self.former)})" if self.former else ""
        return f"Another team answers from here on: {names}{former}. {self.reason}".strip()


class Teams:
    """The teams of a service, and those with which this machine's user began conversations elsewhere."""

    def __init__(self, named: Mapping[str, Team]) -> None:
        """named: by the names that requests give, with DEFAULT_TEAM; all on one store."""
        self.named = named
        self.store = named[DEFAULT_TEAM].store
        self._guests: dict[str, Team] = {}
        """By the paths of their configurations."""
        self._opening = asyncio.Lock()

    async def choose(self, name: str | None, session: SessionRecord | None) -> Team:
        """Return the team with this name, else the session's own, else the default one; the session has it from now on.

        Raises InputError: there is no such team; and as `Team.start`.
        """
        if name is not None and name not in self.named:
            raise InputError("there is no such team", "name one of server.teams")
        default = self.named[name or DEFAULT_TEAM]
        team = await self.find(session) if name is None and session is not None else default
        if session is not None and session.config_path != team.config.path:
            await self.store.update_session(session.session_id, config_path=team.config.path)
        return team

    async def find(self, session: SessionRecord) -> Team:
        """Return the team that answers next: the one so far, if it can be asked, else the default one.

        Raises as `Team.start`.
        """
        config, _ = await self._choose(session)
        if (team := find_team(self.named, config.path)) is not None:
            return team
        async with self._opening:
            if config.path not in self._guests:
                team = self.named[DEFAULT_TEAM].with_config(config)
                await team.start()
                self._guests[config.path] = team
            return self._guests[config.path]

    async def describe_next(self, session: SessionRecord) -> NextTeam:
        """Return who answers next, and what changes with it; nothing is opened for that. Raise StoreError."""
        config, reason = await self._choose(session)
        agents = resolve_agents(config, os.environ)
        last, names = await self._read_last_agents(session.session_id)
        if set(last) <= {agent.id for agent in agents}:
            # The file of a service may have moved.
            return NextTeam(config, agents, reason=reason if session.user_id is None else "")
        return NextTeam(config, agents, tuple(names.get(agent, agent) for agent in last), reason)

    async def close(self) -> None:
        """Close the teams that were opened for single conversations."""
        await asyncio.gather(*(team.close() for team in self._guests.values()))

    async def _choose(self, session: SessionRecord) -> tuple[TeamConfig, str]:
        """Return the team so far, or the default one and why."""
        path, default = session.config_path, self.named[DEFAULT_TEAM].config
        team = find_team(self.named, path)
        if team is None and session.user_id is None:
            team = self._guests.get(path)
        if team is not None or not path:
            return team.config if team else default, ""
        if session.user_id is not None:
            return default, "The team that answered so far is not offered any more."
        if not await asyncio.to_thread(Path(path).is_file):
            return default, f"{path}, with which this conversation began, is not there."
        try:
            return await asyncio.to_thread(self._load, path), ""
        except MassmemError as e:
            return default, f"{path}, with which this conversation began, cannot be used: {one_line(e.message)}."

    def _load(self, path: str) -> TeamConfig:
        """Load and check a configuration. massmem's choice when none was named also sets the models of an example."""
        chosen = load_default(os.environ, self.named[DEFAULT_TEAM].home).team
        config = chosen if chosen.path == path else load_config(path)[0]
        _check_agents(config)
        return config

    async def _read_last_agents(self, session_id: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the ids of the agents of the last turn, and the names of those that have one."""
        last = await self.store.get_last_turn(session_id)
        events = [] if last is None else await self.store.read_turn_events(session_id, last.turn)
        starts = [event for event in events if isinstance(event, TurnStarted | TurnResumed)]
        return (starts[-1].agents, starts[-1].names) if starts else ((), {})


def _check_prices(
    agents: Sequence[AgentConfig],
    chat: Mapping[str, ChatProvider],
    fallbacks: Mapping[str, Sequence[ChatProvider]],
) -> None:
    unknown: list[tuple[str, BackendConfig]] = []
    for agent in agents:
        providers = [chat[agent.id], *fallbacks[agent.id]]
        backends = [agent.backend, *agent.backend.fallbacks]
        pairs = zip(backends, providers, strict=True)
        unknown += [(agent.id, backend) for backend, provider in pairs if not provider.price.is_known]
    if unknown:
        models = ", ".join(f"{agent_id} ({model.type} {model.model or 'default'})" for agent_id, model in unknown)
        raise InputError(
            f"the cost of a turn cannot be limited: the price is not known for {models}",
            "give the agent's backend.price in the configuration, or limit tokens instead: --max-tokens N",
        )


def _check_agents(config: TeamConfig) -> None:
    for agent in config.agents:
        for backend in (agent.backend, *agent.backend.fallbacks):
            check_key(backend, os.environ)
    Toolboxes(resolve_agents(config, os.environ)).check()


_LOADED_ON_DEMAND = ("ollama", "lmstudio")
"""Servers that know a model's window once they have loaded it."""


class Windows:
    def __init__(self, agents: Sequence[AgentConfig], learnt: LearntModels) -> None:
        """learnt: what is known of windows from earlier refusals."""
        self._agents = tuple(agents)
        self._learnt = learnt
        self._asking: asyncio.Task[dict[str, ContextWindow]] | None = None
        self._fallback_windows: dict[tuple[object, ...], ContextWindow] = {}
        self._served: dict[tuple[object, ...], int | None] = {}
        self._serving = asyncio.Lock()

    def start(self) -> None:
        """Begin to ask the servers for their windows; return at once."""
        self._asking = asyncio.create_task(self._ask())

    async def create_meters(self) -> dict[str, TokenMeter]:
        """Return a meter for each agent, by its id, for one session to learn with."""
        if self._asking is None:
            self.start()
        assert self._asking is not None  # set by start
        windows = await asyncio.shield(self._asking)
        return {agent.id: self._create_meter(agent.backend, windows[agent.id]) for agent in self._agents}

    async def create_meter(self, backend: BackendConfig) -> TokenMeter:
        """Return a meter for a fallback. Its server is asked now, once: most are never needed."""
        key = _model_key(backend)
        if key not in self._fallback_windows:
            self._fallback_windows[key] = await find_window(backend, os.environ, self._learnt)
        return self._create_meter(backend, self._fallback_windows[key])

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
        asking = (find_window(backend, os.environ, self._learnt) for backend in backends.values())
        answers = await asyncio.gather(*asking)
        windows = dict(zip(backends, answers, strict=True))
        return {agent.id: windows[_model_key(agent.backend)] for agent in self._agents}

    async def _ask_window(self, backend: BackendConfig) -> int | None:
        """Return the window that a server gives a model. It is asked once, however many agents want to know."""
        key = _model_key(backend)
        async with self._serving:
            if key not in self._served:
                self._served[key] = await ask_served_window(backend.type, resolve(backend, os.environ))
        return self._served[key]

    def _create_meter(self, backend: BackendConfig, window: ContextWindow) -> TokenMeter:
        def remember(size: int) -> None:
            if not backend.is_in_process:
                self._learnt.remember_window(resolve(backend, os.environ), size)

        buffer = Buffer(tokens.counter_for(backend))
        few_weights = backend.type == "local" and has_few_weights(backend.model)
        assumed = window.source == "assumed"
        ask = partial(self._ask_window, backend)
        return TokenMeter(window.tokens, buffer, assumed, few_weights=few_weights, remember=remember, ask_served=ask)


def _model_key(backend: BackendConfig) -> tuple[object, ...]:
    script = (backend.script or {}).get("context_window")
    return backend.type, backend.model, backend.base_url, backend.context_window, script
