"""`massmem mcp`: an MCP server on stdin and stdout, for agents that start it themselves."""

import asyncio
import logging
from typing import Annotated

import typer

from massmem.cli.logs import log_to_stderr
from massmem.cli.options import Config
from massmem.cli.setup import Setup, load_setup
from massmem.cli.streams import notify
from massmem.core.errors import InputError

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
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as e:
        raise InputError(f"massmem mcp needs the package {e.name}", "pip install 'massmem[mcp]'") from e
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
            await create_mcp_server(lambda _: access).run_stdio_async()
        finally:
            await access.close()
    finally:
        await team.close()
