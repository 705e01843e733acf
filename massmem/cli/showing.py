"""A turn as it is shown: progress on stderr, the answer on stdout."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from massmem.cli.ask import Output
from massmem.cli.streams import write_out
from massmem.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnResumed, TurnStarted
from massmem.messages import clean_text
from massmem.render.base import Renderer
from massmem.render.board import Board
from massmem.render.jsonl import JsonlRenderer
from massmem.render.log import LogRenderer
from massmem.render.plain import PlainRenderer
from massmem.render.printable import one_line, printable

GIVEN_UP = {
    "cancel": "what was asked is given up, as you said",
    "reset": "what was asked is given up, and what you gave before is forgotten",
    "change": "you asked something else",
    "timeout": "nobody replied in time",
    "gave_up": "it was asked for often enough",
}


async def show(source: AsyncGenerator[Event, None], board: Board, output: Output, *, quiet: bool) -> None:
    """Show a turn, and one that was cut off before it; the board shows the last."""
    renderers = (_renderer(board, output, quiet=quiet), LogRenderer(board))
    try:
        async with aclosing(source) as events:
            async for event in events:
                if isinstance(event, TurnStarted | TurnResumed) and board.end is not None:
                    _tell_earlier(board)
                board.feed(event)
                for renderer in renderers:
                    renderer.feed(event)
    finally:
        for renderer in renderers:
            renderer.close()


def usual_output() -> Output:
    """What suits the terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return Output.LIVE if console.is_terminal and not console.is_dumb_terminal else Output.PLAIN


def _renderer(board: Board, output: Output, *, quiet: bool) -> Renderer:
    match output:
        case Output.JSONL:
            return JsonlRenderer(sys.stdout)
        case Output.JSON:
            return PlainRenderer(board, sys.stderr, failures_only=True)
        case Output.LIVE if not quiet and usual_output() is Output.LIVE:
            from rich.console import Console

            from massmem.render.live import LiveRenderer

            return LiveRenderer(board, Console(stderr=True))
        case _:
            return PlainRenderer(board, sys.stderr, failures_only=quiet)


def write_answer(answer: str, *, quiet: bool) -> None:
    """To stdout: for a program as it is, for a terminal laid out, or at least harmless where it can do nothing."""
    if not sys.stdout.isatty():
        write_out(clean_text(answer).rstrip("\n") + "\n")
        return
    if not quiet:
        tell("")
    if usual_output() is Output.LIVE:
        from massmem.render.answer import laid_out

        write_out(laid_out(answer, sys.stdout))
    else:
        write_out(printable(answer).rstrip("\n") + "\n")
    if not quiet:
        tell("")


def tell(*lines: str, indent: str = "") -> None:
    """Lines to stderr, as they are."""
    sys.stderr.write("".join(f"{indent}{line}".rstrip() + "\n" for line in lines))
    sys.stderr.flush()


def _tell_earlier(board: Board) -> None:
    """The turn that had been cut off has ended; stdout belongs to the question asked now."""
    match board.end:
        case TurnCompleted(answer=answer):
            tell(f"the earlier question, {one_line(board.question, 80)!r}, is answered:", printable(answer), "")
        case TurnFailed(message=message):
            tell(f"the earlier question, {one_line(board.question, 80)!r}, failed again: {printable(message)}")
        case TurnAbandoned(why=why):
            tell(f"the earlier question is given up: {GIVEN_UP[why]}")
        case _:
            pass
