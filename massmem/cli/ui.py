"""`massmem ui`: the page, for the user of this machine."""

import os
import secrets
import sys
import webbrowser
from threading import Thread
from typing import Annotated

import typer

from massmem.cli.options import Config
from massmem.cli.setup import load_server_teams, load_setup
from massmem.cli.streams import notify, write_out
from massmem.cli.token import ensure_secret
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError

app = typer.Typer(help="Talk to the team in a browser.")

_LOCALHOST = "127.0.0.1"
_GRACE = 1.0
"""Seconds that turns may go on after Ctrl-C. They are in the log, and the page continues them."""


@app.command()
def ui_command(
    config: Config = None,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="[default: any free port]")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Talk to the team in a browser: your conversations, what the agents see and remember, and what it all costs.

    Only this machine can open the page, with an address that is printed and works once. Ctrl-C ends it.
    """
    setup = load_setup(config)
    team = _set_server(ensure_secret(setup.config, os.environ, setup.home)[0], port)
    teams = load_server_teams(team, setup.home)
    try:
        from massmem.server.serve import serve_page
        from massmem.server.service import Settings
    except ModuleNotFoundError as e:
        raise InputError(f"massmem ui needs the package {e.name}", "pip install 'massmem[server]'") from e
    token = secrets.token_urlsafe(32)

    def announce(chosen_port: int) -> None:
        # Browsers send nothing after the # to anybody; the page reads it there.
        url = f"http://{_LOCALHOST}:{chosen_port}/#token={token}"
        write_out(f"{url}\n")
        notify("the address works once, on this machine; Ctrl-C ends it")
        if browser and _has_screen():
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve_page(Settings(team, setup.home, teams, page_token=token), announce)


def _set_server(config: TeamConfig, port: int) -> TeamConfig:
    changes = {"host": _LOCALHOST, "port": port, "workers": 1, "grace": _GRACE}
    return config.model_copy(update={"server": config.server.model_copy(update=changes)})


def _has_screen() -> bool:
    """Without a screen, Python would open a browser for terminals in this one."""
    return not sys.platform.startswith("linux") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
