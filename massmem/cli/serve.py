"""`massmem serve`: the HTTP service."""

import os
from typing import Annotated

import typer

from massmem.cli.options import Config
from massmem.cli.setup import load_server_teams, load_setup
from massmem.cli.token import ensure_secret
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError

app = typer.Typer(help="Serve the team over HTTP.")


@app.command()
def serve_command(
    config: Config = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. [default: server.host]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=65535, help="[default: server.port, 4000]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=64, help="Processes. [default: server.workers]")
    ] = None,
    record: Annotated[
        bool | None,
        typer.Option(
            "--record/--no-record", help="Leave memories and compression to `massmem worker`. [default: server.record]"
        ),
    ] = None,
) -> None:
    """Serve the team over HTTP until Ctrl-C or SIGTERM. The log is JSON on stderr.

    Every request but those for health needs a key or a token: see `massmem key create`, `massmem token create`.
    """
    setup = load_setup(config)
    with_secret, notice = ensure_secret(setup.config, os.environ, setup.home)
    team = _replace_settings(with_secret, host=host, port=port, workers=workers, record=record)
    teams = load_server_teams(team, setup.home)
    try:
        from massmem.server.serve import serve
        from massmem.server.service import Settings
    except ModuleNotFoundError as e:
        raise InputError(f"massmem serve needs the package {e.name}", "pip install 'massmem[server]'") from e
    serve(Settings(team, setup.home, teams), [notice] if notice else [])


def _replace_settings(config: TeamConfig, **options: object) -> TeamConfig:
    changes = {name: value for name, value in options.items() if value is not None}
    return config.model_copy(update={"server": config.server.model_copy(update=changes)})
