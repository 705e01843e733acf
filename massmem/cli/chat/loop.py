"""The conversation: a line is read, and is a command, a question, or the reply to one."""

import asyncio
import errno
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.cli.ask import Output
from massmem.cli.chat.desk import Desk
from massmem.cli.chat.interrupts import HUNG_UP, Interrupts
from massmem.cli.chat.session_commands import show_last
from massmem.cli.chat.simple_line import SimpleLine
from massmem.cli.chat.table import COMMANDS, find
from massmem.cli.chat.terminal import undisturbed
from massmem.cli.chat.turn import run_turn
from massmem.cli.plan import Plan
from massmem.cli.report import tell_error
from massmem.cli.showing import tell, usual_output
from massmem.errors import MassmemError
from massmem.events import TurnWaiting
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.session_ids import check_session_name

if TYPE_CHECKING:
    from massmem.cli.chat.line import Line

HISTORY = "history"
"""The file in the home with the lines that were typed."""
_REPLY = "reply> "


def chat(plan: Plan) -> int:
    """Talk until the user leaves; returns the exit code.

    Raises:
        MassmemError: the conversation cannot begin.
    """
    edited = usual_output() is Output.LIVE
    interrupts = Interrupts()
    try:
        with undisturbed() if edited else nullcontext():
            return asyncio.run(_chat(plan, interrupts, edited=edited))
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        return interrupts.exit_code or HUNG_UP  # nobody is there to be told


async def _chat(plan: Plan, interrupts: Interrupts, *, edited: bool) -> int:
    with interrupts.handled():
        chat_ = await interrupts.run(_opened(plan, interrupts, edited=edited))
        if chat_ is None:
            return interrupts.exit_code or 130
        try:
            await chat_.run()
        finally:
            await interrupts.run(chat_.desk.close(), last=True)
        chat_.say_goodbye()
    return interrupts.exit_code or 0


async def _opened(plan: Plan, interrupts: Interrupts, *, edited: bool) -> "_Chat":
    options = plan.options
    wanted = options.session_id or (None if options.newest else plan.config.session_id)
    if wanted is not None:
        check_session_name(wanted)
    debug = plan.debug_log.parent if plan.debug_log else None
    fallback = wanted is None and not options.newest
    team = await Team.open(plan.config, home=plan.home, debug=debug, fallback=fallback)
    try:
        session = await Session.on(team, wanted, newest=options.newest)
        await team.start()
    except BaseException:
        await team.close()
        raise
    return _Chat(plan, interrupts, (team, session), edited=edited)


class _Chat:
    def __init__(self, plan: Plan, interrupts: Interrupts, opened: tuple[Team, Session], *, edited: bool) -> None:
        self._interrupts = interrupts
        history = None if plan.options.no_store else plan.home / HISTORY
        self._lines = self._edited_line(history) if edited else SimpleLine()
        self.desk = Desk(plan, *opened, self._lines.ask)
        self.desk.start_log(plan.debug_log)

    async def run(self) -> None:
        """Until the user leaves, or a signal ends it."""
        await self._greet()
        while not self.desk.over and self._interrupts.exit_code is None:
            try:
                line = await self._interrupts.run(self._line(), self._cleared)
            except EOFError:
                return
            if line is not None and line.strip():
                await self._obey(line)

    def say_goodbye(self) -> None:
        """How to go on later."""
        session = self.desk.session
        if not session.id or self.desk.plan.options.quiet:
            return
        if self.desk.plan.options.no_store:
            tell("nothing of this conversation was kept")
        elif session.lasting:
            tell(f"go on with: {self.desk.plan.command(session.id)}")
        else:
            tell("this conversation is gone now: it was held in memory, because the store was away")

    async def _greet(self) -> None:
        desk = self.desk
        if not desk.plan.options.quiet:
            if desk.debug_log is not None:
                tell(f"debug log: {desk.debug_log}")
            agents = ", ".join(agent.id for agent in desk.team.agents)
            tell(f"massmem: {agents}. /help shows the commands, Ctrl-D quits.")
        if not desk.session.resumed:
            return
        await show_last(desk)
        unfinished = desk.session.unfinished
        if unfinished is not None and unfinished.status != "waiting":
            desk.go_on = True
            await self._obey("")

    async def _line(self) -> str:
        return await (self._lines.ask(_REPLY) if await self._waits() else self._lines.read())

    async def _waits(self) -> bool:
        """The last turn waits for what the user says next."""
        if self.desk.board is not None:
            return isinstance(self.desk.board.end, TurnWaiting)
        unfinished = self.desk.session.unfinished
        return unfinished is not None and unfinished.status == "waiting"

    async def _obey(self, line: str) -> None:
        """Do what the line says; what goes wrong is told, and the conversation goes on."""
        try:
            if line.startswith("/"):
                await self._interrupts.run(self._command(line))
            elif line.strip():
                await run_turn(self.desk, self._interrupts, line.strip())
            if self.desk.go_on:
                self.desk.go_on = False
                await run_turn(self.desk, self._interrupts, None)
        except EOFError:
            self.desk.over = True
        except MassmemError as e:
            tell_error(e)

    async def _command(self, line: str) -> None:
        name, _, rest = line[1:].strip().partition(" ")
        await find(name).run(self.desk, rest.strip())

    def _cleared(self) -> bool:
        self._lines.clear()
        return True

    def _edited_line(self, history: Path | None) -> "Line":
        from massmem.cli.chat.completion import Commands
        from massmem.cli.chat.line import Line
        from massmem.cli.chat.lines_kept import LinesKept, lines_of_this_run

        summaries = {command.name: command.summary for command in COMMANDS.values()}
        kept = lines_of_this_run() if history is None else LinesKept(history)
        return Line(kept, Commands(summaries, self._offers), self._interrupts.press)

    async def _offers(self, name: str, words: Sequence[str]) -> Sequence[str]:
        command = COMMANDS.get(name)
        return () if command is None else await command.complete(self.desk, words)
