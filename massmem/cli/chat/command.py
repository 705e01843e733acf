"""What a command of interactive mode is."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from massmem.cli.chat.desk import Desk

Run = Callable[[Desk, str], Awaitable[None]]
"""Does what the command says, with the rest of the line."""
Complete = Callable[[Desk, Sequence[str]], Awaitable[Sequence[str]]]
"""What may follow these words."""


async def nothing(_desk: Desk, _words: Sequence[str]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Command:
    """name: without the slash. usage: what follows it."""

    name: str
    summary: str
    run: Run
    usage: str = ""
    complete: Complete = nothing
