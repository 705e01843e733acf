"""Processes that are forked from one that has loaded massmem: real ones, which start in milliseconds, not in a second.

Everything about a process is as usual (pid, signals, pipes, environment, working directory) but its start: the
modules are there already, so that kill loops spend their time on what is killed.
"""

import ctypes
import fcntl
import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pexpect.fdpexpect import fdspawn

import massmem

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([
    "massmem.cli.main", "massmem.cli.memory", "massmem.cli.run", "massmem.cli.serve", "massmem.cli.sessions",
    "massmem.cli.store", "massmem.memory.local_embedders", "massmem.memory.extraction.extractor",
    "massmem.memory.index_edge", "massmem.memory.index_qdrant", "massmem.memory.indexed", "massmem.providers.discovery",
    "massmem.providers.downloads", "massmem.providers.openai", "massmem.providers.scripted",
    "massmem.server.routes.mcp", "massmem.server.serve", "massmem.store.migrations", "massmem.store.postgres",
    "massmem.store.redis.store", "massmem.store.sqlite", "tests.support.store_writer", "tests.support.vocabulary",
    # What libraries import when they are first used.
    "anyio._backends._asyncio", "genai_prices.data_snapshot", "httpcore2", "numpy.ma", "openai.resources.chat",
    "rich.console", "rich.logging", "typer._adapters", "uvicorn.lifespan.on", "uvicorn.loops.uvloop",
])  # fmt: skip


if TYPE_CHECKING:
    _Spawn = fdspawn[str]
else:
    _Spawn = fdspawn


class ForkedMassmem:
    """`massmem ARGUMENTS` in a session of its own, without stdin; its stdout is a pipe, its stderr goes to err."""

    def __init__(self, *arguments: str, err: Path = Path(os.devnull)) -> None:
        self.exit_code: int | None = None
        """None: the process has not ended, or nobody has waited for its end."""
        out, child_out = processes.Pipe(duplex=False)
        with out, child_out:
            self._process = processes.Process(
                target=_run_in_pipe, args=(arguments, dict(os.environ), Path.cwd(), child_out, err), daemon=True
            )
            self._process.start()
            self.stdout = os.fdopen(os.dup(out.fileno()), "rb")

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the process, for so many seconds."""
        self._process.join(seconds)
        self.exit_code = self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> list[bytes]:
        """Kill the process, and return the lines that it has written and nobody has read."""
        self._process.kill()
        return self.finish()

    def finish(self) -> list[bytes]:
        """Wait for the end of the process, and return the lines that it has written and nobody has read."""
        with self.stdout:
            lines = self.stdout.readlines()
        self._process.join()
        self.exit_code = self._process.exitcode
        self._process.close()
        return lines


class ForkedServer:
    """`massmem ARGUMENTS` until it is stopped, without stdin; its stderr is added to a log, its stdout to a file (out).

    Methods as `subprocess.Popen` has them. It is killed when the test process ends, however that ends.
    """

    def __init__(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path, out: Path = Path(os.devnull)
    ) -> None:
        self._process = processes.Process(
            target=_run_as_server, args=(arguments, dict(environment), Path.cwd(), log, out), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises TimeoutExpired."""
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("massmem", timeout or 0)
        return code

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class ForkedTerminal(_Spawn):
    """`massmem ARGUMENTS` on a terminal of its own, driven as `pexpect.spawn` is.

    env: None: the test's. size: rows and columns.
    """

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        size: tuple[int, int] = (24, 80),
        timeout: float = 60,
    ) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(ours, size)
        environment = dict(os.environ if env is None else env)
        with Connection(theirs) as terminal:
            self.process = processes.Process(
                target=_run_on_terminal, args=(arguments, environment, cwd or Path.cwd(), terminal), daemon=True
            )
            self.process.start()
        super().__init__(ours, encoding="utf-8", timeout=timeout)
        self.exitstatus: int | None = None
        assert self.process.pid is not None
        self.pid = self.process.pid

    def send(self, s: str) -> int:
        """Type, a moment after the prompt: what is typed before a program has turned echo off is dropped."""
        time.sleep(0.05)
        return super().send(s)

    def sendintr(self) -> None:
        """Press Ctrl-C."""
        self.send("\x03")

    def sendeof(self) -> None:
        """Press Ctrl-D."""
        self.send("\x04")

    def setwinsize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.child_fd, (rows, columns))

    def kill(self, number: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)

    def close(self) -> None:
        """Hang up, and wait for the exit code; None: it did not end within a minute."""
        super().close()
        self.process.join(60)
        self.exitstatus = self.process.exitcode


