"""Answers one question: from the options of a command line to the answer on stdout and the exit code.

The second half shows a turn while it runs, for a question and for a conversation: progress on stderr, the answer on
stdout.
"""

import asyncio
import math
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.cli.errors import disable_logging, new_debug_log, start_logging
from massmem.cli.options import Output, RunOptions, Show
from massmem.cli.question import HOW_TO_ASK, UserQuestion, attach_files, read_question, read_schema
from massmem.cli.setup import (
    Setup,
    fetch_embedded_model,
    load_team,
    read_environment,
)
from massmem.cli.streams import has_cursor, notify, show_activity, write_err, write_json, write_out
from massmem.cli.terminal import (
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    TurnStopper,
    handle_signals,
    hold_typed_input,
    lend_terminal,
)
from massmem.config.home import expand_home, massmem_home
from massmem.config.models import TeamConfig
from massmem.config.projects import find_project as find_project_here
from massmem.config.variation import Variation, make_agent
from massmem.core import events as ev
from massmem.core.citations import write_notes
from massmem.core.errors import InputError, LimitReached, SessionBusyError, TurnError
from massmem.core.ids import check_session_name
from massmem.core.messages import Citation, clean_text
from massmem.core.outcome import TurnEnd
from massmem.core.records import Owner
from massmem.core.reporting import list_sections
from massmem.core.text import make_printable, one_line
from massmem.core.turn_result import TurnResult
from massmem.render import Renderer
from massmem.render.adr import write_record
from massmem.render.text import JsonlRenderer, LogRenderer, PlainRenderer, describe_limit, pluralize
from massmem.render.turn_view import TurnView
from massmem.session.owners import find_project
from massmem.session.session import Session

if TYPE_CHECKING:
    from massmem.render.live import LiveRenderer

