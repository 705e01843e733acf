"""Runs one turn: from the options of a command line to the answer on stdout and the exit code."""

import asyncio
import json
import logging
import math
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from massmem.cli.ask import Output, RunOptions
from massmem.cli.logs import debug_log_path, log_nowhere, log_to_file
from massmem.cli.plan import Plan
from massmem.cli.question import is_interactive, no_question, read_question
from massmem.cli.showing import GIVEN_UP, show, tell, usual_output, write_answer
from massmem.cli.signals import Stopper
from massmem.cli.streams import write_out
from massmem.cli.team import load_team, read_dotenv
from massmem.errors import InputError, LimitReached, SessionBusyError, TurnError
from massmem.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting
from massmem.home import massmem_home
from massmem.render.board import Board
from massmem.render.printable import printable
from massmem.render.result import turn_object
from massmem.session.session import Session
from massmem.session_ids import check_session_name

EXIT_WAITING = 6


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
    debug_log = debug_log_path(Path.cwd()) if options.debug else None
    plan = Plan(options, options.output or usual_output(), config, home, question, debug_log)
    if question is None and is_interactive(options.output):
        from massmem.cli.chat.loop import chat

        return chat(plan)
    if question is None and not options.newest and options.session_id is None and config.session_id is None:
        raise no_question()
    stopper = Stopper()
    try:
        return asyncio.run(_run(plan, stopper))
    except asyncio.CancelledError:
        return stopper.exit_code or 1


async def _run(plan: Plan, stopper: Stopper) -> int:
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
            return _conclude(plan, await _shown(plan, session), lasting=session.lasting)
        finally:
            await session.close()


def _start_logging(plan: Plan, session: Session) -> None:
    if plan.options.no_store:
        log_nowhere()
        return
    if plan.debug_log is None:
        log_to_file(plan.home / "logs" / "massmem.log", logging.WARNING, lambda: session.hidden)
        return
    log_to_file(plan.debug_log, logging.DEBUG, lambda: session.hidden)
    if not plan.options.quiet:
        tell(f"debug log: {plan.debug_log}")


async def _shown(plan: Plan, session: Session) -> Board:
    board = Board()
    await show(_events(plan, session), board, plan.output, quiet=plan.options.quiet)
    return board


async def _events(plan: Plan, session: Session) -> AsyncGenerator[Event, None]:
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
        tell(f"{e.message}; waiting for it to end")
    session.wait = math.inf
    async with aclosing(_asked(plan, session)) as events:
        async for event in events:
            yield event


def _asked(plan: Plan, session: Session) -> AsyncGenerator[Event, None]:
    if plan.question is not None:
        return session.ask(plan.question)
    if session.unfinished is None:
        raise InputError(
            f"{session.id} has no unfinished turn, so there must be a question",
            f'ask like this: massmem --session-id {session.id} "your question"',
        )
    return session.finish_turn()


def _conclude(plan: Plan, board: Board, *, lasting: bool) -> int:
    """Write the answer, say how to go on, and find the exit code. lasting False: there is no going on."""
    if plan.output is Output.JSON:
        write_out(json.dumps(turn_object(board), ensure_ascii=False) + "\n")
    elif plan.output is not Output.JSONL and (text := board.answer or board.prompt) is not None:
        write_answer(text, quiet=plan.options.quiet)
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
            raise TurnError("the turn ended without a result", f"try again with: {plan.command(board.session_id)}")


def _tell_how_to_go_on(plan: Plan, board: Board) -> None:
    again = plan.command(board.session_id)
    match board.end:
        case TurnCompleted() if plan.options.quiet:
            pass
        case TurnCompleted():
            tell(f'{board.session_id}: {again} "next question"')
        case TurnFailed() as end:
            tell(f"massmem: {printable(end.message)}")
            tell(*([printable(end.hint)] if end.hint else []), f"try again with: {again}", indent="  ")
        case TurnInterrupted():
            tell("massmem: stopped; what the agents have done is kept")
            tell(f"finish this turn with: {again}", indent="  ")
        case TurnWaiting():
            tell(f'{board.session_id}: answer with: {again} "your answer"')
        case TurnAbandoned() as end:
            tell(f"massmem: {GIVEN_UP[end.why]}", f'  ask again with: {again} "your question"')
        case None:
            pass


def _tell_it_is_gone(plan: Plan, board: Board) -> None:
    if isinstance(board.end, TurnFailed):
        tell(f"massmem: {printable(board.end.message)}")
        tell(*([printable(board.end.hint)] if board.end.hint else []), indent="  ")
    if plan.options.no_store:
        if isinstance(board.end, TurnWaiting):
            tell("massmem: nothing is kept, so this cannot be answered: ask again, with the value in the question")
        return
    tell(
        *(f"massmem: {printable(notice)}" for notice in board.notices[:1]),
        "  this conversation is gone now, and nothing of it is remembered; start the server before the next one",
    )


def _strict(plan: Plan, board: Board) -> int:
    return TurnError.exit_code if plan.options.strict and board.failed_agents else 0
