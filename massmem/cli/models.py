"""`massmem models`: the weights of the models that run on this machine."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import typer

from massmem.cli.streams import write_out
from massmem.errors import InputError
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

app = typer.Typer(no_args_is_help=True, help="Show and fetch the models that run on this machine.")


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
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """List the models that massmem knows: size, whether they are on this machine, whether they were verified."""
    rows = [_row(weights) for weights in KNOWN]
    if as_json:
        write_out(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return
    for row in rows:
        size = f"{row['size'] / MB:,.0f} MB"
        write_out(f"{row['name']:<30} {size:>9}  {row['state']:<10}  {row['path']}\n")
    if rows[0]["state"] != "verified":
        _notice(f"get the embedded model with: {FETCH}")


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
