"""The generated parts of README.md. cog calls these functions (see scripts/check)."""

import inspect
import subprocess
import sys
from typing import get_args

from massmem.cli.chat.commands import COMMANDS
from massmem.config.show import build_key_table, read_field_docs
from massmem.core import events
from massmem.providers.presets import PRESETS


def help_text(*command: str) -> str:
    """Return what `massmem COMMAND --help` prints, in a code block of fixed width."""
    result = subprocess.run(
        [sys.executable, "-m", "massmem", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "HOME": "/nonexistent"},
    )
    lines = "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())
    return f"```text\n{lines}\n```"


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
        meaning = " ".join([*inspect.getdoc(kind).split(), *meanings])
        rows.append(f"| `{kind.model_fields['type'].default}` | {fields} | {meaning} |")
    return "\n".join(rows)


def backends_table() -> str:
    rows = ["| `type` | key variable | endpoint |", "|---|---|---|"]
    for name, preset in PRESETS.items():
        keys = " or ".join(f"`{v}`" for v in preset.key_variables) or "none"
        if preset.key_variables and not preset.needs_key:
            keys += " (optional)"
        rows.append(f"| `{name}` | {keys} | {_endpoint(preset.base_url, preset.kind, preset.url_variable)} |")
    return "\n".join(rows)


def chat_table() -> str:
    """Return the commands of interactive mode."""
    rows = ["| in a conversation | what |", "|---|---|"]
    for command in COMMANDS.values():
        used = f"/{command.name} {command.usage}".strip().replace("|", "\\|")
        rows.append(f"| `{used}` | {command.summary} |")
    return "\n".join(rows)


def _endpoint(base_url: str, kind: str, variable: str) -> str:
    match kind:
        case "local":
            return "in this process (llama.cpp)"
        case "scripted":
            return "none: it says what its script says"
        case _ if base_url and variable:
            return f"`{base_url}`, or `{variable}`"
        case _ if variable:
            return f"`base_url`, or `{variable}`"
        case _:
            return f"`{base_url}`"
