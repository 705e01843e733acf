"""The conversation: reads a line, and runs it as a command, a question, or the reply to the agents' question."""

import asyncio
import errno
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.cli.chat.commands import COMMANDS, find_command, show_last_turn, translate_line
from massmem.cli.chat.state import ChatState
from massmem.cli.errors import show_error
from massmem.cli.question import UserQuestion, attach_files, attach_mentioned_files
from massmem.cli.run import (
    ABANDONED,
    Invocation,
    TurnEvents,
    open_writer,
    report_failure,
    show_turn,
    write_answer,
    write_dissent,
    write_report,
)
from massmem.cli.streams import has_cursor, write_err
from massmem.cli.terminal import EXIT_HANG_UP, EXIT_INTERRUPTED, ChatInterrupts, PlainLineReader, hold_typed_input
from massmem.core.errors import MassmemError
from massmem.core.events import TurnAbandoned, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting
from massmem.core.records import Owner
from massmem.core.text import one_line
from massmem.render.turn_view import TurnView
from massmem.session.session import Session
from massmem.session.team import Team

if TYPE_CHECKING:
    from massmem.cli.chat.line_editor import LineEditor

HISTORY_FILE = "history"
"""In massmem's home."""
_REPLY_PROMPT = "reply> "


def chat(invocation: Invocation) -> int:
    """Run the conversation until the user leaves; return the exit code.

    Raises MassmemError: the conversation cannot start.
    """
    can_edit = has_cursor()
    interrupts = ChatInterrupts()
    try:
        with hold_typed_input() if can_edit else nullcontext():
            return asyncio.run(_chat(invocation, interrupts, can_edit=can_edit))
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        return interrupts.exit_code or EXIT_HANG_UP  # the terminal is gone


async def _chat(invocation: Invocation, interrupts: ChatInterrupts, *, can_edit: bool) -> int:
    with interrupts.watch():
        with invocation.show_activity("opening the session"):
            opening = await interrupts.run(_open_session(invocation))
        if opening is None:
            return interrupts.exit_code or EXIT_INTERRUPTED
        conversation = _Conversation(invocation, interrupts, *opening, can_edit=can_edit)
        try:
            await conversation.run()
        finally:
            with invocation.show_activity("recording memories"):
                await interrupts.run(conversation.state.close(), after_quit=True)
        conversation.say_goodbye()
    return interrupts.exit_code or 0


async def _open_session(invocation: Invocation) -> tuple[Team, Session]:
    session = await Session.open(
        invocation.config,
        home=invocation.home,
        session_id=invocation.options.session_id,
        owner=Owner(invocation.options.owner),
        debug=invocation.debug_folder,
        project=await invocation.find_project(),
    )
    return session.take_team(), session


