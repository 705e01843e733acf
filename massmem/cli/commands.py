"""The commands in one table. A module is imported only when its command is used.

To add a command, write a Typer app in a module and add its line to COMMANDS.
"""

import difflib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from massmem.config.home import ALLOW_MISSING_VARIABLE
from massmem.core.errors import InputError

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class Command:
    app: str
    """The Typer app, as in an entry point: module:name."""
    summary: str


ASK = "ask"
_ALLOW_MISSING = "Go on without what a file of MassGen asks for and massmem lacks, and say what."

COMMANDS: dict[str, Command] = {
    ASK: Command("massmem.cli.options:app", "Answer a question (the default); also one word like `memory`."),
    "memory": Command("massmem.cli.memory:app", "Search, show, forget and rebuild memories."),
    "sessions": Command("massmem.cli.sessions:app", "Find, read, rename, export and delete conversations."),
    "export": Command("massmem.cli.sessions:export_app", "Write all conversations to a folder, for massmem import."),
    "replay": Command("massmem.cli.replay:app", "Run a turn again with something changed, and compare."),
    "import": Command("massmem.cli.store:import_app", "Make sessions of the conversations that other programs export."),
    "init": Command("massmem.cli.init:app", "Find keys and models, and write a configuration."),
    "keys": Command("massmem.cli.keys:app", "Store your keys for model providers (OpenAI, Anthropic, ...)."),
    "doctor": Command("massmem.cli.doctor:app", "Check everything that a question needs, and say what to fix."),
    "config": Command("massmem.cli.config:app", "Check a configuration, and show its settings."),
    "paths": Command("massmem.cli.config:paths_app", "Show where massmem keeps its files."),
    "models": Command("massmem.cli.models:app", "List the available models; download those for this machine."),
    "review": Command("massmem.cli.review:app", "Let the team review a change: a diff, a branch, a document."),
    "jobs": Command("massmem.cli.jobs:app", "List what a team can do, such as decide or premortem."),
    "eval": Command("massmem.cli.eval:app", "Measure how well teams answer questions whose answers are known."),
    "store": Command("massmem.cli.store:app", "Back up sessions, move them, recover damaged ones."),
    "ui": Command("massmem.cli.serve:ui_app", "Talk to the team in a browser."),
    "serve": Command("massmem.cli.serve:app", "Serve the team over HTTP."),
    "worker": Command("massmem.cli.serve:worker_app", "Record and compress for a service that leaves that to workers."),
    "mcp": Command("massmem.cli.serve:mcp_app", "Let other agents ask the team, by MCP on stdin and stdout."),
    "skill": Command("massmem.cli.skill:app", "Tell Claude Code, Codex, OpenCode and Cursor of the team."),
    "acp": Command("massmem.cli.serve:acp_app", "Put the team into your editor: ACP on stdin and stdout."),
    "key": Command("massmem.cli.access:key_app", "Create and revoke keys with which users call `massmem serve`."),
    "token": Command("massmem.cli.access:token_app", "Create tokens that expire soon, for users of `massmem serve`."),
    "completion": Command("massmem.cli.options:completion_app", "Print the script for shell completion."),
}


def load_command(name: str) -> "typer.Typer":
    """Import a command and return its app."""
    module, _, variable = COMMANDS[name].app.partition(":")
    app: typer.Typer = getattr(import_module(module), variable)
    return app


def load_program(name: str) -> "typer.Typer":
    """Return a program that has just this command, so that no other command is imported."""
    import typer

    root = typer.Typer(
        rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
    )
    app = load_command(name)
    if app.registered_callback is None and len(app.registered_commands) == 1:
        root.callback()(lambda: None)  # without it Typer would drop the name of the only command
        root.command(name)(app.registered_commands[0].callback)  # pyright: ignore[reportArgumentType]
    else:
        root.add_typer(app, name=name)
    return root


def make_parser(app: "typer.Typer") -> Any:
    """Return Typer's parser of an app, in which every command that takes `--config` takes `--allow-missing` as well."""
    from typer.core import TyperGroup
    from typer.main import get_command

    root = get_command(app)
    waiting = [root]
    while waiting:
        command = waiting.pop()
        waiting += command.commands.values() if isinstance(command, TyperGroup) else ()
        place = next((i for i, parameter in enumerate(command.params, 1) if parameter.name == "config"), None)
        if place is not None:
            command.params[place:place] = get_command(_make_flags()).params[:1]
    return root


def _make_flags() -> "typer.Typer":
    """Return an app with the option that all commands with a configuration have."""
    import typer

    def allow_missing(is_given: bool) -> None:
        if is_given:
            os.environ[ALLOW_MISSING_VARIABLE] = "1"  # processes that the command starts read the file, too

    flags = typer.Typer(add_completion=False)
    option = typer.Option("--allow-missing", help=_ALLOW_MISSING, callback=allow_missing, expose_value=False)

    @flags.command()
    def command(allow_missing: Annotated[bool, option] = False) -> None: ...

    return flags


def format_overview() -> str:
    """Return the table as help text; `\\b` keeps its line breaks."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\b\nCommands:\n" + "\n".join(lines) + "\n\nFor details: massmem COMMAND --help"


def translate_everyday_word(arguments: Sequence[str]) -> list[str]:
    """Return the command line that is meant by `help`, `help COMMAND`, `version` or `chat`; other ones unchanged.

    Raises InputError for a word such as `login`, of which massmem has nothing.
    """
    match arguments:
        case ["help"]:
            return ["--help"]
        case ["help", name] if name in COMMANDS:
            return [name, "--help"]
        case ["version"]:
            return ["--version"]
        case ["chat", *options] if not options or options[0].startswith("-"):
            return options
        case ["login" | "logout" | "signin" | "signup" as word]:
            raise InputError(
                f"massmem has no account, so there is no {word}",
                "it uses the API keys of model providers: run `massmem init`, or `massmem keys set openai`. "
                + _how_to_ask_word(word),
            )
        case ["update" | "upgrade" as word]:
            raise InputError(
                f"massmem cannot {word} itself",
                "run: pip install --upgrade massmem (or: uv tool upgrade massmem). " + _how_to_ask_word(word),
            )
        case _:
            return list(arguments)


def refuse_mistyped_command(arguments: Sequence[str]) -> None:
    """Refuse a first word that is nearly a command: it is more likely a typo than a question worth its cost.

    Raises InputError with the command lines of both meanings.
    """
    word = arguments[0]
    near = [] if word.startswith("-") else difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.8)
    if near and word not in COMMANDS:
        meant = shlex.join(["massmem", near[0], *arguments[1:]])
        raise InputError(f"{word!r} is not a command", f"did you mean: {meant}? {_how_to_ask_word(word)}")


def _how_to_ask_word(word: str) -> str:
    return f'To ask it as a question: massmem ask "{word}"'