EXIT_WAITING, EXIT_NOT_REMEMBERED = 6, 7


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line that asks a question or opens a conversation, with its configuration."""

    options: RunOptions
    output: Output
    config: TeamConfig
    home: Path
    question: UserQuestion | None
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
        """Wait until the tools are ready, show that, and tell the user of folders. Raises ToolServerError."""
        servers = sum(len(agent.mcp_servers) for agent in self.config.agents)
        task = f"starting {pluralize(servers, 'tool server')}" if servers else "looking at the folders"
        with self.show_activity(task) if servers or self.config.has_folders else nullcontext():
            notes = await session.wait_for_tools()
        if not self.options.quiet and self.output not in ("json", "jsonl"):
            write_err(*notes)

    async def find_project(self) -> str | None:
        """Return the project of the conversation; None: one that is stored has its own. Raises InputError."""
        options = self.options
        if options.project:
            owner = Owner(options.owner)
            async with Setup(self.config, self.home, owner).open_store() as store:
                return await find_project(store, owner, options.project)
        is_stored = options.session_id is not None or self.config.session_id is not None
        return options.project if options.project == "" or is_stored else find_project_here()

    def create_view(self) -> TurnView:
        return TurnView(
            max_rounds=self.config.coordination.max_rounds, shows_reasoning=not self.options.hides_reasoning
        )

    def show_command(self, result: TurnResult) -> str:
        """Return the command line that shows every answer and vote of this turn."""
        return f"{_name_program()} sessions show {result.session_id} --turn {result.turn} --all{self._place_options}"

    @property
    def _place_options(self) -> str:
        owner = f" --owner {shlex.quote(self.options.owner)}" if self.options.owner else ""
        return owner + (f" --config {shlex.quote(self.options.config)}" if self.options.config else "")

    def resume_command(self, session_id: str) -> str:
        """Return the command line that continues this session."""
        model = f" --model {shlex.quote(self.options.model)}" if self.options.model else ""
        solo = " --full" if self.options.full else ""
        if self.options.solo is not None:
            solo = f" --solo={shlex.quote(self.config.agents[0].id)}"
        solo += f" --job {shlex.quote(self.options.job)}" if self.options.job else ""
        named = [f" --dir {shlex.quote(folder)}" for folder in self.options.folders]
        folders = "".join([*named, *(f" --include {shlex.quote(pattern)}" for pattern in self.options.include)])
        return f"{_name_program()} --session-id {session_id}{self._place_options}{model}{solo}{folders}"


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
    fetch_embedded_model(config)
    if options.output == "adr" and config.coordination.shape != "decide":
        raise InputError("only a decision has a record", 'ask like this: massmem --job decide --output adr "..."')
    schema = None if options.schema is None else read_schema(options.schema)
    has_files = bool(options.files or options.pictures)
    question = read_question(options.question, has_files=has_files, quiet=options.quiet)
    attached = config.files.attached if options.session_id is None and config.session_id is None else ()
    if question is not None and (has_files or attached):
        question = attach_files(question, [*attached, *options.files], options.pictures, config.files)
    if schema is not None and question is None:
        raise InputError("--schema needs a question", 'ask like this: massmem --schema FILE "your question"')
    debug_log = new_debug_log() if options.debug else None
    long = config.memory.persistent_memory
    is_open = "session_name" not in long.model_fields_set and long.enabled and long.model_fields_set
    if is_open and not (options.quiet or (home / "sessions.json").exists()):
        notify("agents recall this conversation alone (with memory.persistent_memory.session_name: null, all)")
    output = options.output or ("live" if has_cursor() else "plain")
    return Invocation(options, output, config, home, question, schema, debug_log)


def load_team_of(options: RunOptions, home: Path) -> TeamConfig:
    """Return the team that the options name, else that of the session, else the default one.

    Raises ConfigError, InputError.
    """
    config = load_team(options.config or options.session_config, home, options.limits, store=not options.no_store)
    if options.describe:
        config = config.model_copy(update={"files": config.files.model_copy(update={"describe": True})})
    if options.no_agents_file:
        config = config.model_copy(update={"files": config.files.model_copy(update={"agents_file": False})})
    if options.model is not None and not options.model.strip():
        make_agent(config, options.model)  # it says what to write
    solo = "" if options.solo is None else config.select_agent(options.solo).agents[0].id
    return Variation(
        solo,
        options.model or "",
        tuple(str(expand_home(folder).absolute()) for folder in options.folders),
        options.job or "",
        "report" if options.show == "report" else "council",
        options.include,
        find_project_here() if options.job else "",
        options.shape,
        options.system or "",
        write_folder="" if options.write_folder is None else str(expand_home(options.write_folder).absolute()),
    ).apply(config.model_copy(update={"may_write": True}))


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
    running: Session | None = None

    def stop(signum: signal.Signals) -> bool:
        if running is not None:
            running.stop("user" if signum == signal.SIGINT else "signal")
        return running is not None

    with stopper.watch(task, stop):
        with invocation.show_activity("opening the session"):
            session = await Session.open(
                invocation.config,
                home=invocation.home,
                session_id=options.session_id,
                owner=Owner(options.owner),
                debug=invocation.debug_folder,
                project=await invocation.find_project(),
            )
        try:
            _start_logging(invocation, session)
            if invocation.question is None and session.unfinished is None:
                raise InputError(
                    f"{session.id} has no unfinished turn, so a question is needed",
                    f'ask like this: massmem --session-id {session.id} "your question"',
                )
            await invocation.wait_for_tools(session)
            running = session
            schema = invocation.answer_schema
            events = TurnEvents(session, invocation.question, wait=options.wait, schema=schema, full=options.full)
            writer = open_writer(invocation, invocation.config, invocation.question)
            await show_turn(events, view, invocation.output, quiet=options.quiet, writer=writer)
            # The answer is shown before the session is closed, which records memories for up to some seconds.
            written = writer.written if writer else ""
            code = _conclude(invocation, view, durable=session.is_durable, written=written)
        finally:
            with invocation.show_activity("recording memories"):
                await session.close()
            for notice in (session.memory_fault,) if options.quiet else session.take_notices():
                if notice:
                    notify(notice)
        return EXIT_NOT_REMEMBERED if options.strict and not code and session.memory_fault else code


def _start_logging(invocation: Invocation, session: Session) -> None:
    if invocation.options.no_store:
        disable_logging()
        return
    start_logging(invocation.home, invocation.debug_log, lambda: session.secret_values)
    if invocation.debug_log is not None and not invocation.options.quiet:
        write_err(f"debug log: {invocation.debug_log}")


def open_writer(invocation: Invocation, config: TeamConfig, question: UserQuestion | None) -> "AnswerWriter | None":
    """Return what writes the answer while it is written; None where it cannot be told, or a live view shows it.

    Only `--output plain` on a terminal shows it so: what a pipe has read cannot be taken back.
    """
    has_tools = config.has_folders or any(agent.mcp_servers for agent in config.agents)
    has_tools = has_tools or config.params or config.coordination.ask_user
    is_sure = not has_tools and invocation.answer_schema is None
    can_stream = question is not None and invocation.output == "plain" and sys.stdout.isatty() and is_sure
    return AnswerWriter(is_team=len(config.agents) > 1) if can_stream else None


def _conclude(invocation: Invocation, view: TurnView, *, durable: bool, written: str) -> int:
    """Write the answer and how to continue; return the exit code. written: what stands on stdout of the answer."""
    result = view.result
    if invocation.output == "json":
        report = result.make_report() if invocation.options.show == "report" else result.report
        write_json(result.model_copy(update={"report": report}).model_dump(mode="json"))
    elif invocation.output == "adr":
        write_out(write_record(result))
    elif invocation.answer_schema is not None and result.answer is not None and invocation.output != "jsonl":
        write_out(result.answer + "\n")  # for a program, also on a terminal
    elif invocation.output != "jsonl" and (text := result.text) is not None:
        if not invocation.options.quiet:
            write_report(view, invocation.options.show)
        write_answer(text, result.citations, quiet=invocation.options.quiet, written=written)
        if not invocation.options.quiet:
            others = f"see every answer with: {invocation.show_command(result)}" if durable else ""
            write_dissent(view, invocation.options.show, others)
    elif written:
        write_out("\n")
    _report_limit(invocation, result.end)
    if durable:
        _explain_how_to_continue(invocation, view)
    else:
        _explain_loss(invocation, view)
    return _choose_exit_code(invocation, view)


def _report_limit(invocation: Invocation, end: TurnEnd | None) -> None:
    """Write what cut the turn short to stderr, unless a line of progress has said it."""
    was_shown = invocation.output in ("live", "plain") and not invocation.options.quiet
    if isinstance(end, ev.TurnCompleted) and not was_shown and (limit := describe_limit(end)):
        notify(limit)


def _choose_exit_code(invocation: Invocation, view: TurnView) -> int:
    result = view.result
    match result.end:
        case ev.TurnCompleted() if result.status == "completed":
            has_flaw = bool(result.errors) or result.decided_by == "no_vote" or result.escalated
            is_undone = result.carried_out is not None and result.carried_out.error
            is_failed = result.form_error is not None or is_undone or (invocation.options.strict and has_flaw)
            code = TurnError.exit_code if is_failed else 0
        case ev.TurnCompleted() | ev.TurnAbandoned(why="timeout"):
            code = LimitReached.exit_code
        case ev.TurnFailed(exit_code=exit_code):
            code = exit_code
        case ev.TurnInterrupted(by=by):
            code = EXIT_INTERRUPTED if by == "user" else EXIT_TERMINATED
        case ev.TurnWaiting():
            code = EXIT_WAITING
        case ev.TurnAbandoned():
            code = 0
        case None:
            again = invocation.resume_command(result.session_id)
            raise TurnError("the turn ended without a result", f"try again with: {again}")
    return code


def _explain_how_to_continue(invocation: Invocation, view: TurnView) -> None:
    session_id = view.result.session_id
    again = invocation.resume_command(session_id)
    match view.result.end:
        case ev.TurnCompleted() if not invocation.options.quiet:
            write_err(f'{session_id}: {again} "next question"')
        case ev.TurnFailed() as end:
            report_failure(end, f"try again with: {again}")
        case ev.TurnInterrupted():
            notify("stopped; the work of the agents so far is saved")
            write_err(f"finish this turn with: {again}", indent="  ")
        case ev.TurnWaiting():
            write_err(f'{session_id}: answer with: {again} "your answer"')
        case ev.TurnAbandoned(why=why):
            notify(ABANDONED[why])
            write_err(f'ask again with: {again} "your question"', indent="  ")
        case _:
            pass


def _explain_loss(invocation: Invocation, view: TurnView) -> None:
    """Tell the user that the conversation cannot continue, because nothing was stored."""
    if isinstance(view.result.end, ev.TurnFailed):
        report_failure(view.result.end)
    if not invocation.options.no_store:
        for notice in view.result.notices[:1]:
            notify(notice)
        hint = "this conversation was not stored and nothing of it is remembered; start the server before the next one"
        write_err(hint, indent="  ")
    elif isinstance(view.result.end, ev.TurnWaiting):
        notify("nothing is stored, so a reply is not possible: ask again with the value in the question")


def report_failure(end: ev.TurnFailed, *more: str) -> None:
    """Write why a turn failed, what to do, and further lines to stderr."""
    notify(end.message)
    write_err(*([end.hint] if end.hint else []), *more, indent="  ")


# A turn while it runs

ABANDONED = {
    "cancel": "Cancelled.",
    "reset": "Started over: the values that you gave are forgotten, and agents see nothing of what was said.",
    "change": "Replaced by your new question.",
    "timeout": "Cancelled: no reply in time.",
    "gave_up": "Cancelled: no usable reply.",
}
"""Said to the user when a waiting turn ends without an answer, by its reason."""


ANSWER_NOW_KEY = b"\x0e"
"""Ctrl-N; SIGQUIT does the same where there is no live view."""


@dataclass(slots=True)
class TurnEvents:
    """The events of one turn: of a question, or of the unfinished turn when `question` is None."""

    session: Session
    question: UserQuestion | None
    wait: bool
    wait_hint: str = ""
    schema: Mapping[str, Any] | None = None
    now: bool = False
    """Finish the unfinished turn with the answers that it has."""
    full: bool = False
    """Ask all agents."""
    started: bool = field(default=False, init=False)
    """The first event has arrived."""

    async def stream(self) -> AsyncGenerator[ev.Event, None]:
        """Yield the events. With `wait`, a turn that another process runs in the session comes first.

        Raises MassmemError, as `Session.ask`; SessionBusyError only without `wait`.
        """
        try:
            while True:
                try:
                    async with aclosing(self._run()) as events:
                        async for event in events:
                            self.started = True
                            yield event
                    return
                except SessionBusyError as e:
                    if self.started or not self.wait or self.session.wait:
                        raise
                    write_err(f"{e.message}; waiting for it to end{self.wait_hint}")
                    self.session.wait = math.inf
        finally:
            self.session.wait = 0.0

    def _run(self) -> AsyncGenerator[ev.Event, None]:
        if self.question is None:
            return self.session.finish_turn(now=self.now)
        question = self.question
        return self.session.ask(
            question.text,
            answer_schema=self.schema,
            attachments=question.attachments,
            full=self.full,
            replaces=question.replaces,
        )


_TAKEN_BACK = "the text above does not count: its attempt failed"


class AnswerWriter(Renderer):
    """Writes the answer to a terminal while it is written; `write_answer` adds the rest.

    The answer is what an agent alone writes, and of a team what the winner writes in the presentation. It is for agents
    without tools: what another writes before it calls a tool is not the answer. Where answers have sources, the final
    one gets its numbers when it is whole.
    """

    def __init__(self, *, is_team: bool) -> None:
        self.is_line_open = False
        """Progress is shown in between: stdout has not come to the end of its line."""
        self.written = ""
        """The beginning of the answer that stands on stdout, without white space at its ends."""
        self._blanks = ""
        """White space that belongs to the answer when more text follows."""
        self._is_asked = False
        """This is the turn that was asked for, not an earlier one that was cut off."""
        self._is_team = is_team
        self._is_answer = False
        """The text that comes now is the answer."""
        self._has_sources = False
        """Numbers of sources may change, or go, when the answer is whole."""

    def feed(self, event: ev.Event) -> None:
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self._is_asked, self._is_answer = isinstance(event, ev.TurnStarted), not self._is_team
                self._has_sources = False
            case ev.AgentStarted(step="present"):
                self._is_answer = not self._has_sources
            case ev.WebSearched() if not self.written:
                self._has_sources, self._is_answer = True, False
            case ev.AnswerSubmitted(citations=citations) if citations:
                self._has_sources = True
                self.end_line()
            case ev.AgentDelta(channel="text") if self._is_asked and self._is_answer:
                text = self._blanks + event.text
                text = text if self.written else text.lstrip()
                end = len(text.rstrip())
                text, self._blanks = text[:end], text[end:]
                self.written += text
                self.is_line_open = bool(self.written)
                write_out(text)
            case ev.AgentRetrying() if self.written:
                self.end_line()
                write_err(_TAKEN_BACK)
                self.written = self._blanks = ""
            case ev.AgentDelta() | ev.AgentBusy() | ev.WebSearched() | ev.ContextMeasured():
                pass
            case _:
                self.end_line()

    def end_line(self) -> None:
        """Begin a new line, unless one has begun: a line of progress follows, or the end."""
        if self.is_line_open:
            self.is_line_open = False
            write_out("\n")


async def show_turn(
    turn: TurnEvents,
    view: TurnView,
    output: Output,
    *,
    quiet: bool,
    writer: AnswerWriter | None = None,
    read_ahead: Callable[[Callable[[str], object]], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Render the events and fold them into `view`; SIGQUIT, or Ctrl-N in the live view, asks for the answer now.

    A turn that was cut off may come before the one that was asked for; its answer goes to stderr.

    read_ahead: reads lines that the user types meanwhile, and shows each with the function that it is given.
    """
    shown = _open_renderer(view, output, quiet=quiet)
    write_line = write_err if isinstance(shown, PlainRenderer | JsonlRenderer) else shown.write_line
    renderers = [*([writer] if writer else []), shown, LogRenderer(view)]
    with (
        handle_signals([signal.SIGQUIT], lambda _: turn.session.answer_now()),
        nullcontext() if isinstance(shown, PlainRenderer | JsonlRenderer) else _control_terminal(shown),
        read_ahead(lambda line: write_line(f"queued: {one_line(line, 200)}")),
    ):
        try:
            async with aclosing(turn.stream()) as events:
                async for event in events:
                    if isinstance(event, ev.TurnStarted | ev.TurnResumed) and view.result.end is not None:
                        _report_earlier_turn(view)
                    view.feed(event)
                    for renderer in renderers:
                        renderer.feed(event)
            view.result = await turn.session.complete(view.result)
        finally:
            for renderer in renderers:
                renderer.close()


