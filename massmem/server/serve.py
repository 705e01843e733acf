"""`massmem serve`: runs the application in one uvicorn process or in several."""

import hmac
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_double
from dataclasses import replace
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import uvicorn
from fastapi import FastAPI
from prometheus_client import multiprocess
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from massmem.core.errors import InputError, MassmemError
from massmem.isolation import end_in_time, set_death_signal
from massmem.server.app import create_app
from massmem.server.auth import Tokens
from massmem.server.limits import LimitedConfig, LimitedConnection, Limits
from massmem.server.metrics import SHARED_FOLDER, log_to_stderr
from massmem.server.service import Settings
from massmem.session.background import check_workers

log = logging.getLogger(__name__)

_BACKLOG = 2_048
_MAX_SILENCE = 15.0
"""Seconds after which a worker whose event loop does not run is stuck, and is replaced."""
_MAX_START = 60.0
"""Seconds that a worker may take to start, most of them for imports."""


def serve(settings: Settings, notices: Sequence[str] = ()) -> None:
    """Serve until this process is told to end. notices: what to say in the log first.

    Raises MassmemError when it cannot start: no secret, no store, the address is in use.
    """
    server = settings.config.server
    Tokens(server.jwt)  # raises here what every worker would raise
    _require_metrics_folder()
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
            _serve_alone(settings, listening, lambda _: None)
        else:
            _serve_with_workers(settings, listening)


def serve_page(settings: Settings, announce: Callable[[int, FastAPI], None], tries: int) -> None:
    """Serve one user on this machine until this process is told to end. Warnings go to stderr, and nothing else.

    announce: called with the port as soon as a browser can connect, and the application, which ends once its
    `state.is_done` is true. tries: so many ports from `server.port` on will do, else any. Raises as `serve`.
    """
    Tokens(settings.config.server.jwt)
    _require_metrics_folder()
    _end_with_success()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    secret = settings.config.server.jwt.secret
    with _bind_first(settings.config.server.host, settings.config.server.port, tries) as listening:
        listening.listen(_BACKLOG)  # who connects while the service opens waits for it
        port = listening.getsockname()[1]
        # Of this port: what a browser signs here counts nowhere else.
        key = (
            "" if secret is None else hmac.digest(secret.get_secret_value().encode(), b"page %d" % port, "sha256").hex()
        )
        settings = replace(settings, page_key=key)
        _serve_alone(settings, listening, partial(announce, port))


def _require_metrics_folder() -> None:
    """Raise InputError when a variable, perhaps of another program, names a folder for metrics that is none."""
    folder = os.environ.get(SHARED_FOLDER)
    if folder is not None and not Path(folder).is_dir():
        raise InputError(f"{SHARED_FOLDER} names no folder: {folder}", f"unset {SHARED_FOLDER}, or make the folder")


def _serve_alone(settings: Settings, listening: socket.socket, announce: Callable[[FastAPI], None]) -> None:
    errors: list[Exception] = []
    with _defer_signals():
        app = create_app(settings, errors.append)
        announce(app)
    try:
        _WatchedServer(_configure(app, settings), settings.end_seconds).run([listening])
    except SystemExit:
        if errors:
            raise errors[0] from None
        raise


class _WatchedServer(uvicorn.Server):
    """A server without a parent that could kill it."""

    def __init__(self, config: uvicorn.Config, seconds: float) -> None:
        super().__init__(config)
        self._seconds = seconds

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or (isinstance(app := self.config.app, FastAPI) and app.state.is_done)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        end_in_time(self._seconds)


