"""`massmem serve`: the HTTP service."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from massmem.cli.options import Config
from massmem.cli.setup import load_server_teams, load_setup, require_extra
from massmem.cli.token import ensure_secret

if TYPE_CHECKING:
    from massmem.server.service import Settings

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
    settings, notice = load_service("serve", config, host=host, port=port, workers=workers, record=record)
    from massmem.server.serve import serve

    serve(settings, [notice] if notice else [])


def load_service(command: str, config: str | None, **options: object) -> "tuple[Settings, str]":
    """Return what a service is made from, and what to tell the user, or "".

    options: of the section `server`; those that are not None replace what the configuration says.

    Raises:
        ConfigError, InputError, HomeError: see load_setup, ensure_secret, require_extra.
    """
    setup = load_setup(config)
    team, notice = ensure_secret(setup.config, os.environ, setup.home)
    teams = load_server_teams(team, setup.home)
    with require_extra("server", command):
        from massmem.server.serve import Settings  # and with it all that serving needs
    changes = {name: value for name, value in options.items() if value is not None}
    server = team.server.model_copy(update=changes)
    return Settings(team.model_copy(update={"server": server}), setup.home, teams), notice
