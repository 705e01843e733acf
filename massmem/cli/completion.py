"""Shell completion: `massmem completion` prints the script, and these functions offer values while a user types."""

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.commands import ASK, COMMANDS, load_command, load_program
from massmem.cli.streams import notify
from massmem.core.errors import InputError, MassmemError

_MAX_OFFERS = 50


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_HOW_TO_INSTALL = {
    Shell.BASH: """add this line to ~/.bashrc: eval "$(massmem completion bash)\"""",
    Shell.ZSH: """add this line to ~/.zshrc, after compinit: eval "$(massmem completion zsh)\"""",
    Shell.FISH: "run once: massmem completion fish > ~/.config/fish/completions/massmem.fish",
}

app = typer.Typer(help="Print the script for shell completion.")


@app.command()
def completion_command(
    shell: Annotated[Shell | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish. [default: yours]")] = None,
) -> None:
    """Print the script with which a shell completes massmem's commands, options and session ids."""
    from typer.main import get_command

    chosen = shell or _detect_shell()
    # Typer's protocol: with this variable set, a program prints its completion script.
    os.environ["_MASSMEM_COMPLETE"] = f"source_{chosen.value}"
    if os.isatty(1):
        notify(_HOW_TO_INSTALL[chosen])
    get_command(load_command(ASK)).main(args=[], prog_name="massmem", standalone_mode=False)


def complete() -> int:
    """Answer a request of the shell, and return the exit code.

    The arguments of a command are completed by that command, everything else by the run command, which offers the
    names of all commands.
    """
    from typer.main import get_command

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = line.split()  # some shells separate the words with newlines
    name = words[1] if len(words) > 2 or (len(words) == 2 and line[-1:].isspace()) else ASK
    is_command = name in COMMANDS and name != ASK
    get_command(load_program(name) if is_command else load_command(ASK)).main(args=[], prog_name="massmem")
    return 0


def offer_commands(incomplete: str) -> Iterator[tuple[str, str]]:
    return ((name, command.summary) for name, command in COMMANDS.items() if name.startswith(incomplete))


def offer_sessions(incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer the newest sessions whose ids start so, with their descriptions; none when the registry is unreadable."""
    # Imported here because `massmem --help` imports this module.
    from massmem.config.home import massmem_home
    from massmem.core.text import one_line
    from massmem.session.registry import Registry

    try:
        registry = Registry(massmem_home())
        entries = registry.read_entries() if registry.path.exists() else []
    except MassmemError:
        return
    matches = [entry for entry in entries if entry.session_id.startswith(incomplete)]
    for entry in matches[:_MAX_OFFERS]:
        yield entry.session_id, one_line(entry.description, 60)


def offer_agents(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Offer the agents of the configuration and `user`; none when the configuration is invalid."""
    from massmem.cli.setup import read_environment
    from massmem.config.home import massmem_home
    from massmem.config.load import load_named

    config: str | None = context.params.get("config")
    try:
        read_environment()
        team = load_named(config or None, os.environ, massmem_home()).team
    except MassmemError:
        return
    for agent_id in (*(agent.id for agent in team.agents), "user"):
        if agent_id.startswith(incomplete):
            yield agent_id


def _detect_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in set(Shell):
        raise InputError(f"there is no script for the shell {name!r}", "name one: massmem completion bash|zsh|fish")
    return Shell(name)