def _end_with_success() -> None:
    """Let a signal end this process with success: uvicorn raises it again when it has ended in good order."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: sys.exit(0))


@contextmanager
def _defer_signals() -> Generator[None]:
    """Let a signal that ends the process wait: libraries make other errors of an exit in the middle of their work."""
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, lambda number, _frame: waiting.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in waiting[:1]:
            signal.raise_signal(number)


def _serve_with_workers(settings: Settings, listening: socket.socket) -> None:
    prefix = f"massmem-metrics-{'-'.join(map(str, listening.getsockname()[:2]))}-"
    for left in Path(gettempdir()).glob(f"{prefix}*"):  # by a service that was killed: the address is ours
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix) as shared:
        os.environ[SHARED_FOLDER] = shared
        supervisor = _Supervisor(
            _configure(partial(_create_worker_app, settings), settings), [listening], settings.end_seconds
        )
        supervisor.run()
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise InputError("the service cannot start", "the log above says why")


class _Worker(Process):
    """A worker whose event loop shows that it runs: a thread would answer while the loop is stuck."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        self._beat = get_context("spawn").Value("d", 0.0, lock=False)
        """When the loop ran last; 0: it has not started. The clock is that of the machine."""
        self._started_at = time.monotonic()
        super().__init__(config, sockets)
        # The new process unpickles this first, and imports for seconds to unpickle the rest.
        first = type("", (), {"__reduce__": staticmethod(lambda: (set_death_signal, (os.getpid(),)))})()
        self.process.__dict__ = {"first": first, **self.process.__dict__}

    @property
    def server(self) -> uvicorn.Server:
        if self._server is None:
            self._server = _BeatingServer(self.config, self._beat)
        return self._server

    @property
    def is_stuck(self) -> bool:
        beat = self._beat.value
        return time.monotonic() - (beat or self._started_at) > (_MAX_SILENCE if beat else _MAX_START)


class _BeatingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, beat: c_double) -> None:
        super().__init__(config)
        self._beat = beat

    async def on_tick(self, counter: int) -> bool:
        self._beat.value = time.monotonic()
        if (parent := parent_process()) and not parent.is_alive():
            os._exit(1)
        return await super().on_tick(counter)


class _Supervisor(Multiprocess):
    """Starts workers, replaces those that have died or are stuck, and ends all of them in time."""

    processes: list[_Worker]  # pyright: ignore[reportIncompatibleVariableOverride]
    # They would start workers that nobody watches.
    handle_hup = handle_ttin = handle_ttou = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], seconds: float) -> None:
        """seconds: until a worker that does not end is killed."""
        super().__init__(config, sockets)
        self._seconds = seconds

    def init_processes(self) -> None:
        self.processes.extend(self._start_worker() for _ in range(self.processes_num))

    def keep_subprocess_alive(self) -> None:
        for index, worker in enumerate(self.processes):
            is_alive = worker.process.is_alive()
            if is_alive and not worker.is_stuck:
                continue
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:  # the next one would fail as well
                self.should_exit.set()
                return
            self.processes[index] = self._start_worker()
            log.warning("a worker %s and was replaced", "was stuck" if is_alive else "has died")
            multiprocess.mark_process_dead(worker.pid)  # pyright: ignore[reportUnknownMemberType] - it has no annotations

    def _start_worker(self) -> _Worker:
        worker = _Worker(self.config, self.sockets)
        worker.start()
        return worker

    def join_all(self) -> None:
        """Wait for the workers, which were told to end; kill those that do not."""
        until = time.monotonic() + self._seconds
        for worker in self.processes:
            worker.process.join(max(0, until - time.monotonic()))
            if worker.process.is_alive():
                log.warning("a worker does not end and is killed")
                worker.process.kill()
                worker.process.join()


def _create_worker_app(settings: Settings) -> FastAPI:
    log_to_stderr()
    return create_app(settings, _log_error)


def _log_error(error: Exception) -> None:
    if isinstance(error, MassmemError):
        log.error("%s. %s", error.message, error.hint)
    else:
        log.error("the service cannot go on: a bug in massmem", exc_info=error)


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
    )
    config.limits = server.limits
    return config


def _bind_first(host: str, port: int, tries: int) -> socket.socket:
    for number in range(port, port + tries - 1):
        with suppress(InputError, OverflowError):
            return _bind(host, number)
    return _bind(host, port if tries == 1 else 0)


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
