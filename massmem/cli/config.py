"""`massmem config`: check a configuration, show its settings, and print its schema for editors.

`massmem paths`: where massmem keeps its files.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, cast

import typer

from massmem.cli.errors import DEBUG_LOGS
from massmem.cli.options import AsJson, Config
from massmem.cli.setup import Setup, choose_config, load_and_check, load_setup, read_environment
from massmem.cli.streams import notify, write_json, write_out
from massmem.config.home import expand_home, massmem_home
from massmem.config.load import LoadedConfig
from massmem.config.models import TeamConfig
from massmem.config.show import Setting, list_settings
from massmem.config.yaml import format_path
from massmem.core.errors import ConfigError
from massmem.memory.opening import index_root
from massmem.providers.weights import models_folder
from massmem.render.text import format_columns
from massmem.session.registry import without_password

_MAX_WIDTH = 60
"""Columns before the origins; longer values push theirs to the right."""

app = typer.Typer(no_args_is_help=True, help="Check a configuration, and show its settings.")

File = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A file or @examples/NAME. [default: as for a question]")
]
TeamFile = Annotated[str | None, typer.Option(metavar="FILE", help="The same as the argument FILE.")]


@app.command("validate")
async def validate_command(
    file: File = None,
    config: TeamFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="Contact no server.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a configuration, and open what a question opens.

    All problems are reported at once. No model is asked anything.
    """
    loaded = _load(choose_config(file, config))
    if problems := await _find_opening_problems(loaded.team, offline=offline):
        raise ConfigError(problems, "massmem doctor also asks the models, and starts the tool servers")
    if as_json:
        result = {"valid": True, "file": loaded.team.source, "warnings": loaded.warnings}
        write_json(result | {"agents": [agent.id for agent in loaded.team.agents]})
        return
    for warning in loaded.warnings:
        notify(warning)
    models = {
        agent.id: ", else ".join(backend.label for backend in (agent.backend, *agent.backend.fallbacks))
        for agent in loaded.team.agents
    }
    agents = ", ".join(f"{agent_id} ({labels})" for agent_id, labels in models.items())
    write_out(f"{loaded.team.source}: valid; agents: {agents}\n")


async def _find_opening_problems(team: TeamConfig, *, offline: bool) -> list[str]:
    """Open what a question opens, by the checks of `massmem doctor`; return what does not open, and what to do."""
    from massmem.cli.checks import CHECKS, DoctorContext, run_check

    context = DoctorContext(massmem_home(), os.environ, team, offline=offline, asks=False)
    opening = ("models", "tools", "calibration", "extraction", "index", "store")
    results = [result for name in opening for result in await run_check(name, CHECKS[name], context)]
    return [f"{one.check}: {one.text}" + f" ({one.fix})" * bool(one.fix) for one in results if one.status == "failed"]


@app.command("show")
def show_command(file: File = None, config: TeamFile = None, as_json: AsJson = False) -> None:
    """Show every setting with its origin.

    The origin is the file, the environment, or the default. The output is YAML; secrets are masked. Keys whose presence
    alone has a meaning are shown only when they are set.
    """
    loaded = _load(choose_config(file, config))
    rows = list(list_settings(loaded, os.environ))
    if as_json:
        origins = {format_path(setting.path): setting.origin for setting in rows if not setting.opens}
        write_json({"file": loaded.team.source, "config": _nest(rows), "origins": origins})
        return
    lines = list(_format_yaml(rows))
    width = min(max(len(text) for text, _ in lines), _MAX_WIDTH)
    with_origins = (f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines)
    write_out("".join(f"{line}\n" for line in with_origins))


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a configuration, for editors.

    Save it with `massmem config schema > massmem.schema.json`, and write this as the first line of a configuration
    beside it: `# yaml-language-server: $schema=massmem.schema.json`
    """
    from massmem.config.show import build_json_schema

    write_json(build_json_schema(), indent=1)


def _load(file: str | None) -> LoadedConfig:
    read_environment()
    return load_and_check(file, massmem_home())


def _format_yaml(rows: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Yield lines of YAML, each with the origin of its value; a line that opens a section has none."""
    for i, setting in enumerate(rows):
        name = setting.path[-1]
        if isinstance(name, int):
            continue  # the dash of a list item stands before its first key
        previous = rows[i - 1].path if i else ()
        is_first_key = bool(previous) and isinstance(previous[-1], int) and previous == setting.path[:-1]
        indent = "  " * (len(setting.path) - 1)
        lead = f"{indent[:-2]}- " if is_first_key else indent
        key = name if name.replace("_", "").isalnum() else json.dumps(name, ensure_ascii=False)
        value = "" if setting.opens else f" {json.dumps(setting.value, ensure_ascii=False, default=str)}"
        yield f"{lead}{key}:{value}", "" if setting.opens else setting.origin


def _nest(rows: Sequence[Setting]) -> Any:
    root: dict[str, Any] = {}
    for setting in rows:
        parent: Any = root
        for part in setting.path[:-1]:
            parent = parent[part]
        value: Any = ([] if setting.opens == "list" else {}) if setting.opens else setting.value
        if isinstance(parent, list):
            cast("list[Any]", parent).append(value)
        else:
            parent[setting.path[-1]] = value
    return root


paths_app = typer.Typer(help="Show where massmem keeps its files.")


@paths_app.command()
def paths_command(config: Config = None, as_json: AsJson = False) -> None:
    """Show where massmem keeps configuration, sessions, memories, models and logs. Nothing is created."""
    paths = _find_paths(load_setup(config))
    if as_json:
        write_json(paths)
        return
    write_out("".join(f"{line}\n" for line in format_columns(list(paths.items()))))


def _find_paths(setup: Setup) -> dict[str, str]:
    config, home = setup.config, setup.home
    qdrant = config.memory.persistent_memory.qdrant
    server = without_password(qdrant.url or f"http://{qdrant.host}:{qdrant.port}")
    return {
        "home": str(home),
        "config": config.source,
        "store": _format_store(config.store.url),
        "registry": str(home / "sessions.json"),
        "memory": server if qdrant.mode == "server" else str(index_root(config.memory, home)),
        "models": str(models_folder()),
        "logs": str(home / "logs"),
        "debug_logs": str(DEBUG_LOGS.absolute()),
    }


def _format_store(url: str) -> str:
    """Return the file of an SQLite store, else the URL without its password."""
    name = url.removeprefix("sqlite:///")
    return str(expand_home(name).absolute()) if name != url else without_password(url)
