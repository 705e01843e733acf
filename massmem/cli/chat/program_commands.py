"""/help, /debug and /quit."""

from collections.abc import Sequence

from massmem.cli.chat.command import Command
from massmem.cli.chat.desk import Desk
from massmem.cli.showing import tell
from massmem.cli.streams import write_out
from massmem.errors import InputError

_KEYS = """
Enter sends; Alt-Enter or Ctrl-J begins a new line. Up and Down find what was
typed before, Ctrl-R searches it. Ctrl-C stops a turn and keeps it, twice quits;
Ctrl-D quits. To ask something that begins with /, put a space before it.
"""


def commands(others: Sequence[Command]) -> tuple[Command, ...]:
    """The commands of this family; /help shows `others` too."""

    async def show_help(_desk: Desk, _rest: str) -> None:
        write_out(help_text([*others, *own]) + _KEYS)

    own = (
        Command("debug", "Write a debug log and debug files, or end that.", _debug, "[on | off]", _complete_debug),
        Command("help", "These commands.", show_help),
        Command("quit", "Leave; what is said is kept.", _quit),
    )
    return own


def help_text(table: Sequence[Command]) -> str:
    """A line for each command."""
    left = [f"/{command.name} {command.usage}".rstrip() for command in table]
    width = max(map(len, left))
    return "".join(f"{name:<{width}}  {command.summary}\n" for name, command in zip(left, table, strict=True))


async def _debug(desk: Desk, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise InputError(f"/debug is on or off, not {rest[:20]!r}", "like this: /debug on")
    on = rest == "on" if rest else desk.debug_log is None
    await desk.debug(on=on)
    tell(f"debug log: {desk.debug_log}" if desk.debug_log else "no debug log is written")


async def _complete_debug(_desk: Desk, words: Sequence[str]) -> Sequence[str]:
    return () if words else ("on", "off")


async def _quit(desk: Desk, _rest: str) -> None:
    desk.over = True