class _Conversation:
    def __init__(
        self, invocation: Invocation, interrupts: ChatInterrupts, team: Team, session: Session, *, can_edit: bool
    ) -> None:
        self._interrupts = interrupts
        history = None if invocation.options.no_store else invocation.home / HISTORY_FILE
        self._reader = self._create_editor(history) if can_edit else PlainLineReader()
        self.state = ChatState(invocation, team, session, self._reader.ask)
        self.state.start_log(invocation.debug_log)

    async def run(self) -> None:
        """Return when the user leaves or a signal quits."""
        await self._greet()
        while not self.state.is_over and self._interrupts.exit_code is None:
            try:
                reading = self._reader.ask(_REPLY_PROMPT) if self._is_waiting() else self._reader.read()
                line = await self._interrupts.run(reading, self._clear_line)
            except EOFError:
                return
            if line is not None and line.strip():
                await self._execute(line)

    def say_goodbye(self) -> None:
        """Tell how to continue the conversation later."""
        state = self.state
        if not state.session.id or state.invocation.options.quiet:
            return
        if state.invocation.options.no_store:
            write_err("this conversation was not stored")
        elif state.session.is_durable:
            write_err(f"continue with: {state.invocation.resume_command(state.session.id)}")
        else:
            write_err("this conversation was not stored, because the store was unavailable")

    async def _greet(self) -> None:
        state = self.state
        if not state.invocation.options.quiet:
            if state.debug_log is not None:
                write_err(f"debug log: {state.debug_log}")
            agents = ", ".join(agent.display_name for agent in state.team.agents)
            write_err(f"massmem: {agents}. /help shows the commands, Ctrl-D quits.")
        if not state.session.resumed:
            return
        await show_last_turn(state)
        unfinished = state.session.unfinished
        if unfinished is not None and unfinished.status != "waiting":
            state.finish_next = True
            await self._execute("")

    def _is_waiting(self) -> bool:
        """Whether the last turn waits for a reply of the user."""
        if self.state.last_turn is not None:
            return isinstance(self.state.last_turn.result.end, TurnWaiting)
        unfinished = self.state.session.unfinished
        return unfinished is not None and unfinished.status == "waiting"

    async def _execute(self, line: str) -> None:
        """Run a command or ask a question; report an error and go on."""
        try:
            line = translate_line(line)
            if line.startswith("/"):
                name, _, rest = line[1:].strip().partition(" ")
                await self._interrupts.run(find_command(name).run(self.state, rest.strip()))
            elif line.strip():
                files = self.state.team.config.files
                await self._run_turn(await asyncio.to_thread(attach_mentioned_files, line.strip(), files))
            if self.state.next_question is not None:
                question, self.state.next_question = self.state.next_question, None
                team, self.state.next_team = self.state.next_team, None
                write_err(f"> {one_line(question.text, 200)}")
                async with nullcontext() if team is None else self.state.use_team(team):
                    await self._run_turn(question)
            if self.state.finish_next:
                self.state.finish_next = False
                await self._run_turn(None)
        except EOFError:
            self.state.is_over = True
        except MassmemError as e:
            show_error(e)

    async def _run_turn(self, question: UserQuestion | None) -> None:
        """Ask the question, or finish the unfinished turn when it is None, and report the result.

        Raises MassmemError: the turn ended early; the conversation can go on.
        """
        session, invocation, view = self.state.session, self.state.invocation, self.state.invocation.create_view()
        files = self.state.team.config.files
        if question is not None and files.attached and not session.id:
            question = await asyncio.to_thread(attach_files, question, files.attached, (), files)
        now, self.state.answer_now = self.state.answer_now, False
        full, self.state.asks_all = self.state.asks_all or invocation.options.full, False
        events = TurnEvents(session, question, wait=True, wait_hint=" (Ctrl-C: do not wait)", now=now, full=full)
        writer = open_writer(invocation, self.state.team.config, question)
        is_stopping = False

        def stop() -> bool:
            nonlocal is_stopping
            if not events.started or is_stopping:
                return False
            is_stopping = True
            session.stop("user")
            return True

        def stop_for_quit() -> bool:
            session.stop("signal")
            return events.started

        async def run() -> None:
            await invocation.wait_for_tools(session)
            quiet, read_ahead = invocation.options.quiet, self._reader.read_ahead
            await show_turn(events, view, invocation.output, quiet=quiet, writer=writer, read_ahead=read_ahead)

        await self._interrupts.run(run(), stop, stop_for_quit)
        self.state.last_turn = view
        if not invocation.options.quiet:
            write_report(view, invocation.options.show)
        _report_end(view, quiet=invocation.options.quiet, written=writer.written if writer else "")
        if not invocation.options.quiet:
            write_dissent(view, invocation.options.show, "see every answer with: /show")

    def _clear_line(self) -> bool:
        self._reader.clear()
        return True

    def _create_editor(self, history: Path | None) -> "LineEditor":
        from massmem.cli.chat.line_editor import CommandCompleter, LineEditor, open_history

        summaries = {command.name: command.summary for command in COMMANDS.values()}
        completer = CommandCompleter(summaries, self._complete)
        return LineEditor(open_history(history), completer, self._interrupts.press)

    async def _complete(self, name: str, words: Sequence[str]) -> Sequence[str]:
        command = COMMANDS.get(name)
        return () if command is None else await command.complete(self.state, words)


def _report_end(view: TurnView, *, quiet: bool, written: str) -> None:
    """Write the answer, or what the user is asked for, and how to continue. written: see `write_answer`."""
    result = view.result
    if (text := result.text) is not None:
        write_answer(text, result.citations, quiet=quiet, written=written)
    match result.end:
        case TurnFailed() as end:
            report_failure(end, "/continue tries again")
        case None if not result.session_id:
            write_err("The question was not asked.")
        case TurnInterrupted() | None:
            write_err("Stopped; the work of the agents so far is saved.")
            write_err("/continue finishes this turn, /now with what there is; another question ends it", indent="  ")
        case TurnAbandoned() as end:
            write_err(ABANDONED[end.why])
        case TurnCompleted() | TurnWaiting():
            pass
