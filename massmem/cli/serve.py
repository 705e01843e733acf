"""`massmem serve`, `ui`, `worker`, `mcp` and `acp`: the council as a service.

serve     over HTTP
ui        the page, for the user of this machine
worker    recording and compression apart from serving
mcp       on stdin and stdout, for agents that start it themselves
acp       the same for editors
"""

import asyncio
import logging
import os
import secrets
import signal
import stat
import sys
import webbrowser
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from massmem.cli.access import ensure_secret
from massmem.cli.errors import log_to_stderr
from massmem.cli.options import Config
from massmem.cli.setup import check_first_run, load_server_teams, load_setup, require_extra
from massmem.cli.streams import discard_output, notify, open_output, write_out
from massmem.cli.terminal import EXIT_CODES, handle_signals
from massmem.config.home import make_home, massmem_home, write_once
from massmem.config.jobs import read_jobs
from massmem.config.load import EXAMPLES
from massmem.config.projects import find_project
from massmem.core.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

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

    Raises ConfigError, InputError, HomeError: see load_setup, ensure_secret, require_extra.
    """
    setup = load_setup(config)
    _warn_about_jobs(setup.home)
    team, notice = ensure_secret(setup.config, os.environ, setup.home)
    teams = load_server_teams(team, setup.home)
    if any(one.files.attached for one in (team, *teams.values())):
        notify("files.attached is for the command line: the service adds none of these files to a question")
    if os.environ.get("REDIS_URL") and "url" not in team.store.model_fields_set:
        notify("REDIS_URL is set and not used: with store: {url: redis://} conversations are kept there")
    with require_extra("server", command):
        from massmem.server.serve import Settings  # and with it all that serving needs
    changes = {name: value for name, value in options.items() if value is not None}
    server = team.server.model_copy(update=changes)
    return Settings(team.model_copy(update={"server": server}), setup.home, teams), notice


def _warn_about_jobs(home: Path) -> None:
    for line in read_jobs(home, "")[1]:
        notify(line)


ui_app = typer.Typer(help="Talk to the team in a browser.")

_LOCALHOST = "127.0.0.1"
_FIRST_PORT, _PORTS = 4100, 20
"""Of the page: where it is at first, and how many of the next ones are tried when that is in use."""
_PAGE_GRACE = 1.0
"""Seconds that turns may go on after Ctrl-C. They are in the log, and the page continues them."""


@ui_app.command()
def ui_command(
    config: Config = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=65535, help="[default: the same each time, 4100 at first]")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Talk to the team in a browser: your conversations, what the agents see and remember, and what it all costs.

    Only this machine can open the page, with an address that is printed and works once. Ctrl-C ends it.
    """
    log_to_stderr(logging.WARNING, "massmem: %(message)s")
    home, served, is_first = massmem_home(), 0, True
    make_home(home)
    entrance, port_file = home / f"open-{secrets.token_hex(4)}.html", home / "ui-port"

    def announce(token: str, chosen_port: int, application: "FastAPI") -> None:
        nonlocal served
        if is_first:
            from massmem.cli.init import add_first_start

            add_first_start(home, application)
        if served:
            return  # the page is open, and waits for the team that it has set up
        served = chosen_port
        if port is None:
            write_once(port_file, str(served))
        # Browsers send nothing after the # to anybody; the page reads it there.
        url = f"http://{_LOCALHOST}:{served}/#token={token}"
        write_out(f"{url}\n")
        notify("the address works once, on this machine; Ctrl-C ends it")
        if browser and _has_screen():
            _open_browser(url, entrance)

    try:
        while not served or is_first:
            is_first, token = True, secrets.token_urlsafe(32)
            with suppress(InputError):
                check_first_run(config, None)
                is_first = False
            text = port_file.read_text() if port_file.exists() else ""
            usual = int(text) if text.isdecimal() else _FIRST_PORT
            options = {"host": _LOCALHOST, "port": served or (usual if port is None else port), "grace": _PAGE_GRACE}
            settings, _ = load_service("ui", f"{EXAMPLES}scripted" if is_first else config, workers=1, **options)
            from massmem.server.serve import serve_page

            settings = replace(settings, page_token=token, page_file=entrance, first_start=is_first)
            serve_page(settings, partial(announce, token), 1 if served or port is not None else _PORTS)
    finally:
        entrance.unlink(missing_ok=True)


def _open_browser(url: str, file: Path) -> None:
    # All users of this machine can read the arguments of a browser, but not this file.
    with open_output(file) as write:
        write(_ENTRANCE.format(url=url))
    Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()


