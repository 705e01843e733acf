"""`massmem ui`: the page, for the user of this machine."""

import os
import secrets
import sys
import webbrowser
from dataclasses import replace
from threading import Thread
from typing import Annotated

import typer

from massmem.cli.options import Config
from massmem.cli.serve import load_service
from massmem.cli.streams import notify, write_out

app = typer.Typer(help="Talk to the team in a browser.")

_LOCALHOST = "127.0.0.1"
_GRACE = 1.0
"""Seconds that turns may go on after Ctrl-C. They are in the log, and the page continues them."""


@app.command()
def ui_command(
    config: Config = None,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="[default: any free port]", show_default=False)
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Talk to the team in a browser: your conversations, what the agents see and remember, and what it all costs.

    Only this machine can open the page, with an address that is printed and works once. Ctrl-C ends it.
    """
    settings, _ = load_service("ui", config, host=_LOCALHOST, port=port, workers=1, grace=_GRACE)
    from massmem.server.serve import serve_page

    token = secrets.token_urlsafe(32)

    def announce(chosen_port: int) -> None:
        # Browsers send nothing after the # to anybody; the page reads it there.
        url = f"http://{_LOCALHOST}:{chosen_port}/#token={token}"
        write_out(f"{url}\n")
        notify("the address works once, on this machine; Ctrl-C ends it")
        if browser and _has_screen():
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve_page(replace(settings, page_token=token), announce)


def _has_screen() -> bool:
    """Without a screen, Python would open a browser for terminals in this one."""
    return not sys.platform.startswith("linux") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
