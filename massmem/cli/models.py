"""`massmem models`: which there are, and the weights of those that run on this machine."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import typer

from massmem.cli.model_servers import Server, model_servers
from massmem.cli.streams import write_out
from massmem.cli.team import prepared
from massmem.config.models import TeamConfig
from massmem.errors import ConfigError, InputError
from massmem.providers.local import CONTEXT_WINDOW
from massmem.registry import without_password
from massmem.render.printable import printable
from massmem.weights import (
    DEFAULT,
    FETCH,
    KNOWN,
    SMALL,
    Weights,
    default_sources,
    fetch,
    from_url,
    is_url,
    models_folder,
    state,
)

MB = 1e6
STEP = 10

app = typer.Typer(no_args_is_help=True, help="Show the models there are; fetch those that run on this machine.")


@app.command("fetch")
def fetch_command(
    url: Annotated[
        str | None, typer.Argument(help="A .gguf file on the web, for a backend with this `model:`.")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help=f"{SMALL.name} (491 MB) instead of {DEFAULT.name}.")] = False,
    source: Annotated[str | None, typer.Option("--from", help="Try this path or URL first.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fetch a model: by default the embedded one (1.1 GB). Goes on where it was stopped."""
    weights = _chosen(url, small=small)
    already = state(models_folder() / weights.file, weights.sha256) == "verified"
    started = time.monotonic()
    with _display(weights) as progress:
        path = fetch(weights, default_sources(weights, url or source), models_folder(), progress, _notice)
    seconds = time.monotonic() - started
    if as_json:
        result = _row(weights) | {"fetched": not already, "seconds": round(seconds, 1)}
        write_out(json.dumps(result, ensure_ascii=False) + "\n")
    elif already:
        _notice(f"{weights.name} is already there: {path}")
    else:
        _notice(f"{weights.name} is ready after {seconds:.0f} s: {path}")


@app.command("list")
def list_command(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no server.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """List the models there are: those that run inside massmem, and those that servers offer.

    Asked are the endpoints of the team, and Ollama, LM Studio, vLLM and llama.cpp at their usual ports here.
    """
    rows = [_row(weights) | {"source": "embedded", "context_window": CONTEXT_WINDOW} for weights in KNOWN]
    servers = [] if offline else asyncio.run(model_servers(_team(config)))
    if as_json:
        every = [*rows, *(row for server in servers for row in server.rows())]
        write_out(json.dumps(every, indent=1, ensure_ascii=False) + "\n")
    else:
        _show(rows, servers)
    for server in servers:
        if server.problem:
            _notice(printable(f"{server.type}: {server.problem}"))
    if rows[0]["state"] != "verified" and not as_json:
        _notice(f"get the embedded model with: {FETCH}")


def _team(config: str | None) -> TeamConfig | None:
    """What is listed does not depend on it: a default that is wrong is only told."""
    try:
        return prepared(config).config
    except ConfigError as e:
        if config is not None:
            raise
        _notice(printable(e.message))
        return None


def _show(rows: Sequence[dict[str, Any]], servers: Sequence[Server]) -> None:
    for row in rows:
        size = f"{row['size'] / MB:,.0f} MB"
        window = f"{row['context_window']:,} tokens"
        write_out(f"{row['name']:<30} {size:>9}  {row['state']:<10}  {window}  {row['path']}\n")
    for server in servers:
        if not server.problem:
            write_out(printable(f"\n{server.type}, {without_password(server.base_url)}\n"))
        width = max((len(model.name) for model in server.models), default=0)
        for model in server.models:
            window = f"{model.window:,} tokens" if model.window else "-"
            mark = "*" if model.name in server.used else " "
            write_out(printable(f"{mark} {model.name:<{width}}  {window:>16}\n"))
    if any(server.used for server in servers):
        _notice("*: used by the team")


def _chosen(url: str | None, *, small: bool) -> Weights:
    if url is None:
        return SMALL if small else DEFAULT
    if small or not is_url(url):
        raise InputError(
            f"{url!r} is not an http(s) URL of a model" if not small else "give a URL or --small, not both"
        )
    return from_url(url)


def _row(weights: Weights) -> dict[str, Any]:
    path = models_folder() / weights.file
    found = state(path, weights.sha256)
    size = weights.size if found == "missing" else path.stat().st_size
    return {"name": weights.name, "size": size, "state": found, "path": str(path), "sha256": weights.sha256}


def _notice(line: str) -> None:
    sys.stderr.write(f"massmem: {line}\n")
    sys.stderr.flush()


def _display(weights: Weights) -> AbstractContextManager[Callable[[int, int | None], None]]:
    return _Bar(weights.name) if sys.stderr.isatty() else nullcontext(_Lines(weights.name))


class _Lines:
    """A line for every tenth, where there is no terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = -1

    def __call__(self, done: int, total: int | None) -> None:
        # Without a total a line for every 100 MB.
        step = done * 100 // total // STEP * STEP if total else int(done / MB) // 100 * 100
        if step == self._shown:
            return
        self._shown = step
        if total:
            _notice(f"{self._name}: {step} % of {total / MB:,.1f} MB")
        else:
            _notice(f"{self._name}: {step} MB")


class _Bar(AbstractContextManager[Callable[[int, int | None], None]]):
    """A progress bar on the terminal."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(name, total=None)

    def __enter__(self) -> Callable[[int, int | None], None]:
        self._progress.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _update(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)