_ENTRANCE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>massmem</title>
<p><a href="{url}">Open massmem</a></p>
"""


def _has_screen() -> bool:
    """Without a screen, Python would open a browser for terminals in this one."""
    return not sys.platform.startswith("linux") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


worker_app = typer.Typer(help="Record and compress for a service that leaves that to workers.")


@worker_app.command()
async def worker_command(
    config: Config = None,
    compress: Annotated[
        bool, typer.Option("--compress/--no-compress", help="Compress histories before the next question.")
    ] = True,
) -> None:
    """Record memories and compress histories until Ctrl-C or SIGTERM. The log is JSON on stderr.

    For `massmem serve --no-record`, with the same configuration. Any number of workers share the queue; let one of them
    compress. Nothing is lost when one is killed.
    """
    setup = load_setup(config)
    others = load_server_teams(setup.config, setup.home)
    with require_extra("server", "worker"):
        from massmem.server import metrics
    from massmem.isolation import end_in_time
    from massmem.session.background import BackgroundWork, log
    from massmem.session.team import Team, start_teams

    metrics.log_to_stderr()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    end_in_time(setup.config.server.grace + _CLOSING)
    team = await Team.open(setup.config, home=setup.home)
    try:
        async with start_teams(team, others) as teams:
            log.info("working")
            await BackgroundWork(teams, compresses=compress).run(stopping)
    finally:
        await team.close()


_CLOSING = 8.5
"""Seconds that a process may take to close, beside `server.grace`."""
_GRACE = 0.5
"""Seconds for questions to learn that they are stopped."""

mcp_app = typer.Typer(help="Let other agents ask the team: an MCP server on stdin and stdout.")


@mcp_app.command()
async def mcp_command(
    config: Config = None,
    root: Annotated[list[Path] | None, typer.Option(metavar="DIR", help="Clients may name files in it.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Write a line for each request to stderr.")] = False,
) -> None:
    """Serve the team over MCP on stdin and stdout, as the command line's user, until the client goes.

    Programs such as Claude Code, Codex, Cursor and Zed start it. Stdout holds the protocol alone; the log is on stderr.
    Over HTTP, `massmem serve` has the same tools at /mcp.
    """
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    setup = load_setup(config)
    _warn_about_jobs(setup.home)
    with require_extra("mcp", "mcp"):
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from massmem.isolation import end_in_time
    from massmem.server.mcp import create_mcp_server
    from massmem.server.mcp_access import LocalAccess
    from massmem.session.team import Team, Teams, start_teams

    team = await Team.open(setup.config, home=setup.home)
    try:
        async with start_teams(team, load_server_teams(setup.config, setup.home)) as named:
            for warning in team.take_warnings():
                notify(warning)
            teams = Teams(named)
            access = LocalAccess(teams, find_project(), [folder.absolute() for folder in root or ()])
            try:
                server = create_mcp_server(lambda _: access).run_stdio_async()
                code = await _run_until_signal(server, partial(end_in_time, setup.config.server.grace + _CLOSING))
            finally:
                await access.close()
                await teams.close()
    finally:
        await team.close()
    if code:
        discard_output()
        os._exit(code)  # the thread that waits for stdin cannot be stopped, and the interpreter would wait for it


acp_app = typer.Typer(help="Put the team into your editor: the Agent Client Protocol on stdin and stdout.")


@acp_app.command()
async def acp_command(config: Config = None) -> None:
    """Answer in an editor that speaks the Agent Client Protocol (Zed, JetBrains, Neovim, Emacs), which starts this.

    The agents read the folder that is open in it. Stdout holds the protocol alone; the log is on stderr.
    """
    log_to_stderr(logging.WARNING)
    kinds = [(number, os.fstat(number).st_mode) for number in (0, 1)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number) for number, mode in kinds):
        raise InputError("stdin and stdout are not the pipes of an editor", "add massmem acp to the editor's settings")
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is written
    from massmem.cli.editor import CouncilAgent
    from massmem.isolation import end_in_time

    code = await _run_until_signal(CouncilAgent(config).serve(output), partial(end_in_time, _CLOSING))
    os._exit(code)  # what is not recorded yet, the next run records


async def _run_until_signal(work: Coroutine[Any, Any, None], on_ready: Callable[[], None]) -> int:
    """Return 0 when the work has ended by itself, else the exit code of the signal that ended it.

    on_ready: called when signals are handled.
    """
    serving = asyncio.ensure_future(work)
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(signum: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(EXIT_CODES[signum])

    with handle_signals((signal.SIGINT, signal.SIGTERM), stop):
        on_ready()
        if sys.stdin.isatty():
            notify("another program should start this, and write to its stdin; Ctrl-C ends it")
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            serving.cancel()
            await asyncio.wait((serving,), timeout=_GRACE)
            return stopped.result()
    await serving
    return 0
