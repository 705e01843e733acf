"""Runs massmem, as a process or in this one, on teams whose models follow a script."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from massmem.cli.main import main
from tests.support.forked import run_forked

COMMAND = [sys.executable, "-m", "massmem"]


def massmem(
    *arguments: str, timeout: float = 90, text: bool = False, **where: Any
) -> "subprocess.CompletedProcess[Any]":
    """Run a process to its end, without stdin, with the environment and HOME of the test.

    where: `env`, `cwd`.
    """
    result = run_forked(arguments, timeout, **where)
    if text:
        result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
    return result


def run_program(
    *arguments: str, stdin: bytes | None = None, timeout: float = 90, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """As `massmem`, from the interpreter's start: a second more, for what depends on it. stdin None: /dev/null."""
    source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, timeout=timeout, check=False, **source, **options
    )


def call_massmem(
    *arguments: str, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run massmem in this process, which saves the second that a process needs to start.

    Not for tests of signals, kills and file modes, which only a process shows. stdin is a pipe.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    folder = chdir(cwd) if cwd else nullcontext()
    with folder, _own_environment(env), _stdin(stdin), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as e:  # how Typer answers a shell that completes
            code = e.code
    return subprocess.CompletedProcess(arguments, code, _read_written(out), _read_written(err))


def start(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, with pipes for stdout and stderr."""
    defaults = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
    }
    return subprocess.Popen([*COMMAND, *arguments], **(defaults | options))


def script(answer: str | list[str] = "an answer", latency: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return the script of a model with this answer, or with one for each turn; `write_team` adds its votes."""
    return {"latency": latency, "answer": answer, **more}


def write_team(folder: Path, *scripts: dict[str, Any], **sections: Any) -> str:
    """Write a configuration with one agent (a, b, c, ...) per script; return its path. JSON is YAML.

    The first agent wins, unless scripts have votes of their own. The searchable memory, whose start is half of a short
    run, is disabled unless `memory` is given.
    """
    agents = [
        {"id": chr(ord("a") + i), "backend": {"type": "scripted", "script": one}}
        for i, one in enumerate(_add_votes(scripts))
    ]
    path = folder / "team.yaml"
    memory = {"persistent_memory": {"enabled": False}}
    path.write_text(json.dumps({"agents": agents, "memory": memory, **sections}))
    return str(path)


def _add_votes(scripts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let agents without votes vote for the first agent's answers, and the first for the second's.

    They vote by text, since labels are random; errors and questions to the user cannot be voted for.
    """
    texts = [_list_texts(one) for one in scripts]
    favourites = [texts[1] if len(texts) > 2 and i == 0 else texts[0] for i in range(len(texts))]
    return [
        {"vote": [{"vote_for": text, "reason": "clear"} for text in favourite], **one} if favourite else one
        for one, favourite in zip(scripts, favourites, strict=True)
    ]


def _list_texts(one: dict[str, Any]) -> list[str]:
    """Return the answers of a script; empty unless all of them are texts."""
    answers = one.get("answer")
    answers = answers if isinstance(answers, list) else [answers]
    return answers if all(isinstance(answer, str) for answer in answers) else []


@contextmanager
def _own_environment(env: Mapping[str, str] | None) -> Iterator[None]:
    """Restore the variables at the end: massmem adds those of .env."""
    before = dict(os.environ)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _stdin(data: bytes) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    try:
        yield
    finally:
        sys.stdin = before


def _read_written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()
