"""Answers one question: from the options of a command line to the answer on stdout and the exit code."""

import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from massmem.cli.errors import disable_logging, new_debug_log, start_logging
from massmem.cli.options import Output, RunOptions
from massmem.cli.question import HOW_TO_ASK, Question, attach_files, read_question, read_schema
from massmem.cli.setup import load_team, read_environment, replace_agents
from massmem.cli.streams import has_cursor, notify, show_activity, write_err, write_json, write_out
from massmem.cli.terminal import EXIT_INTERRUPTED, EXIT_TERMINATED, TurnStopper
from massmem.cli.turn_output import ABANDONED, AnswerWriter, TurnEvents, show_turn, write_answer, write_dissent
from massmem.config.home import massmem_home
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, LimitReached, TurnError
from massmem.core.events import TurnAbandoned, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting
from massmem.core.ids import check_session_name
from massmem.core.outcome import TurnEnd, TurnOutcome
from massmem.core.records import Owner
from massmem.render.text import describe_limit, pluralize
from massmem.render.turn_view import TurnView, turn_to_dict
from massmem.session.session import Session

EXIT_WAITING = 6


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line that asks a question or opens a conversation, with its configuration."""

    options: RunOptions
    output: Output
    config: TeamConfig
    home: Path
    question: Question | None
    """None: finish the unfinished turn, or talk."""
    answer_schema: Mapping[str, Any] | None
    debug_log: Path | None
    """The log of --debug."""

    @property
    def is_conversation(self) -> bool:
        """There is no question but a user at a terminal, and no program reads the answers."""
        return (
            self.question is None
            and not self.options.is_single
            and self.options.output not in ("json", "jsonl")
            and sys.stdin.isatty()
            and sys.stderr.isatty()
        )

    def show_activity(self, task: str) -> AbstractContextManager[None]:
        """Show what is being done until the end of the block, unless a program reads the output."""
        quiet = self.options.quiet or self.output in ("json", "jsonl")
        return show_activity(task, quiet=quiet, animated=self.output == "live")

    @property
    def debug_folder(self) -> Path | None:
        return self.debug_log.parent if self.debug_log else None

    async def wait_for_tools(self, session: Session) -> None:
        """Wait until the tool servers have started, and show that. Raises ToolServerError."""
        if servers := sum(len(agent.mcp_servers) for agent in self.config.agents):
            with self.show_activity(f"starting {pluralize(servers, 'tool server')}"):
                await session.wait_for_tools()

    def create_view(self) -> TurnView:
        return TurnView(
            max_rounds=self.config.coordination.max_rounds, shows_reasoning=not self.options.hides_reasoning
        )

    def show_command(self, outcome: TurnOutcome) -> str:
        """Return the command line that shows every answer and vote of this turn."""
        return f"{_name_program()} sessions show {outcome.session_id} --turn {outcome.turn} --all{self._place_options}"

    @property
    def _place_options(self) -> str:
        owner = f" --owner {shlex.quote(self.options.owner)}" if self.options.owner else ""
        return owner + (f" --config {shlex.quote(self.options.config)}" if self.options.config else "")

    def resume_command(self, session_id: str) -> str:
        """Return the command line that continues this session."""
        model = f" --model {shlex.quote(self.options.model)}" if self.options.model else ""
        solo = "" if self.options.solo is None else f" --solo={shlex.quote(self.config.agents[0].id)}"
        return f"{_name_program()} --session-id {session_id}{self._place_options}{model}{solo}"


def _name_program() -> str:
    """Return `massmem`, or its path where a shell would not find it, as in an environment that is not activated."""
    path = Path(sys.argv[0]).absolute()
    return "massmem" if path.name != "massmem" or shutil.which("massmem") else shlex.quote(str(path))


def prepare_run(options: RunOptions) -> Invocation:
    """Load the configuration and read the question. Raises ConfigError, InputError, HomeError."""
    home = massmem_home()
    if options.session_id is not None:
        check_session_name(options.session_id)
    read_environment()
    config = load_team_of(options, home)
    schema = None if options.schema is None else read_schema(options.schema)
    has_files = bool(options.files or options.pictures)
    question = read_question(options.question, has_files=has_files, quiet=options.quiet)
    if question is not None and has_files:
        question = attach_files(question, options.files, options.pictures, config.files)
    if schema is not None and question is None:
        raise InputError("--schema needs a question", 'ask like this: massmem --schema FILE "your question"')
    debug_log = new_debug_log() if options.debug else None
    output = options.output or ("live" if has_cursor() else "plain")
    return Invocation(options, output, config, home, question, schema, debug_log)


def load_team_of(options: RunOptions, home: Path) -> TeamConfig:
    """Return the team that the options name, else that of the session, else the default one.

    Raises ConfigError, InputError.
    """
    config = load_team(options.config or options.session_config, home, options.limits, store=not options.no_store)
    if options.describe:
        config = config.model_copy(update={"files": config.files.model_copy(update={"describe": True})})
    config = replace_agents(config, options.model, options.system)
    return config if options.solo is None else config.select_agent(options.solo)


def run(invocation: Invocation) -> int:
    """Run the turn and return the exit code. Raises MassmemError: the run ended before its turn did."""
    options = invocation.options
    names_session = options.session_id is not None or invocation.config.session_id is not None
    if invocation.question is None and not names_session:
        raise InputError("there is no question", HOW_TO_ASK)
    stopper = TurnStopper()
    try:
        return asyncio.run(_run(invocation, stopper))
    except asyncio.CancelledError:
        return stopper.exit_code or 1


async def _run(invocation: Invocation, stopper: TurnStopper) -> int:
    task = asyncio.current_task()
    assert task is not None
    options, view = invocation.options, invocation.create_view()
    with stopper.watch(task):
        with invocation.show_activity("opening the session"):
            session = await Session.open(
                invocation.config,
                home=invocation.home,
                session_id=options.session_id,
                owner=Owner(options.owner),
                debug=invocation.debug_folder,
            )
        try:
            _start_logging(invocation, session)
            if invocation.question is None and session.unfinished is None:
                raise InputError(
                    f"{session.id} has no unfinished turn, so a question is needed",
                    f'ask like this: massmem --session-id {session.id} "your question"',
                )
            await invocation.wait_for_tools(session)
            stopper.stop = lambda signum: session.stop("user" if signum == signal.SIGINT else "signal")
            events = TurnEvents(session, invocation.question, wait=options.wait, schema=invocation.answer_schema)
            writer = open_writer(invocation, invocation.config, invocation.question)
            await show_turn(events, view, invocation.output, quiet=options.quiet, writer=writer)
            # The answer is shown before the session is closed, which records memories for up to some seconds.
            written = writer.written if writer else ""
            return _conclude(invocation, view, durable=session.is_durable, written=written)
        finally:
            with invocation.show_activity("recording memories"):
                await session.close()
            if not options.quiet:
                for notice in session.take_notices():
                    notify(notice)


def _start_logging(invocation: Invocation, session: Session) -> None:
    if invocation.options.no_store:
        disable_logging()
        return
    start_logging(invocation.home, invocation.debug_log, lambda: session.secret_values)
    if invocation.debug_log is not None and not invocation.options.quiet:
        write_err(f"debug log: {invocation.debug_log}")


def open_writer(invocation: Invocation, config: TeamConfig, question: Question | None) -> AnswerWriter | None:
    """Return what writes the answer while it is written; None where it cannot be told, or a live view shows it.

    On a terminal only `--output plain` shows it as it is written: else its Markdown is laid out.
    """
    options = invocation.options
    is_text = invocation.output == "plain" or (invocation.output == "live" and not sys.stdout.isatty())
    has_view = invocation.output == "live" and has_cursor() and not options.quiet
    has_tools = any(agent.mcp_servers for agent in config.agents) or config.params or config.coordination.ask_user
    is_sure = not has_tools and invocation.answer_schema is None
    can_stream = question is not None and is_text and not has_view and is_sure
    return AnswerWriter(is_team=len(config.agents) > 1) if can_stream else None


def _conclude(invocation: Invocation, view: TurnView, *, durable: bool, written: str) -> int:
    """Write the answer and how to continue; return the exit code. written: what stands on stdout of the answer."""
    outcome = view.outcome
    if invocation.output == "json":
        write_json(turn_to_dict(view))
    elif invocation.answer_schema is not None and outcome.answer is not None and invocation.output != "jsonl":
        write_out(outcome.answer + "\n")  # for a program, also on a terminal
    elif invocation.output != "jsonl" and (text := outcome.answer or outcome.prompt) is not None:
        write_answer(text, quiet=invocation.options.quiet, written=written)
        if not invocation.options.quiet:
            others = f"see every answer with: {invocation.show_command(outcome)}" if durable else ""
            write_dissent(view, invocation.options.show, others)
    elif written:
        write_out("\n")
    _report_limit(invocation, outcome.end)
    if durable:
        _explain_how_to_continue(invocation, view)
    else:
        _explain_loss(invocation, view)
    return _choose_exit_code(invocation, view)


def _report_limit(invocation: Invocation, end: TurnEnd | None) -> None:
    """Write what cut the turn short to stderr, unless a line of progress has said it."""
    was_shown = invocation.output in ("live", "plain") and not invocation.options.quiet
    if isinstance(end, TurnCompleted) and not was_shown and (limit := describe_limit(end)):
        notify(limit)


def _choose_exit_code(invocation: Invocation, view: TurnView) -> int:
    outcome = view.outcome
    match outcome.end:
        case TurnCompleted() if outcome.status == "completed":
            has_flaw = bool(outcome.failures) or outcome.lacks_votes
            code = TurnError.exit_code if invocation.options.strict and has_flaw else 0
        case TurnCompleted() | TurnAbandoned(why="timeout"):
            code = LimitReached.exit_code
        case TurnFailed(exit_code=exit_code):
            code = exit_code
        case TurnInterrupted(by=by):
            code = EXIT_INTERRUPTED if by == "user" else EXIT_TERMINATED
        case TurnWaiting():
            code = EXIT_WAITING
        case TurnAbandoned():
            code = 0
        case None:
            again = invocation.resume_command(outcome.session_id)
            raise TurnError("the turn ended without a result", f"try again with: {again}")
    return code


def _explain_how_to_continue(invocation: Invocation, view: TurnView) -> None:
    session_id = view.outcome.session_id
    again = invocation.resume_command(session_id)
    match view.outcome.end:
        case TurnCompleted() if not invocation.options.quiet:
            write_err(f'{session_id}: {again} "next question"')
        case TurnFailed() as end:
            report_failure(end, f"try again with: {again}")
        case TurnInterrupted():
            notify("stopped; the work of the agents so far is saved")
            write_err(f"finish this turn with: {again}", indent="  ")
        case TurnWaiting():
            write_err(f'{session_id}: answer with: {again} "your answer"')
        case TurnAbandoned(why=why):
            notify(ABANDONED[why])
            write_err(f'ask again with: {again} "your question"', indent="  ")
        case _:
            pass


def _explain_loss(invocation: Invocation, view: TurnView) -> None:
    """Tell the user that the conversation cannot continue, because nothing was stored."""
    if isinstance(view.outcome.end, TurnFailed):
        report_failure(view.outcome.end)
    if not invocation.options.no_store:
        for notice in view.notices[:1]:
            notify(notice)
        hint = "this conversation was not stored and nothing of it is remembered; start the server before the next one"
        write_err(hint, indent="  ")
    elif isinstance(view.outcome.end, TurnWaiting):
        notify("nothing is stored, so a reply is not possible: ask again with the value in the question")


def report_failure(end: TurnFailed, *more: str) -> None:
    """Write why a turn failed, what to do, and further lines to stderr."""
    notify(end.message)
    write_err(*([end.hint] if end.hint else []), *more, indent="  ")
