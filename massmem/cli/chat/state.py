"""The state of a conversation: the team, the session, and the changes that the user made to both."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from massmem.cli.errors import disable_logging, new_debug_log, start_logging
from massmem.cli.question import UserQuestion
from massmem.cli.run import Invocation, load_team_of
from massmem.cli.setup import Setup, use_session_config
from massmem.config.models import AgentConfig, BackendConfig, TeamConfig
from massmem.config.projects import find_project
from massmem.config.variation import Variation
from massmem.core.errors import InputError
from massmem.core.records import Owner, TurnRecord
from massmem.render.turn_view import TurnView
from massmem.session.session import Session
from massmem.session.team import Team

Ask = Callable[[str], Awaitable[str]]
"""Asks the user a question and returns the reply, one line. Raises EOFError when the user leaves."""


class ChatState:
    def __init__(self, invocation: Invocation, team: Team, session: Session, ask: Ask) -> None:
        self.invocation = invocation
        self.session = session
        self.ask = ask
        self.last_turn: TurnView | None = None
        """The last turn of this session in this process."""
        self.is_over = False
        """The user leaves."""
        self.finish_next = False
        """The unfinished turn is to be finished."""
        self.answer_now = False
        """With the answers that it has."""
        self.next_question: UserQuestion | None = None
        """A command has written it; it is asked now."""
        self.next_team: TeamConfig | None = None
        """Who is asked it; None: the team as it is."""
        self.asks_all = False
        """It is for all agents."""
        self.debug_log: Path | None = None
        self._config = self._plain = invocation.config
        if invocation.options.job:
            self._plain = load_team_of(replace(invocation.options, job=None), invocation.home)  # without the job
        self._base_team = team
        self.team = team
        """The base team, or one with other models on the same store and memory."""
        self._stop_log: Callable[[], None] | None = None

    @property
    def _owner(self) -> Owner:
        return Owner(self.invocation.options.owner)

    @property
    def setup(self) -> Setup:
        """For functions of other commands."""
        return Setup(self._config, self.invocation.home, self._owner, self.team, self.session.project)

    def find_agent(self, name: str) -> AgentConfig:
        """Return the agent with this id. Raises InputError when there is none."""
        for agent in self.team.agents:
            if agent.id == name:
                return agent
        raise InputError(f"there is no agent {name!r}", f"agents: {', '.join(a.id for a in self.team.agents)}")

    async def resume(self, name: str) -> TurnRecord | None:
        """Switch to another session, with the team that it began with; return its unfinished turn.

        Raises ConfigError: its configuration has a mistake; nothing has changed then. Else as `Session.find`.
        """
        session = await Session.find(self.team, name, owner=self._owner)
        options, path = self.invocation.options, session.config_path
        if options.config is None and path and path != self._config.path:
            await session.close()
            options = replace(options, session_config=use_session_config(path), job=None)
            self._plain = load_team_of(options, self.invocation.home)
            await self.do_job(self.invocation.options.job or "", session.id)
        else:
            await self._switch_session(session)
        return self.session.unfinished

    async def do_job(self, name: str, session_id: str) -> None:
        """Do this job from now on, "": none; and go on with this session. Raises as `Variation.apply`, `Team.start`."""
        config = Variation(job=name, project=find_project()).apply(self._plain) if name else self._plain
        await self._switch_team(config, session_id)
        self.invocation = replace(self.invocation, options=replace(self.invocation.options, job=name or None))

    async def change_backends(self, backends: Mapping[str, BackendConfig]) -> None:
        """Let agents use other models from now on, by their ids. Raises as `Team.start`; nothing has changed then."""

        def change(team: TeamConfig) -> TeamConfig:
            agents = [a.model_copy(update={"backend": backends.get(a.id, a.backend)}) for a in team.agents]
            return team.model_copy(update={"agents": tuple(agents)})

        await self._switch_team(change(self._config), self.session.id)
        self._plain = change(self._plain)

    @asynccontextmanager
    async def use_team(self, changed: TeamConfig) -> AsyncGenerator[None, None]:
        """Use another team within the block. Raises as `Team.start`."""
        config = self._config
        await self._switch_team(changed, self.session.id)
        try:
            yield
        finally:
            last_turn = self.last_turn
            await self._switch_team(config, self.session.id)
            self.last_turn = last_turn

    async def toggle_debug(self, *, on: bool) -> None:
        """Start or stop the debug log and the debug files. The team is reopened for that."""
        if on == (self.debug_log is not None):
            return
        if self.invocation.options.no_store:
            raise InputError("--no-store writes nothing, so there is no debug log", "start again without it")
        if not self.session.is_durable:
            raise InputError("this conversation is in memory only, and would be lost", "start again with --debug")
        debug_log = new_debug_log() if on else None
        session_id, project = self.session.id, self.session.project
        await self.session.close()
        await self._close_teams()
        try:
            folder = None if debug_log is None else debug_log.parent
            self._base_team = self.team = await Team.open(self._config, home=self.invocation.home, debug=folder)
        except BaseException:
            self.is_over = True  # nothing is open any more
            raise
        self.session = await Session.find(self.team, session_id or None, owner=self._owner, project=project)
        await self.team.start()
        self.start_log(debug_log)

    def start_log(self, debug_log: Path | None) -> None:
        """Log everything to `debug_log`, or warnings to the usual file when it is None."""
        if self._stop_log is not None:
            self._stop_log()
        self.debug_log = debug_log
        if self.invocation.options.no_store:
            disable_logging()
        else:
            self._stop_log = start_logging(self.invocation.home, debug_log, lambda: self.session.secret_values)

    async def close(self) -> None:
        """Close session and team; memories are recorded for up to some seconds."""
        await self.session.close()
        await self._close_teams()

    async def _switch_session(self, session: Session) -> None:
        previous, self.session = self.session, session
        await previous.close()
        self.last_turn = None

    async def _switch_team(self, config: TeamConfig, session_id: str) -> None:
        """session_id: of the session that the new team goes on with; "" for a new one."""
        team = self._base_team.with_config(config)
        try:
            await team.start()
            project = None if session_id else self.session.project
            session = await Session.find(team, session_id or None, owner=self._owner, project=project)
        except BaseException:
            await team.close()
            raise
        previous, self.team, self._config = self.team, team, config
        await self._switch_session(session)
        if previous is not self._base_team:
            await previous.close()

    async def _close_teams(self) -> None:
        if self.team is not self._base_team:
            await self.team.close()
        await self._base_team.close()