@contextmanager
def _control_terminal(renderer: "LiveRenderer") -> Generator[None]:
    """Keep typed keys out of the live view, and give the terminal back in good order on Ctrl-Z."""

    def suspend(_signum: signal.Signals) -> None:
        renderer.close()
        with lend_terminal():
            os.kill(os.getpid(), signal.SIGSTOP)
        renderer.resume()

    signums = [] if signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN else [signal.SIGTSTP]
    with hold_typed_input(sigquit_key=ANSWER_NOW_KEY), handle_signals(signums, suspend):
        yield


def write_answer(answer: str, citations: Sequence[Citation] = (), *, quiet: bool, written: str = "") -> None:
    """Write the answer to stdout, with its sources: as laid-out Markdown to a terminal with cursor control, else as it
    is.

    written: what an `AnswerWriter` has written of it.
    """
    _write_text(answer, quiet=quiet, written=written)
    if citations:
        has_blank_line = sys.stdout.isatty() and not quiet and not written
        write_out(("" if has_blank_line else "\n") + "".join(f"{note}\n" for note in write_notes(citations)))
        if has_blank_line:
            write_err("")


def _write_text(answer: str, *, quiet: bool, written: str) -> None:
    text, on_terminal = clean_text(answer).rstrip("\n"), sys.stdout.isatty()
    has_begun = bool(written) and text.startswith(written)
    if not on_terminal:
        write_out(f"{text}\n")
        return
    if has_begun:
        write_out(text[len(written) :] + ("\n" if len(text) > len(written) else ""))
        return
    if written or not quiet:
        write_err(_TAKEN_BACK if written else "")
    if has_cursor():
        from massmem.render.live import render_markdown

        write_out(render_markdown(answer, sys.stdout), styled=True)
    else:
        write_out(f"{text}\n")
    if not quiet:
        write_err("")


