"""`massmem mcp`: an MCP server on stdin and stdout, for agents that start it themselves."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from massmem.cli.logs import log_to_stderr
from massmem.cli.options import Config
from massmem.cli.setup import Setup, load_setup, require_extra
from massmem.cli.signals import EXIT_CODES, handle_signals
from massmem.cli.streams import discard_output, notify

_GRACE = 0.5
"""Seconds for questions to learn that they are stopped."""

app = typer.Typer(help="Let other agents ask the team: an MCP server on stdin and stdout.")


@app.command()
def mcp_command(
    config: Config = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Write a line for each request to stderr.")] = False,
) -> None:
    """Serve the team over MCP on stdin and stdout, as the command line's user, until the client goes.

    Programs such as Claude Code, Codex, Cursor and Zed start it. Stdout holds the protocol alone; the log is on stderr.
    Over HTTP, `massmem serve` has the same tools at /mcp.
    """
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    setup = load_setup(config)
    with require_extra("mcp", "mcp"):
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    asyncio.run(_serve(setup))


async def _serve(setup: Setup) -> None:
    from massmem.server.mcp.access import LocalAccess
    from massmem.server.mcp.tools import create_mcp_server
    from massmem.session.team import Team

    team = await Team.open(setup.config, home=setup.home)
    try:
        await team.start()
        for warning in team.take_warnings():
            notify(warning)
        access = LocalAccess(team)
        try:
            code = await _run_until_signal(create_mcp_server(lambda _: access).run_stdio_async())
        finally:
            await access.close()
    finally:
        await team.close()
    if code:
        discard_output()
        os._exit(code)  # the thread that waits for stdin cannot be stopped, and the interpreter would wait for it


async def _run_until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Return 0 when the work has ended by itself, else the exit code of the signal that ended it."""
    serving = asyncio.ensure_future(work)
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(signum: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(EXIT_CODES[signum])

    with handle_signals((signal.SIGINT, signal.SIGTERM), stop):
        if sys.stdin.isatty():
            notify("another program should start this, and write MCP to its stdin; Ctrl-C ends it")
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            serving.cancel()
            await asyncio.wait((serving,), timeout=_GRACE)
            return stopped.result()
    await serving
    return 0
