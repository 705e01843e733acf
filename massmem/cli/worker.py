"""`massmem worker`: recording and compression apart from serving."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.options import Config
from massmem.cli.setup import load_server_teams, load_setup, require_extra
from massmem.config.models import TeamConfig

app = typer.Typer(help="Record and compress for a service that leaves that to workers.")


@app.command()
def worker_command(
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
    teams = load_server_teams(setup.config, setup.home)
    with require_extra("server", "worker"):
        from massmem.server.metrics import log_to_stderr
    log_to_stderr()
    asyncio.run(_work(setup.config, setup.home, teams, compresses=compress))


async def _work(config: TeamConfig, home: Path, others: Mapping[str, TeamConfig], *, compresses: bool) -> None:
    from massmem.session.background import BackgroundWork, log
    from massmem.session.team import DEFAULT_TEAM, Team

    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        team = await Team.open(config, home=home)
        stack.push_async_callback(team.close)
        await team.start()
        teams = {DEFAULT_TEAM: team}
        for name, other in others.items():
            teams[name] = team.beside(other)
            stack.push_async_callback(teams[name].close)
            await teams[name].start()
        log.info("working")
        await BackgroundWork(teams, compresses=compresses).run(stopping)
