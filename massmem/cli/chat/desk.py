"""What is open while somebody talks: the team, the session, and what of both was changed since the start."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from massmem.cli.logs import debug_log_path, log_nowhere, log_to_file
from massmem.cli.plan import Plan
from massmem.cli.team import Prepared
from massmem.config.models import AgentConfig, BackendConfig, TeamConfig
from massmem.errors import InputError
from massmem.records import TurnRecord
from massmem.render.board import Board
from massmem.session.session import Session
from massmem.session.team import Team

Ask = Callable[[str], Awaitable[str]]
"""From a question of the program to the user's reply, in one line. Raises EOFError when nobody replies."""


class Desk:
    """One conversation at a time.

    ask: asks the user. board: of the last turn. over: the user wants to leave. go_on: the turn that was
    stopped is to be finished now.
    """

    def __init__(self, plan: Plan, team: Team, session: Session, ask: Ask) -> None:
        self.plan = plan
        self.session = session
        self.ask = ask
        self.board: Board | None = None
        self.over = False
        self.go_on = False
        self.debug_log: Path | None = None
        self._config = plan.config
        self._base = team
        self._team = team
        self._end_log: Callable[[], None] | None = None

    @property
    def at(self) -> Prepared:
        """For the actions of the command line's other commands."""
        return Prepared(self._config, self.plan.home, self._team)

    @property
    def team(self) -> Team:
        return self._team

    @property
    def hidden(self) -> Mapping[str, object]:
        """Values that no log may show now."""
        return self.session.hidden

    def agent(self, name: str) -> AgentConfig:
        """Raises InputError when there is none of this name."""
        for agent in self._team.agents:
            if agent.id == name:
                return agent
        raise InputError(f"there is no agent {name!r}", f"agents: {', '.join(a.id for a in self._team.agents)}")

    async def resume(self, name: str) -> TurnRecord | None:
        """Go on with another session; returns its turn that was not finished. Raises as `Session.on`."""
        await self._sit_at(await Session.on(self._team, name))
        return self.session.unfinished

    async def use(self, agent_id: str, backend: BackendConfig) -> None:
        """Let the agent work with another model from now on. Raises as `Team.open`; nothing has changed then."""
        agents = [
            spec.model_copy(update={"backend": backend}) if spec.id == agent_id else spec
            for spec in self._config.agents
        ]
        await self._work_with(self._config.model_copy(update={"agents": tuple(agents)}))

    async def _work_with(self, config: TeamConfig) -> None:
        team = self._base.beside(config)
        try:
            await team.start()
            session = await Session.on(team, self.session.id or None)
        except BaseException:
            await team.close()
            raise
        before, self._team, self._config = self._team, team, config
        await self._sit_at(session)
        if before is not self._base:
            await before.close()

    async def debug(self, *, on: bool) -> None:
        """Begin or end to write a debug log and debug files; the log's name is in `debug_log`."""
        if on == (self.debug_log is not None):
            return
        if self.plan.options.no_store:
            raise InputError("--no-store keeps nothing, no debug log either", "start again without it")
        if not self.session.lasting:
            raise InputError("this conversation is held in memory, and would be lost", "start again with --debug")
        log = debug_log_path(Path.cwd()) if on else None
        name = self.session.id
        await self.session.close()
        await self._close_teams()
        try:
            self._base = self._team = await Team.open(
                self._config, home=self.plan.home, debug=None if log is None else log.parent
            )
        except BaseException:
            self.over = True  # nothing is open any more
            raise
        self.session = await Session.on(self._team, name or None)
        await self._team.start()
        self.start_log(log)

    def start_log(self, debug_log: Path | None) -> None:
        """Log to this file all that there is to know, or to the usual one what went wrong."""
        if self._end_log is not None:
            self._end_log()
        self.debug_log = debug_log
        if self.plan.options.no_store:
            log_nowhere()
        elif debug_log is not None:
            self._end_log = log_to_file(debug_log, logging.DEBUG, lambda: self.hidden)
        else:
            path = self.plan.home / "logs" / "massmem.log"
            self._end_log = log_to_file(path, logging.WARNING, lambda: self.hidden)

    async def close(self) -> None:
        """Record for a moment what is still to be remembered, and let go of everything."""
        await self.session.close()
        await self._close_teams()

    async def _sit_at(self, session: Session) -> None:
        before, self.session = self.session, session
        await before.close()
        self.board = None

    async def _close_teams(self) -> None:
        if self._team is not self._base:
            await self._team.close()
        await self._base.close()
