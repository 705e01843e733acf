"""The generated parts of README.md and docs/. cog calls these functions (see scripts/check)."""

import contextlib
import inspect
import io
import os
from collections.abc import Iterator
from typing import get_args

from typer.core import TyperGroup
from typer.main import get_command

from massmem.cli.chat.commands import COMMANDS as CHAT_COMMANDS
from massmem.cli.commands import COMMANDS, load_command
from massmem.cli.main import main
from massmem.config.show import build_key_table, read_field_docs
from massmem.core import events
from massmem.providers.presets import PRESETS


def help_text(*command: str) -> str:
    """Return what `massmem COMMAND --help` prints at a width of 80 columns, as a code block."""
    os.environ.update(COLUMNS="80", TERMINAL_WIDTH="80", NO_COLOR="1")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        main([*command, "--help"])
    lines = "\n".join(line.rstrip() for line in output.getvalue().strip().splitlines())
    return f"```text\n{lines}\n```"


def all_help_texts() -> str:
    """Return a section for each command, with the help of its subcommands."""
    sections = [f"## massmem {' '.join(path)}\n\n{help_text(*path)}" for path in _command_paths()]
    return "\n\n".join(sections)


def _command_paths() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        yield (name,)
        command = get_command(load_command(name))
        if isinstance(command, TyperGroup):
            yield from ((name, subcommand) for subcommand, value in command.commands.items() if not value.hidden)


def config_table() -> str:
    return build_key_table()


def events_table() -> str:
    """Return one row per event: its name, its fields, its meaning and that of its fields."""
    rows = ["| event | fields | meaning |", "|---|---|---|"]
    docs = read_field_docs(events)
    for kind in get_args(get_args(events.Event)[0]):
        names = [name for name in kind.model_fields if name not in {"type", "at"}]
        fields = ", ".join(f"`{name}`" for name in names)
        meanings = [f"`{name}`: {docs[kind.__name__, name]}" for name in names if (kind.__name__, name) in docs]
        meaning = " ".join([*(inspect.getdoc(kind) or "").split(), *meanings])
        rows.append(f"| `{kind.model_fields['type'].default}` | {fields} | {meaning} |")
    return "\n".join(rows)


def backends_table() -> str:
    """Return one row per backend type: its key variable and its endpoint."""
    rows = ["| `type` | key variable | endpoint |", "|---|---|---|"]
    for name, preset in PRESETS.items():
        keys = " or ".join(f"`{v}`" for v in preset.key_variables) or "none"
        if preset.key_variables and not preset.needs_key:
            keys += " (optional)"
        rows.append(f"| `{name}` | {keys} | {_endpoint(preset.base_url, preset.kind, preset.url_variable)} |")
    return "\n".join(rows)


def chat_table() -> str:
    """Return the commands of interactive mode."""
    rows = ["| command | what it does |", "|---|---|"]
    for command in CHAT_COMMANDS.values():
        usage = f"/{command.name} {command.usage}".strip().replace("|", "\\|")
        rows.append(f"| `{usage}` | {command.summary} |")
    return "\n".join(rows)


def _endpoint(base_url: str, kind: str, variable: str) -> str:
    match kind:
        case "local":
            return "in this process (llama.cpp)"
        case "scripted":
            return "none: the configuration contains the replies"
        case _ if base_url and variable:
            return f"`{base_url}`, or `{variable}`"
        case _ if variable:
            return f"`base_url`, or `{variable}`"
        case _:
            return f"`{base_url}`"
