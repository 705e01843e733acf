"""`massmem paths`: where massmem keeps its files."""

import typer

from massmem.cli.logs import DEBUG_LOGS
from massmem.cli.options import AsJson, Config
from massmem.cli.setup import Setup, load_setup
from massmem.cli.streams import write_json, write_out
from massmem.config.home import expand_home
from massmem.core.text import make_printable
from massmem.memory.opening import index_root
from massmem.providers.weights import models_folder
from massmem.session.registry import without_password

app = typer.Typer(help="Show where massmem keeps its files.")


@app.command()
def paths_command(config: Config = None, as_json: AsJson = False) -> None:
    """Show where massmem keeps configuration, sessions, memories, models and logs. Nothing is created."""
    paths = _find_paths(load_setup(config))
    if as_json:
        write_json(paths)
        return
    width = max(map(len, paths))
    write_out("".join(make_printable(f"{name:<{width}}  {path}") + "\n" for name, path in paths.items()))


def _find_paths(setup: Setup) -> dict[str, str]:
    config, home = setup.config, setup.home
    qdrant = config.memory.persistent_memory.qdrant
    server = without_password(qdrant.url or f"http://{qdrant.host}:{qdrant.port}")
    return {
        "home": str(home),
        "config": config.source,
        "store": _format_store(config.store.url),
        "registry": str(home / "sessions.json"),
        "memory": server if qdrant.mode == "server" else str(index_root(config.memory, home)),
        "models": str(models_folder()),
        "logs": str(home / "logs"),
        "debug_logs": str(DEBUG_LOGS.absolute()),
    }


def _format_store(url: str) -> str:
    """Return the file of an SQLite store, else the URL without its password."""
    name = url.removeprefix("sqlite:///")
    return str(expand_home(name).absolute()) if name != url else without_password(url)
