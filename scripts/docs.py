"""The generated parts of README.md; cog calls these functions (see scripts/check)."""

import inspect
import subprocess
import sys
from typing import get_args

from massmem import config, events
from massmem.cli.chat import table
from massmem.config.models import TeamConfig
from massmem.providers.presets import PRESETS


def help_text(*command: str) -> str:
    """What `massmem COMMAND --help` prints, in a code block of fixed width."""
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
    assert TeamConfig.model_fields  # the table below is made from the same models
    return config.reference()


def events_table() -> str:
    """One row per event: its name, its fields, what it means."""
    rows = ["| event | fields | meaning |", "|---|---|---|"]
    for kind in get_args(get_args(events.Event)[0]):
        fields = ", ".join(f"`{name}`" for name in kind.model_fields if name not in {"type", "at"})
        meaning = " ".join(inspect.getdoc(kind).split()) if kind.__doc__ else ""
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
    """The commands of interactive mode."""
    rows = ["| in a conversation | what |", "|---|---|"]
    for command in table.COMMANDS.values():
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
