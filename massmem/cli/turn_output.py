"""Shows a turn while it runs: progress on stderr, the answer on stdout."""

import math
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from massmem.cli.options import Output, Show
from massmem.cli.question import Question
from massmem.cli.streams import has_cursor, write_err, write_out
from massmem.cli.terminal import handle_signals, hold_typed_input, lend_terminal
from massmem.core.errors import SessionBusyError
from massmem.core.events import (
    AgentBusy,
    AgentDelta,
    AgentRetrying,
    AgentStarted,
    ContextMeasured,
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from massmem.core.messages import clean_text
from massmem.core.text import one_line
from massmem.render import Renderer
from massmem.render.text import JsonlRenderer, LogRenderer, PlainRenderer
from massmem.render.turn_view import TurnView
from massmem.session.session import Session

if TYPE_CHECKING:
    from massmem.render.live import LiveRenderer

ABANDONED = {
    "cancel": "Cancelled.",
    "reset": "Cancelled. The values that you gave are forgotten.",
    "change": "Replaced by your new question.",
    "timeout": "Cancelled: no reply in time.",
    "gave_up": "Cancelled: no usable reply.",
}
"""What the user is told when a waiting turn ends without an answer."""


ANSWER_NOW_KEY = b"\x0e"
"""Ctrl-N; SIGQUIT does the same where there is no live view."""


@dataclass(slots=True)
class TurnEvents:
    """The events of one turn: of a question, or of the unfinished turn when `question` is None."""

    session: Session
    question: Question | None
    wait: bool
    wait_hint: str = ""
    schema: Mapping[str, Any] | None = None
    now: bool = False
    """Finish the unfinished turn with the answers that it has."""
    started: bool = field(default=False, init=False)
    """The first event has arrived."""

    def answer_now(self) -> None:
        """Let the turn end with the answers that it has."""
        self.session.answer_now()

    async def stream(self) -> AsyncGenerator[Event, None]:
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

    def _run(self) -> AsyncGenerator[Event, None]:
        if self.question is None:
            return self.session.finish_turn(now=self.now)
        question = self.question
        return self.session.ask(question.text, answer_schema=self.schema, attachments=question.attachments)


class AnswerWriter(Renderer):
    """Writes the answer to stdout while it is written; `write_answer` adds the rest.

    The answer is what an agent alone writes, and of a team what the winner writes in the presentation. It is for agents
    without tools: what another writes before it calls a tool is not the answer.
    """

    def __init__(self, *, is_team: bool) -> None:
        self.is_line_open = False
        """On a terminal, where progress is shown in between: stdout has not come to the end of its line."""
        self.written = ""
        """What stands on stdout of the answer, which has no white space at its ends."""
        self._blanks = ""
        """White space that belongs to the answer when more text follows."""
        self._is_asked = False
        """This is the turn that was asked for, not an earlier one that was cut off."""
        self._is_team = is_team
        self._is_answer = False
        """What is written now is the answer."""
        self._on_terminal = sys.stdout.isatty()

    def feed(self, event: Event) -> None:
        match event:
            case TurnStarted() | TurnResumed():
                self._is_asked, self._is_answer = isinstance(event, TurnStarted), not self._is_team
            case AgentStarted(step="present"):
                self._is_answer = True
            case AgentDelta(channel="text") if self._is_asked and self._is_answer:
                text = self._blanks + event.text
                text = text if self.written else text.lstrip()
                end = len(text.rstrip())
                text, self._blanks = text[:end], text[end:]
                self.written += text
                self.is_line_open = self._on_terminal and bool(self.written)
                write_out(text)
            case AgentRetrying() if self.written:
                self.end_line()
                write_out("" if self._on_terminal else "\n")  # the agent begins anew
                self.written = self._blanks = ""
            case AgentDelta() | AgentBusy() | ContextMeasured():
                pass
            case _:
                self.end_line()

    def end_line(self) -> None:
        """Begin a new line on a terminal, unless one has begun: a line of progress follows, or the end."""
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
        handle_signals([signal.SIGQUIT], lambda _: turn.answer_now()),
        nullcontext() if isinstance(shown, PlainRenderer | JsonlRenderer) else _control_terminal(shown),
        read_ahead(lambda line: write_line(f"queued: {one_line(line, 200)}")),
    ):
        try:
            async with aclosing(turn.stream()) as events:
                async for event in events:
                    if isinstance(event, TurnStarted | TurnResumed) and view.outcome.end is not None:
                        _report_earlier_turn(view)
                    view.feed(event)
                    for renderer in renderers:
                        renderer.feed(event)
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


def write_answer(answer: str, *, quiet: bool, written: str = "") -> None:
    """Write the answer to stdout: as laid-out Markdown to a terminal with cursor control, else as it is.

    written: what an `AnswerWriter` has written of it.
    """
    text, on_terminal = clean_text(answer).rstrip("\n"), sys.stdout.isatty()
    has_begun = bool(written) and text.startswith(written)
    if not on_terminal:
        write_out(("\n" if written and not has_begun else "") + text[len(written) * has_begun :] + "\n")
        return
    if has_begun:
        write_out(text[len(written) :] + ("\n" if len(text) > len(written) else ""))
        return
    if not quiet:
        write_err("")
    if has_cursor():
        from massmem.render.live import render_markdown

        write_out(render_markdown(answer, sys.stdout), styled=True)
    else:
        write_out(f"{text}\n")
    if not quiet:
        write_err("")


def write_dissent(view: TurnView, show: Show, others: str) -> None:
    """Write to stderr who agrees with the answer and who does not, and why, as far as `show` says.

    others: how the user gets to see the answers that nobody has compared; "" where nothing is stored.
    """
    agreement, dissent = view.outcome.agreement, view.dissent
    if show == "answer":
        if dissent is not None and (dissent.others or len(view.votes) > 1):
            write_err(dissent.summarize(agreement, view.name))
            write_err(*([others] if others and dissent.uncompared else []))
        return
    if agreement:
        write_err(agreement)
    if dissent is not None:
        for position in (*(dissent.agreed if show == "all" else ()), *dissent.others):
            write_err("", f"{view.name(position.agent_id)}:")
            write_err(*(position.answer or "(no answer)").splitlines(), indent="  ")
            if position.choice:
                own = position.choice == position.agent_id
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
    question = f" {one_line(view.outcome.question, 80)!r}" if view.outcome.question else ""
    match view.outcome.end:
        case TurnCompleted(answer=answer):
            write_err(f"answer to the earlier question{question}:", answer, "")
        case TurnFailed(message=message):
            write_err(f"the earlier question{question} failed again: {message}")
        case TurnAbandoned(why=why):
            write_err(f"the earlier question{question} has no answer. {ABANDONED[why]}")
        case _:
            pass