def run_forked(
    arguments: tuple[str, ...], timeout: float, *, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run `massmem ARGUMENTS` to its end, without stdin.

    Raises:
        TimeoutExpired: it took longer, and was killed.
    """
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        environment = dict(os.environ if env is None else env)
        process = processes.Process(
            target=_run_in_files, args=(arguments, environment, cwd or Path.cwd(), out, err), daemon=True
        )
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            process.close()
            raise subprocess.TimeoutExpired(arguments, timeout, out.read_bytes(), err.read_bytes())
        code = process.exitcode
        process.close()
        assert code is not None
        return subprocess.CompletedProcess(arguments, code, out.read_bytes(), err.read_bytes())


def run_at_once(*commands: tuple[str, ...], stdin: str = "") -> "list[subprocess.CompletedProcess[str]]":
    """Run each of `massmem COMMAND`, all from the same moment on; return what they came to, in this order.

    stdin: a line for each of them, with {} for its number from 0.
    """
    start = processes.Barrier(len(commands))
    with TemporaryDirectory() as name:
        folder = Path(name)
        started: list[ForkServerProcess] = []
        for number, command in enumerate(commands):
            (folder / f"in{number}").write_text(stdin.format(number))
            files = [folder / f"{part}{number}" for part in ("in", "out", "err")]
            process = processes.Process(
                target=_run_at_start, args=(command, dict(os.environ), Path.cwd(), files, start), daemon=True
            )
            process.start()
            started.append(process)
        results: list[subprocess.CompletedProcess[str]] = []
        for number, (command, process) in enumerate(zip(commands, started, strict=True)):
            process.join(120)
            code = process.exitcode
            process.kill()
            out, err = ((folder / f"{part}{number}").read_text() for part in ("out", "err"))
            assert code is not None, (command, out, err)
            results.append(subprocess.CompletedProcess(command, code, out, err))
        return results


def _run_at_start(
    arguments: tuple[str, ...], env: Mapping[str, str], folder: Path, files: Sequence[Path], start: Barrier
) -> None:
    with files[0].open() as source:
        os.dup2(source.fileno(), 0)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    start.wait(60)
    _run_in_files(arguments, env, folder, *files[1:])


def _run_in_pipe(arguments: tuple[str, ...], env: Mapping[str, str], folder: Path, out: Connection, err: Path) -> None:
    with out:
        os.dup2(out.fileno(), 1)
    _redirect(err, 2)
    _run(arguments, env, folder)


def _run_in_files(arguments: tuple[str, ...], env: Mapping[str, str], folder: Path, out: Path, err: Path) -> None:
    _redirect(out, 1)
    _redirect(err, 2)
    _run(arguments, env, folder)


def _run_on_terminal(arguments: tuple[str, ...], env: Mapping[str, str], folder: Path, terminal: Connection) -> None:
    os.setsid()
    fcntl.ioctl(terminal.fileno(), termios.TIOCSCTTY, 0)
    with terminal:
        for number in range(3):
            os.dup2(terminal.fileno(), number)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    _run(arguments, env, folder)


def _run_as_server(arguments: tuple[str, ...], env: Mapping[str, str], folder: Path, log: Path, out: Path) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG; the parent ends with the test process
    _redirect(out, 1, "ab")
    _redirect(log, 2, "ab")
    _run(arguments, env, folder)


def _redirect(path: Path, number: int, mode: str = "wb") -> None:
    with path.open(mode) as file:
        os.dup2(file.fileno(), number)


def _run(arguments: tuple[str, ...], env: Mapping[str, str], folder: Path) -> None:
    from massmem.cli.main import main

    with suppress(PermissionError):
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    # As at the start of a program: the server's streams belong to what its fds 1 and 2 were then.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = [str(Path(massmem.__file__).with_name("__main__.py")), *arguments]
    sys.exit(main())
