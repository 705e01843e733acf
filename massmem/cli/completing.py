"""What a shell offers while a command is typed. It must be quick, and never an error on somebody's command line."""

import os
from collections.abc import Iterator
from pathlib import Path

import typer

_MOST = 50


def session_ids(incomplete: str) -> Iterator[tuple[str, str]]:
    """The newest sessions whose ids begin so, each with what it is about."""
    # Named by options of the run command, whose --help needs none of it.
    from massmem.errors import MassmemError
    from massmem.home import massmem_home
    from massmem.registry import Registry
    from massmem.render.printable import one_line

    try:
        registry = Registry(massmem_home())
        entries = registry.entries() if registry.path.exists() else []
    except MassmemError:
        return
    found = [entry for entry in entries if entry.session_id.startswith(incomplete)]
    for entry in found[:_MOST]:
        yield entry.session_id, one_line(entry.description, 60)


def agent_ids(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The agents of the team that `--config` names, or of the default one, and the user."""
    from massmem.cli.team import read_dotenv
    from massmem.config.load import default_config, find_config, load_config
    from massmem.errors import MassmemError
    from massmem.home import massmem_home

    named: str | None = context.params.get("config")
    try:
        read_dotenv(Path(".env"))
        home = massmem_home()
        team, _ = load_config(find_config(named), os.environ) if named else default_config(os.environ, home)
    except MassmemError:
        return
    for agent_id in (*(agent.id for agent in team.agents), "user"):
        if agent_id.startswith(incomplete):
            yield agent_id
