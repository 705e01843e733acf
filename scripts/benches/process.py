"""Whole processes, measured from outside, each in a clean environment."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
MASSMEM = str(Path(sys.executable).with_name("massmem"))

_PROBE = str(Path(__file__).with_name("probe.py"))
_LIMIT = 300.0
_FOREIGN = ("_API_KEY", "_API_TOKEN", "_PROXY", "_proxy")


class BenchError(Exception):
    """A bench cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something to run: its arguments, its environment, its working directory, and the exit code that is right."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    code: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One run. wall, cpu (user + system), first_byte (on stdout, None without any): seconds."""

    wall: float
    cpu: float
    peak_mb: float
    first_byte: float | None
    size: int
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
    if sample is None or sample.code != command.code:
        code = probe.returncode if sample is None else sample.code
        raise BenchError(f"{' '.join(command.argv)} ended with {code}: {err.strip()[-500:]}")
    return sample


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
