"""`massmem config`: whether a configuration is right, what of it counts, and its schema for editors."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from massmem.cli.streams import say, write_out
from massmem.cli.team import one_file, read_dotenv
from massmem.config.load import Loaded, find_config, load, load_default
from massmem.config.origins import Setting, settings
from massmem.config.problems import dotted
from massmem.home import massmem_home
from massmem.render.printable import printable

app = typer.Typer(no_args_is_help=True, help="Check a configuration, and show what of it counts.")

File = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A file or @examples/NAME. [default: as for a question]")
]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="The same as FILE, as all commands have it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("validate")
def validate_command(file: File = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check a configuration: all problems at once, each with its line. Nothing is asked of any server."""
    loaded = _loaded(one_file(file, config))
    if as_json:
        rows = {"valid": True, "file": loaded.team.source, "warnings": loaded.warnings}
        _print_json(rows | {"agents": [agent.id for agent in loaded.team.agents]})
        return
    for warning in loaded.warnings:
        say(warning)
    agents = ", ".join(f"{a.id} ({' '.join([a.backend.type, a.backend.model]).strip()})" for a in loaded.team.agents)
    write_out(printable(f"{loaded.team.source}: valid; agents: {agents}") + "\n")


@app.command("show")
def show_command(file: File = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show every setting that counts and where it comes from: the file, the environment, or the default.

    The output is YAML; secrets are masked. Left out are keys that differ from their default just by being there.
    """
    loaded = _loaded(one_file(file, config))
    found = list(settings(loaded, os.environ))
    if as_json:
        _print_json({"file": loaded.team.source, "config": _nested(found), "origins": _origins(found)})
        return
    lines = list(_lines(found))
    width = min(max(len(text) for text, _ in lines), _WIDEST)
    shown = (f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines)
    write_out("".join(f"{printable(line)}\n" for line in shown))


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a configuration, for editors.

    `massmem config schema > massmem.schema.json`, and as the first line of a configuration beside it:
    `# yaml-language-server: $schema=massmem.schema.json`
    """
    from massmem.config.json_schema import json_schema

    write_out(json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n")


_WIDEST = 60
"""Columns before the origins; longer values push theirs to the right."""


def _loaded(file: str | None) -> Loaded:
    read_dotenv(Path(".env"))
    return load_default(os.environ, massmem_home()) if file is None else load(find_config(file), os.environ)


def _lines(found: list[Setting]) -> Iterator[tuple[str, str]]:
    """YAML, with the origin of each value; what is nested says it inside."""
    for i, setting in enumerate(found):
        name = setting.path[-1]
        if isinstance(name, int):
            continue  # the dash of an item stands before its first key
        above = found[i - 1].path if i else ()
        dash = bool(above) and isinstance(above[-1], int) and above == setting.path[:-1]
        indent = "  " * (len(setting.path) - 1)
        lead = f"{indent[:-2]}- " if dash else indent
        key = name if name.replace("_", "").isalnum() else json.dumps(name, ensure_ascii=False)
        value = "" if setting.opens else f" {json.dumps(setting.value, ensure_ascii=False, default=str)}"
        yield f"{lead}{key}:{value}", "" if setting.opens else setting.origin


def _nested(found: list[Setting]) -> Any:
    root: dict[str, Any] = {}
    for setting in found:
        parent: Any = root
        for part in setting.path[:-1]:
            parent = parent[part]
        value: Any = ([] if setting.opens == "list" else {}) if setting.opens else setting.value
        match parent:
            case list():
                cast("list[Any]", parent).append(value)
            case _:
                parent[setting.path[-1]] = value
    return root


def _origins(found: list[Setting]) -> dict[str, str]:
    return {dotted(setting.path): setting.origin for setting in found if not setting.opens}


def _print_json(value: Any) -> None:
    write_out(json.dumps(value, ensure_ascii=False, default=str) + "\n")
