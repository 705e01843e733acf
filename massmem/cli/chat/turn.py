"""One turn of a conversation at a terminal: shown, stopped with Ctrl-C, and what is to be said when it has ended."""

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from massmem.cli.chat.desk import Desk
from massmem.cli.chat.interrupts import Interrupts
from massmem.cli.question import checked
from massmem.cli.showing import GIVEN_UP, show, tell, write_answer
from massmem.errors import SessionBusyError
from massmem.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting
from massmem.render.board import Board
from massmem.render.printable import printable
from massmem.session.session import Session


async def run_turn(desk: Desk, interrupts: Interrupts, question: str | None) -> None:
    """Ask the question, or go on with the unfinished turn when there is none, and tell what came of it.

    Raises:
        MassmemError: whatever ends it before its end; the conversation can go on.
    """
    board = Board()
    asked = None if question is None else checked(question)
    turn = _Turn(desk.session, asked)
    options = desk.plan.options
    shown = show(turn.events(), board, desk.plan.output, quiet=options.quiet)
    await interrupts.run(shown, turn.stop, turn.end)
    desk.board = board
    _conclude(desk, board)


class _Turn:
    def __init__(self, session: Session, question: str | None) -> None:
        self._session = session
        self._question = question
        self._begun = False
        self._stopping = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """When another process runs a turn of the session, they come after that."""
        try:
            async with aclosing(self._asked()) as events:
                async for event in events:
                    self._begun = True
                    yield event
            return
        except SessionBusyError as e:
            if self._begun:
                raise
            tell(f"{e.message}; waiting for it to end (Ctrl-C: do not wait)")
        self._session.wait = math.inf
        try:
            async with aclosing(self._asked()) as events:
                async for event in events:
                    self._begun = True
                    yield event
        finally:
            self._session.wait = 0.0

    def stop(self) -> bool:
        """Ctrl-C: end the turn in good order, so that it can be finished. False: there is nothing to wait for."""
        if not self._begun or self._stopping:
            return False
        self._stopping = True
        self._session.stop("user")
        return True

    def end(self) -> bool:
        """The program ends. False: as `stop`."""
        self._session.stop("signal")
        return self._begun

    def _asked(self) -> AsyncGenerator[Event, None]:
        return self._session.finish_turn() if self._question is None else self._session.ask(self._question)


def _conclude(desk: Desk, board: Board) -> None:
    """Write the answer, or what the user is asked for, and say how to go on."""
    if (text := board.answer or board.prompt) is not None:
        write_answer(text, quiet=desk.plan.options.quiet)
    match board.end:
        case TurnFailed() as end:
            tell(f"massmem: {printable(end.message)}")
            tell(*([printable(end.hint)] if end.hint else []), "/continue tries again", indent="  ")
        case None if not board.session_id:
            tell("it was not asked")
        case TurnInterrupted() | None:
            tell("stopped; what the agents have done is kept")
            tell("/continue finishes this turn; another question gives it up", indent="  ")
        case TurnAbandoned() as end:
            tell(GIVEN_UP[end.why])
        case TurnCompleted() | TurnWaiting():
            pass
