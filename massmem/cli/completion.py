"""`massmem completion`: the script that makes a shell complete massmem's commands, options and sessions."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from massmem.cli.commands import ASK, load
from massmem.cli.streams import say
from massmem.errors import InputError


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_HOW = {
    Shell.BASH: """add this line to ~/.bashrc: eval "$(massmem completion bash)\"""",
    Shell.ZSH: """add this line to ~/.zshrc, after compinit: eval "$(massmem completion zsh)\"""",
    Shell.FISH: "run once: massmem completion fish > ~/.config/fish/completions/massmem.fish",
}

app = typer.Typer(help="Print the script for completion in a shell.")


@app.callback(invoke_without_command=True)
def completion_command(
    shell: Annotated[Shell | None, typer.Argument(metavar="[bash|zsh|fish]", help="[default: yours]")] = None,
) -> None:
    """Print the script with which a shell completes massmem's commands, options and session ids."""
    chosen = shell or _own_shell()
    # The protocol between Typer and the shells: with this variable set, a program prints its script.
    os.environ["_MASSMEM_COMPLETE"] = f"source_{chosen.value}"
    if os.isatty(1):
        say(_HOW[chosen])
    get_command(load(ASK)).main(args=[], prog_name="massmem", standalone_mode=False)


def _own_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in set(Shell):
        raise InputError(f"there is no script for the shell {name!r}", "name one: massmem completion bash|zsh|fish")
    return Shell(name)
