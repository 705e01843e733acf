"""`massmem serve`: runs the application in one uvicorn process or in several."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI
from prometheus_client import multiprocess
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from massmem.core.errors import InputError, MassmemError
from massmem.server.app import create_app
from massmem.server.auth import Tokens
from massmem.server.limits import LimitedConfig, LimitedConnection, Limits
from massmem.server.metrics import SHARED_FOLDER, log_to_stderr
from massmem.server.service import Settings
from massmem.session.background import check_workers

log = logging.getLogger(__name__)

_BACKLOG = 2_048
_HEALTH_CHECK_SECONDS = 60
"""A worker that does not react for so long is replaced. It may be busy with imports for many seconds at its start."""


def serve(settings: Settings, notices: Sequence[str] = ()) -> None:
    """Serve until this process is told to end. notices: what to say in the log first.

    Raises MassmemError when it cannot start: no secret, no store, the address is in use.
    """
    server = settings.config.server
    Tokens(server.jwt)  # raises here what every worker would raise
    Limits(server.limits)
    check_workers(settings.config)
    log_to_stderr()
    _end_with_success()
    for notice in notices:
        log.info("%s", notice)
    with _bind(server.host, server.port) as listening:
        host, port = listening.getsockname()[:2]
        log.info("listening", extra={"fields": {"host": host, "port": port, "processes": server.workers}})
        if server.workers == 1:
            _serve_alone(settings, listening)
        else:
            _serve_with_workers(settings, listening)


def serve_page(settings: Settings, announce: Callable[[int], None]) -> None:
    """Serve one user on this machine until this process is told to end. Warnings go to stderr, and nothing else.

    announce: called with the port as soon as a browser can connect to it. Raises as `serve`.
    """
    Tokens(settings.config.server.jwt)
    _end_with_success()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    with _bind(settings.config.server.host, settings.config.server.port) as listening:
        listening.listen(_BACKLOG)  # who connects while the service opens waits for it
        announce(listening.getsockname()[1])
        _serve_alone(settings, listening)


def _serve_alone(settings: Settings, listening: socket.socket) -> None:
    startup_errors: list[MassmemError] = []
    app = create_app(settings, startup_errors.append)
    try:
        uvicorn.Server(_configure(app, settings)).run([listening])
    except SystemExit:
        if startup_errors:
            raise startup_errors[0] from None
        raise


def _end_with_success() -> None:
    """Let a signal end this process with success: uvicorn raises it again when it has ended in good order."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: sys.exit(0))


def _serve_with_workers(settings: Settings, listening: socket.socket) -> None:
    with TemporaryDirectory(prefix="massmem-metrics-") as shared:
        os.environ[SHARED_FOLDER] = shared
        supervisor = _Supervisor(_configure(partial(_create_worker_app, settings), settings), [listening])
        supervisor.run()
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise InputError("the service cannot start", "the log above says why")


class _Supervisor(Multiprocess):
    """Starts workers, replaces those that have died, and ends all of them when this process is told to end."""

    def init_processes(self) -> None:
        super().init_processes()
        self._close_worker_ends()

    def keep_subprocess_alive(self) -> None:
        before = {worker.pid for worker in self.processes}
        super().keep_subprocess_alive()
        self._close_worker_ends()
        for pid in before - {worker.pid for worker in self.processes}:
            log.warning("a worker has died and was replaced")
            multiprocess.mark_process_dead(pid)  # pyright: ignore[reportUnknownMemberType] - it has no annotations

    def _close_worker_ends(self) -> None:
        """Close our copies of the workers' ends of their pipes; a worker's death then ends the wait for its reply."""
        for worker in self.processes:
            worker.child_conn.close()


def _create_worker_app(settings: Settings) -> FastAPI:
    log_to_stderr()
    return create_app(settings, lambda error: log.error("%s. %s", error.message, error.hint))


def _configure(app: FastAPI | Callable[[], FastAPI], settings: Settings) -> uvicorn.Config:
    server = settings.config.server
    config = LimitedConfig(
        app,
        factory=not isinstance(app, FastAPI),
        workers=server.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        backlog=_BACKLOG,
        http=LimitedConnection,
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=_HEALTH_CHECK_SECONDS,
    )
    config.limits = server.limits
    return config


def _bind(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as e:
        listening.close()
        raise InputError(
            f"{host}:{port} cannot be listened on: {e.strerror or e}", "choose another one with --host and --port"
        ) from e
    return listening
