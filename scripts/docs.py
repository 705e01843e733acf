"""The generated parts of README.md and docs/. cog calls these functions (see scripts/check)."""

import ast
import contextlib
import inspect
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperGroup

from massmem.cli.chat.commands import COMMANDS as CHAT_COMMANDS
from massmem.cli.commands import COMMANDS, load_command, make_parser
from massmem.cli.main import main
from massmem.config.load import section_in
from massmem.config.massgen import KEYS, PROGRAMS
from massmem.config.models import Section, TeamConfig
from massmem.config.presets import PRESETS, Preset
from massmem.config.show import MODULES, NO_KEYS, read_field_docs
from massmem.core import events
from massmem.core.turn_result import AgentAnswer, AgentResult, TurnResult

_TYPE_NAMES: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", SecretStr: "secret"
}  # fmt: skip
_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
_KEY_MARKS: dict[Any, str] = {tuple: "[]", dict: ".NAME"}
_SECTION_TYPES = {"[]": "list of sections", ".NAME": "sections by name", "": "section"}
_LISTED_ELSEWHERE = {"agents[].backend.fallback[]", "agents[].memory"}
"""Sections whose keys another section lists."""


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
        command = make_parser(load_command(name))
        if isinstance(command, TyperGroup):
            yield from ((name, subcommand) for subcommand, value in command.commands.items() if not value.hidden)


def config_table() -> str:
    """Return a Markdown table: key, type, default and meaning of everything that a configuration file may hold."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for cells in _list_rows(TeamConfig, "", read_field_docs(*MODULES)):
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def events_table() -> str:
    """Return one row per event: its name, its fields, its meaning and that of its fields."""
    rows = ["| event | fields | meaning |", "|---|---|---|"]
    docs = read_field_docs(events)
    for kind in get_args(events.Event):
        names = [name for name in kind.__struct_fields__ if name != "at"]
        fields = ", ".join(f"`{name}`" for name in names)
        meanings = [f"`{name}`: {docs[kind.__name__, name]}" for name in names if (kind.__name__, name) in docs]
        meaning = " ".join([*(inspect.getdoc(kind) or "").split(), *meanings])
        rows.append(f"| `{kind.type}` | {fields} | {meaning} |")
    return "\n".join(rows)


def result_table() -> str:
    """Return one row per field of the result of a turn, and of an agent in it."""
    rows = ["| field | meaning |", "|---|---|"]
    for kind, place in ((TurnResult, ""), (AgentResult, "agents[]."), (AgentAnswer, "agents[].answers[].")):
        for name, field in kind.model_fields.items():
            rows.append(f"| {place and f'`{place}` '}`{name}` | {field.description or ''} |")
    return "\n".join(rows)


def backends_table() -> str:
    """Return one row per backend type: its key variable and its endpoint."""
    rows = ["| `type` | key variable | endpoint |", "|---|---|---|"]
    for name, preset in PRESETS.items():
        keys = " or ".join(f"`{v}`" for v in preset.key_variables) or "none"
        if preset.key_variables and not preset.needs_key:
            keys += " (optional)"
        rows.append(f"| `{name}` | {keys} | {_endpoint(preset)} |")
    return "\n".join(rows)


def chat_table() -> str:
    """Return the commands of interactive mode."""
    rows = ["| command | what it does |", "|---|---|"]
    for command in CHAT_COMMANDS.values():
        usage = f"/{command.name} {command.usage}".strip().replace("|", "\\|")
        rows.append(f"| `{usage}` | {command.summary} |")
    return "\n".join(rows)


def massgen_table() -> str:
    """Return what becomes of the keys of MassGen's configurations."""
    kinds = {"works": "works here, as", "missing": "is missing here", "nothing": "means nothing here"}
    places = {"": "", "agent": "agents[].", "backend": "backend.", "server": "mcp_servers[]."}
    places |= {"orchestrator": "orchestrator.", "coordination": "orchestrator.coordination."}
    places["timeouts"] = "timeout_settings."
    parts: list[str] = []
    for kind, title in kinds.items():
        lines = [f"| key of MassGen | {title} |" + (" instead |" if kind == "missing" else "")]
        lines.append("|---|---|" + ("---|" if kind == "missing" else ""))
        for row in (row for row in KEYS if row.kind == kind):
            keys = ", ".join(f"`{places[row.section]}{key}`" for key in row.keys.split())
            lines.append(f"| {keys} | {row.meaning} |" + (f" {row.instead} |" if kind == "missing" else ""))
        if kind == "missing":
            lines += [f"| `backend.type: {name}` | {what} | {instead} |" for name, (what, instead) in PROGRAMS.items()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def coming_from_table() -> str:
    """Return what the documents print that people come from, and what it is here: the marks of tests/seeds."""
    parts: list[str] = []
    for path in sorted((Path(__file__).parents[1] / "tests" / "seeds").glob("test_*.py")):
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "seed"]
        marks = [[ast.literal_eval(value).replace("|", r"\|") for value in call.args] for call in calls]
        title, _, about = (ast.get_docstring(tree) or "").partition("\n\n")
        as_printed = "\n".join(f"- {mark[0]}" for mark in marks if len(mark) == 1)
        others = "\n".join(f"| {' | '.join(mark)} |" for mark in marks if len(mark) > 1)
        table = f"| printed | here | why |\n|---|---|---|\n{others}"
        parts.append(f"## {title}\n\n{about}\n\n{table}\n\nAs it is printed runs:\n\n{as_printed}")
    return "\n\n".join(parts)


def _endpoint(preset: Preset) -> str:
    base_url, variable = preset.base_url, preset.url_variable
    match preset.kind:
        case "acp" if preset.program is not None:
            command = " ".join(preset.program.command) or "command"
            return f"the [agent program](#agent-programs) `{command}`"
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


def _list_rows(section: type[Section], prefix: str, docs: dict[tuple[str, str], str]) -> Iterator[tuple[str, ...]]:
    for name, info in section.model_fields.items():
        if name in NO_KEYS:
            continue
        inner = section_in(info.annotation)
        mark = _KEY_MARKS.get(get_origin(info.annotation), "") if inner else ""
        key = prefix + name + mark
        kind = _SECTION_TYPES[mark] if inner else _describe_type(info)
        yield f"`{key}`", kind, _describe_default(info), docs[section.__name__, name]
        if inner and key not in _LISTED_ELSEWHERE:
            yield from _list_rows(inner, key + ".", docs)


def _describe_type(info: FieldInfo) -> str:
    limits = [
        f"{sign} {limit}"
        for name, sign in _BOUNDS
        for part in info.metadata
        if (limit := getattr(part, name, None)) is not None
    ]
    return ", ".join([_name_type(info.annotation), *limits])


def _name_type(annotation: Any) -> str:
    arguments = get_args(annotation)
    match get_origin(annotation):
        case None:
            return _TYPE_NAMES.get(annotation, "anything")
        case origin if origin is Literal:
            return ", ".join(f"`{choice}`" for choice in arguments)
        case origin if origin is Annotated:
            return _name_type(arguments[0])
        case origin if origin in (Union, UnionType):
            return " or ".join(_name_type(part) for part in arguments if part is not type(None))
        case origin if origin is tuple:
            return f"list of {_name_type(arguments[0])}"
        case _:
            return f"mapping to {_name_type(arguments[1])}"


def _describe_default(info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, Section) or default in (None, "", (), {}):
        return ""
    return f"`{json.dumps(default)}`" if not isinstance(default, str) else f"`{default}`"
