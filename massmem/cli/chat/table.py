"""Every command of interactive mode in one table."""

import difflib

from massmem.cli.chat import memory_commands, program_commands, session_commands, talk_commands, team_commands
from massmem.cli.chat.command import Command
from massmem.errors import InputError

_OTHERS = (
    *team_commands.COMMANDS,
    *talk_commands.COMMANDS,
    *memory_commands.COMMANDS,
    *session_commands.COMMANDS,
)
COMMANDS: dict[str, Command] = {
    command.name: command for command in (*_OTHERS, *program_commands.commands(_OTHERS))
}  # fmt: skip


def find(name: str) -> Command:
    """The command of this name, or the only one whose name begins so.

    Raises:
        InputError: there is none, or there are several; the hint names those that may be meant.
    """
    if name in COMMANDS:
        return COMMANDS[name]
    begun = [each for each in COMMANDS if name and each.startswith(name)]
    if len(begun) == 1:
        return COMMANDS[begun[0]]
    near = begun or difflib.get_close_matches(name, COMMANDS, n=2)
    hint = f"did you mean {' or '.join(f'/{each}' for each in near)}?" if near else "see what there is with: /help"
    raise InputError(f"there is no command /{name[:40]}", f"{hint} To ask it, put a space before it")
