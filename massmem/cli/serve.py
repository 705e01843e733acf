"""`massmem serve`: the HTTP service."""

import os
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.team import load_team, prepared
from massmem.cli.token import with_secret
from massmem.config.models import TeamConfig
from massmem.errors import InputError

app = typer.Typer(help="Serve the team over HTTP.")


@app.callback(invoke_without_command=True)
def serve_command(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: server.host]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="[default: server.port, 4000]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="Processes. [default: server.workers]")] = None,
) -> None:
    """Serve the team over HTTP until Ctrl-C or SIGTERM. The log is JSON on stderr.

    Every request but those for health needs a token: see `massmem token create`.
    """
    at = prepared(config)
    team = _with(with_secret(at.config, os.environ), host, port, workers)
    teams = {name: _other(file, at.home) for name, file in team.server.teams.items()}
    try:
        from massmem.server.serving import serve
    except ModuleNotFoundError as e:
        raise InputError(f"massmem serve needs the package {e.name}", "pip install 'massmem[server]'") from e
    serve(team, teams, at.home)


def _with(config: TeamConfig, host: str | None, port: int | None, workers: int | None) -> TeamConfig:
    given = {"host": host, "port": port, "workers": workers}
    changes = {name: value for name, value in given.items() if value is not None}
    return config.model_copy(update={"server": config.server.model_copy(update=changes)})


def _other(file: str, home: Path) -> TeamConfig:
    return load_team(file, home)
