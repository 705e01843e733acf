"""Processes that serve: uvicorn, told early that it is to end, so that turns and streams end in good order."""

import asyncio
import logging
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import uvicorn
from prometheus_client import multiprocess

from massmem.config.models import TeamConfig
from massmem.errors import InputError, MassmemError
from massmem.server.app import Settings, create_app
from massmem.server.auth import Tokens
from massmem.server.limits import Limits
from massmem.server.logs import log_to_stderr
from massmem.server.metrics import SHARED
from massmem.server.supervisor import CANNOT_START, supervise

log = logging.getLogger(__name__)

CLOSING = 10
"""Seconds for connections to close, beyond the time that turns have."""

_QUEUE = 2_048
_MOST = 4_000
"""Connections of one process; more are answered with 503 at once."""


class _Server(uvicorn.Server):
    """Sets `stopping` as soon as the process is told to end; uvicorn itself waits for the connections first."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second Ctrl-C ends it at once. Told to end, it has done well: the signal is not raised again."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._stopping.set()


@dataclass(frozen=True, slots=True)
class Process:
    """What one process does. It is sent to the others by pickle, so it holds values only."""

    config: TeamConfig
    teams: dict[str, TeamConfig]
    home: Path

    def run(self, listening: socket.socket) -> None:
        """Serve until the process is told to end. Raises MassmemError when it cannot start."""
        server = self.config.server
        settings = Settings(self.config, self.home, self.teams)
        config = uvicorn.Config(
            create_app(settings),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            backlog=_QUEUE,
            limit_concurrency=_MOST,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(server.grace) + CLOSING,
        )
        try:
            _Server(config, settings.stopping).run([listening])
        except SystemExit:
            if settings.failures:
                raise settings.failures[0] from None
            raise

    def run_as_one_of_many(self, listening: socket.socket) -> None:
        """The same in a process of its own: what keeps it from starting is logged."""
        log_to_stderr()
        try:
            self.run(listening)
        except MassmemError as e:
            log.error("%s. %s", e.message, e.hint)  # noqa: TRY400 - the message says all
            sys.exit(CANNOT_START)


def serve(config: TeamConfig, teams: dict[str, TeamConfig], home: Path) -> None:
    """Serve until this process is told to end.

    Raises MassmemError when it cannot start: no secret, no store, the address is in use.
    """
    Tokens(config.server.jwt)
    Limits(config.server.limits)
    process, workers = Process(config, teams, home), config.server.workers
    log_to_stderr()
    with _bound(config) as listening, TemporaryDirectory(prefix="massmem-metrics-") as shared:
        host, port = listening.getsockname()[:2]
        log.info("listening", extra={"fields": {"host": host, "port": port, "processes": workers}})
        if workers == 1:
            process.run(listening)
            return
        os.environ[SHARED] = shared
        if not supervise(process.run_as_one_of_many, listening, workers, lambda pid: _forget(pid, shared)):
            raise InputError("the service cannot start", "the log above says why")


def _forget(pid: int, shared: str) -> None:
    multiprocess.mark_process_dead(pid, shared)  # pyright: ignore[reportUnknownMemberType] - it has no annotations


def _bound(config: TeamConfig) -> socket.socket:
    server = config.server
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((server.host, server.port))
    except OSError as e:
        listening.close()
        raise InputError(
            f"{server.host}:{server.port} cannot be listened on: {e.strerror or e}",
            "choose another one with --host and --port",
        ) from e
    return listening
