"""`massmem paths`: where everything is kept."""

import json
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.logs import DEBUG_LOGS
from massmem.cli.streams import write_out
from massmem.cli.team import Prepared, prepared
from massmem.memory import index_folder
from massmem.registry import without_password
from massmem.render.printable import printable
from massmem.weights import models_folder

app = typer.Typer(help="Show where everything is kept.")


@app.callback(invoke_without_command=True)
def paths_command(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show where everything is kept: configuration, sessions, memories, models, logs. Nothing is made."""
    found = _paths(prepared(config))
    if as_json:
        write_out(json.dumps(found, ensure_ascii=False) + "\n")
        return
    width = max(map(len, found))
    write_out("".join(printable(f"{name:<{width}}  {place}") + "\n" for name, place in found.items()))


def _paths(at: Prepared) -> dict[str, str]:
    persistent = at.config.memory.persistent_memory
    qdrant = persistent.qdrant
    server = without_password(qdrant.url or f"http://{qdrant.host}:{qdrant.port}")
    return {
        "home": str(at.home),
        "config": at.config.source,
        "store": _store(at.config.store.url),
        "registry": str(at.home / "sessions.json"),
        "memory": server if qdrant.mode == "server" else str(index_folder(at.config.memory, at.home)),
        "models": str(models_folder()),
        "logs": str(at.home / "logs"),
        "debug_logs": str(DEBUG_LOGS.absolute()),
    }


def _store(url: str) -> str:
    """The file of SQLite, else the address without its password."""
    name = url.removeprefix("sqlite:///")
    return str(Path(name).expanduser().absolute()) if name != url else without_password(url)
