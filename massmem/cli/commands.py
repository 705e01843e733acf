"""Every command in one table. A module is imported only when its command is used."""

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from massmem.errors import InputError

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class Command:
    """module: where the command's Typer app lives, under the name `app`."""

    module: str
    summary: str


ASK = "ask"

COMMANDS: dict[str, Command] = {
    ASK: Command("massmem.cli.ask", "Answer a question (the default), also one that is a command's name."),
    "memory": Command("massmem.cli.memory", "Search, show, forget and rebuild what is remembered."),
    "sessions": Command("massmem.cli.sessions", "Find, read, name, export and delete conversations."),
    "init": Command("massmem.cli.init", "Find keys and models, and write a configuration."),
    "doctor": Command("massmem.cli.doctor", "Check everything that a question needs, and say what to do."),
    "config": Command("massmem.cli.config", "Check a configuration, and show what of it counts."),
    "paths": Command("massmem.cli.paths", "Show where everything is kept."),
    "models": Command("massmem.cli.models", "Show the models there are; fetch those that run on this machine."),
    "store": Command("massmem.cli.store", "Move sessions to another database, or save them from a damaged one."),
    "serve": Command("massmem.cli.serve", "Serve the team over HTTP."),
    "token": Command("massmem.cli.token", "Make tokens for users of the HTTP service."),
    "completion": Command("massmem.cli.completion", "Print the script for completion in a shell."),
}


def load(name: str) -> "typer.Typer":
    app: typer.Typer = import_module(COMMANDS[name].module).app
    return app


def overview() -> str:
    """The table as help text, kept line by line."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\b\nCommands:\n" + "\n".join(lines) + "\n\nmassmem COMMAND --help says more."


def refuse_mistyped_command(question: str) -> None:
    """A lone word that is nearly a command's name is more likely a slip than a question worth paying for.

    Raises:
        InputError: with both readings spelled out.
    """
    near = difflib.get_close_matches(question, COMMANDS, n=1, cutoff=0.8)
    if near and question not in COMMANDS:
        raise InputError(
            f"{question!r} is no command", f'did you mean: massmem {near[0]}? To ask it: massmem ask "{question}"'
        )