def write_report(view: TurnView, show: Show) -> None:
    """Write the report of the council to stderr, if there is one; where it is asked for, it is made from the votes."""
    report = view.result.make_report() if show == "report" else view.result.report
    if report is None:
        if show == "report" and view.result.answer is not None:
            write_err("no report: there is one agent's answer and no other")
        return
    for section in list_sections(report, view.result.authors, view.name):
        write_err(section.heading)
        write_err(*(make_printable(line) for line in section.lines), indent="  ")
    write_err("")


def write_dissent(view: TurnView, show: Show, others: str) -> None:
    """Write to stderr who agrees with the answer and who does not, and why, as far as `show` says.

    others: how the user gets to see the answers that nobody has compared; "" where nothing is stored.
    """
    agreement, dissent = view.result.agreement or "", view.result.dissent
    if show == "answer":
        if dissent is not None and (dissent.others or len(view.result.votes) > 1):
            write_err(dissent.summarize(agreement, view.name))
            write_err(*([others] if others and dissent.uncompared else []))
        elif view.result.measured_confidence is not None or view.result.shape != "vote":
            write_err(agreement)
        return
    if agreement:
        write_err(agreement)
    if show == "report":
        return
    if dissent is not None:
        for position in (*(dissent.agreed if show == "all" else ()), *dissent.others):
            write_err("", f"{view.name(position.agent)}:")
            write_err(*(position.answer or "(no answer)").splitlines(), indent="  ")
            if position.choice:
                own = position.choice == position.agent
                chosen = "its own answer" if own else f"the answer of {view.name(position.choice)}"
                write_err(f"voted for {chosen}: {one_line(position.reason, 1_000)}", indent="  ")


def _open_renderer(view: TurnView, output: Output, *, quiet: bool) -> "JsonlRenderer | PlainRenderer | LiveRenderer":
    match output:
        case "jsonl":
            return JsonlRenderer(write_out)
        case "json":
            return PlainRenderer(view, sys.stderr, failures_only=True)
        case "live" if not quiet and has_cursor():
            from rich.console import Console

            from massmem.render.live import LiveRenderer

            return LiveRenderer(view, Console(stderr=True))
        case _:
            return PlainRenderer(view, sys.stderr, failures_only=quiet)


def _report_earlier_turn(view: TurnView) -> None:
    """Report a turn that was cut off and has ended now to stderr: stdout is for the question asked now."""
    question = f" {one_line(view.result.question, 80)!r}" if view.result.question else ""
    match view.result.end:
        case ev.TurnCompleted(answer=answer):
            notes = write_notes(view.result.citations)
            write_err(f"answer to the earlier question{question}:", answer, *(("", *notes) if notes else ()), "")
        case ev.TurnFailed(message=message):
            write_err(f"the earlier question{question} failed again: {message}")
        case ev.TurnAbandoned(why=why):
            write_err(f"the earlier question{question} has no answer. {ABANDONED[why]}")
        case _:
            pass
