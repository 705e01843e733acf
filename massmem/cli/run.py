"""Runs one turn: from the options of a command line to the answer on stdout and the exit code."""

import asyncio
import json
import logging
import math
import shlex
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from massmem.cli.ask import Output, RunOptions
from massmem.cli.home import massmem_home
from massmem.cli.logs import debug_log_path, log_nowhere, log_to_file
from massmem.cli.question import no_question, read_question
from massmem.cli.signals import Stopper
from massmem.cli.streams import write_out
from massmem.cli.team import load_team, read_dotenv
from massmem.config.models import TeamConfig
from massmem.errors import InputError, LimitReached, SessionBusyError, TurnError
from massmem.events import (
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
)
from massmem.messages import clean_text
from massmem.render.base import Renderer
from massmem.render.board import Board
from massmem.render.jsonl import JsonlRenderer
from massmem.render.log import LogRenderer
from massmem.render.plain import PlainRenderer
from massmem.render.printable import one_line, printable
from massmem.render.result import turn_object
from massmem.session import Session
from massmem.session_ids import check_session_name

EXIT_WAITING = 6

_GIVEN_UP = {
    "cancel": "what was asked is given up, as you said",
    "reset": "what was asked is given up, and what you gave before is forgotten",
    "change": "you asked something else",
    "timeout": "nobody replied in time",
    "gave_up": "it was asked for often enough",
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """question None: finish the turn that was cut off. debug_log: where --debug writes."""

    options: RunOptions
    output: Output
    config: TeamConfig
    home: Path
    question: str | None
    debug_log: Path | None


def run(options: RunOptions) -> int:
    """Answer the question and return the exit code.

    Raises:
        MassmemError: whatever ends the run before its turn does.
    """
    home = massmem_home()
    if options.session_id is not None:
        check_session_name(options.session_id)
    read_dotenv(Path(".env"))
    config = load_team(options.config, home, options.limits, stored=not options.no_store)
    question = read_question(options.question)
    if question is None and not options.newest and options.session_id is None and config.session_id is None:
        raise no_question()
    debug_log = debug_log_path(Path.cwd()) if options.debug else None
    plan = _Plan(options, options.output or _usual_output(), config, home, question, debug_log)
    stopper = Stopper()
    try:
        return asyncio.run(_run(plan, stopper))
    except asyncio.CancelledError:
        return stopper.exit_code or 1


async def _run(plan: _Plan, stopper: Stopper) -> int:
    task = asyncio.current_task()
    assert task is not None
    with stopper.watching(task):
        debug = plan.debug_log.parent if plan.debug_log else None
        options = plan.options
        session = await Session.open(
            plan.config, home=plan.home, session_id=options.session_id, newest=options.newest, debug=debug
        )
        try:
            _start_logging(plan, session)
            stopper.on_first(lambda signum: session.stop("user" if signum == signal.SIGINT else "signal"))
            # The answer is shown before the session is closed: what is still to be remembered must not delay it.
            return _conclude(plan, await _show_turn(plan, session), lasting=session.lasting)
        finally:
            await session.close()


def _start_logging(plan: _Plan, session: Session) -> None:
    if plan.options.no_store:
        log_nowhere()
        return
    if plan.debug_log is None:
        log_to_file(plan.home / "logs" / "massmem.log", logging.WARNING, lambda: session.hidden)
        return
    log_to_file(plan.debug_log, logging.DEBUG, lambda: session.hidden)
    if not plan.options.quiet:
        _tell(f"debug log: {plan.debug_log}")


async def _show_turn(plan: _Plan, session: Session) -> Board:
    """Run the turn, and one that was cut off before it; the board shows the last."""
    board = Board()
    renderers = (_renderer(plan, board), LogRenderer(board))
    try:
        async with aclosing(_events(plan, session)) as events:
            async for event in events:
                if isinstance(event, TurnStarted | TurnResumed) and board.end is not None:
                    _tell_earlier(board)
                board.feed(event)
                for renderer in renderers:
                    renderer.feed(event)
    finally:
        for renderer in renderers:
            renderer.close()
    return board


async def _events(plan: _Plan, session: Session) -> AsyncGenerator[Event, None]:
    """The turn's events; with --wait as soon as no other process runs a turn of the session."""
    begun = False
    try:
        async with aclosing(_asked(plan, session)) as events:
            async for event in events:
                begun = True
                yield event
        return
    except SessionBusyError as e:
        if begun or not plan.options.wait:
            raise
        _tell(f"{e.message}; waiting for it to end")
    session.wait = math.inf
    async with aclosing(_asked(plan, session)) as events:
        async for event in events:
            yield event


def _asked(plan: _Plan, session: Session) -> AsyncGenerator[Event, None]:
    if plan.question is not None:
        return session.ask(plan.question)
    if session.unfinished is None:
        raise InputError(
            f"{session.id} has no unfinished turn, so there must be a question",
            f'ask like this: massmem --session-id {session.id} "your question"',
        )
    return session.finish_turn()


def _usual_output() -> Output:
    from rich.console import Console

    console = Console(stderr=True)
    return Output.LIVE if console.is_terminal and not console.is_dumb_terminal else Output.PLAIN


def _renderer(plan: _Plan, board: Board) -> Renderer:
    quiet = plan.options.quiet
    match plan.output:
        case Output.JSONL:
            return JsonlRenderer(sys.stdout)
        case Output.JSON:
            return PlainRenderer(board, sys.stderr, failures_only=True)
        case Output.LIVE if not quiet and _usual_output() is Output.LIVE:
            from rich.console import Console

            from massmem.render.live import LiveRenderer

            return LiveRenderer(board, Console(stderr=True))
        case _:
            return PlainRenderer(board, sys.stderr, failures_only=quiet)


def _conclude(plan: _Plan, board: Board, *, lasting: bool) -> int:
    """Write the answer, say how to go on, and find the exit code. lasting False: there is no going on."""
    if plan.output is Output.JSON:
        write_out(json.dumps(turn_object(board), ensure_ascii=False) + "\n")
    elif plan.output is not Output.JSONL and (text := board.answer or board.prompt) is not None:
        _write_answer(plan, text)
    if lasting:
        _tell_how_to_go_on(plan, board)
    else:
        _tell_it_is_gone(plan, board)
    match board.end:
        case TurnCompleted() as end:
            return LimitReached.exit_code if end.limit is not None else _strict(plan, board)
        case TurnFailed() as end:
            return end.exit_code
        case TurnInterrupted() as end:
            return 130 if end.by == "user" else 143
        case TurnWaiting():
            return EXIT_WAITING
        case TurnAbandoned() as end:
            return LimitReached.exit_code if end.why == "timeout" else 0
        case None:
            raise TurnError("the turn ended without a result", f"try again with: {_command(plan, board.session_id)}")


def _tell_how_to_go_on(plan: _Plan, board: Board) -> None:
    again = _command(plan, board.session_id)
    match board.end:
        case TurnCompleted() if plan.options.quiet:
            pass
        case TurnCompleted():
            _tell(f'{board.session_id}: {again} "next question"')
        case TurnFailed() as end:
            _tell(f"massmem: {printable(end.message)}")
            _tell(*([printable(end.hint)] if end.hint else []), f"try again with: {again}", indent="  ")
        case TurnInterrupted():
            _tell("massmem: stopped; what the agents have done is kept")
            _tell(f"finish this turn with: {again}", indent="  ")
        case TurnWaiting():
            _tell(f'{board.session_id}: answer with: {again} "your answer"')
        case TurnAbandoned() as end:
            _tell(f"massmem: {_GIVEN_UP[end.why]}", f'  ask again with: {again} "your question"')
        case None:
            pass


def _tell_it_is_gone(plan: _Plan, board: Board) -> None:
    if isinstance(board.end, TurnFailed):
        _tell(f"massmem: {printable(board.end.message)}")
        _tell(*([printable(board.end.hint)] if board.end.hint else []), indent="  ")
    if plan.options.no_store:
        if isinstance(board.end, TurnWaiting):
            _tell("massmem: nothing is kept, so this cannot be answered: ask again, with the value in the question")
        return
    _tell(
        *(f"massmem: {printable(notice)}" for notice in board.notices[:1]),
        "  this conversation is gone now, and nothing of it is remembered; start the server before the next one",
    )


def _strict(plan: _Plan, board: Board) -> int:
    return TurnError.exit_code if plan.options.strict and board.failed_agents else 0


def _write_answer(plan: _Plan, answer: str) -> None:
    on_terminal = sys.stdout.isatty()
    if on_terminal and not plan.options.quiet:
        _tell("")
    write_out((printable(answer) if on_terminal else clean_text(answer)).rstrip("\n") + "\n")
    if on_terminal and not plan.options.quiet:
        _tell("")


def _tell_earlier(board: Board) -> None:
    """The turn that had been cut off has ended; stdout belongs to the question asked now."""
    match board.end:
        case TurnCompleted(answer=answer):
            _tell(f"the earlier question, {one_line(board.question, 80)!r}, is answered:", printable(answer), "")
        case TurnFailed(message=message):
            _tell(f"the earlier question, {one_line(board.question, 80)!r}, failed again: {printable(message)}")
        case TurnAbandoned(why=why):
            _tell(f"the earlier question is given up: {_GIVEN_UP[why]}")
        case _:
            pass


def _command(plan: _Plan, session_id: str) -> str:
    config = f" --config {shlex.quote(plan.options.config)}" if plan.options.config else ""
    return f"massmem --session-id {session_id}{config}"


def _tell(*lines: str, indent: str = "") -> None:
    sys.stderr.write("".join(f"{indent}{line}".rstrip() + "\n" for line in lines))
    sys.stderr.flush()
