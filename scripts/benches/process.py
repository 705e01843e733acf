"""Whole processes, measured from outside, each in a clean environment."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.benches.rows import ROOT

PYTHON = sys.executable
MASSMEM = str(Path(sys.executable).with_name("massmem"))

_PROBE = str(Path(__file__).with_name("probe.py"))
_LIMIT = 300.0
_MODULE_LIMIT = 7200
_FOREIGN = ("_API_KEY", "_API_TOKEN", "_PROXY", "_proxy", "DONTWRITEBYTECODE")  # users have compiled modules


class BenchError(Exception):
    """A bench cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something to run, in which environment and working directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One run. wall, cpu (user + system): seconds."""

    wall: float
    cpu: float
    peak_mb: float
    code: int


@contextmanager
def workspace() -> Generator[Path]:
    """An empty folder that serves as HOME and working directory."""
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        yield Path(folder)


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of this process with another HOME, without keys and proxies, and with `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith(_FOREIGN) and not k.startswith("CONVERSATION_")}
    return kept | {"HOME": str(home)} | more


def measure(command: Command, limit: float = _LIMIT) -> Sample:
    """Run `command` to its end and measure it.

    Raises:
        BenchError: it failed, or took longer than `limit` seconds.
    """
    probe = subprocess.Popen(
        [PYTHON, "-I", "-S", _PROBE, *command.argv],
        env=command.env,
        cwd=command.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = probe.communicate(timeout=limit)
    except subprocess.TimeoutExpired as e:
        os.killpg(probe.pid, signal.SIGKILL)
        probe.communicate()
        raise BenchError(f"{' '.join(command.argv)} took longer than {limit:g} s") from e
    sample = Sample(**json.loads(out)) if probe.returncode == 0 else None
    if sample is None or sample.code:
        code = probe.returncode if sample is None else sample.code
        raise BenchError(f"{' '.join(command.argv)} ended with {code}: {err.strip()[-500:]}")
    return sample


def run_module(name: str, *arguments: object, env: Mapping[str, str]) -> dict[str, Any]:
    """Run a module of this folder in a process of its own; return the JSON that it prints.

    Raises:
        BenchError: it failed.
    """
    command = [PYTHON, "-m", f"scripts.benches.{name}", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=_MODULE_LIMIT
    )
    if done.returncode:
        raise BenchError(f"{' '.join(command[2:])} stopped: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def resident() -> dict[str, float]:
    """Resident megabytes of this process, now and at most; how many are pages of files, which the system takes back."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    names = {"rss_mb": "VmRSS:", "files_mb": "RssFile:", "peak_mb": "VmHWM:"}
    return {name: int(status.partition(key)[2].split()[0]) / 1024 for name, key in names.items()}


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs. log: what it writes to stderr."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def fail(self) -> BenchError:
        return BenchError(f"a server did not start: {self.log.read_text(errors='replace')[-500:]}")


@contextmanager
def start_server(home: Path, port: int, *arguments: object) -> Generator[Server]:
    """Run `python -m ARGUMENTS`, a server that listens on the port; end it and its workers after the block.

    Raises:
        BenchError: it does not listen within a minute.
    """
    log, command = home / f"server-{port}.log", [PYTHON, "-m", *map(str, arguments)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, env=environment(home), cwd=ROOT, stderr=stderr, start_new_session=True)
    server = Server(port, process, log)
    try:
        for _ in range(600):
            if process.poll() is not None:
                break
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        if process.poll() is not None:
            raise server.fail()
        yield server
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def in_turn(commands: Sequence[Command], runs: int, warm_up: int = 1) -> list[list[Sample]]:
    """Run the commands in turn, A B A B ..., `runs` times each after the warm-up; the samples of each command."""
    for command in [*commands] * warm_up:
        measure(command)
    rounds = [[measure(command) for command in commands] for _ in range(runs)]
    return [list(samples) for samples in zip(*rounds, strict=True)]


def walls(samples: Sequence[Sample]) -> list[float]:
    return [sample.wall for sample in samples]


def cpus(samples: Sequence[Sample]) -> list[float]:
    return [sample.cpu for sample in samples]
