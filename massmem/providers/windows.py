"""How many tokens a backend's model reads: from the configuration, its server, or a table, in this order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from massmem.config.models import BackendConfig, BackendType
from massmem.providers.local import CONTEXT_WINDOW
from massmem.providers.presets import Endpoint, resolve
from massmem.providers.window_table import table_window

ASSUMED_WINDOW = 128_000
"""Of an unknown model: what most models that are served today read at least."""

_UNLOADED = 4_096
"""Of a model that Ollama or LM Studio has not loaded yet: what both give one when nothing else is set.

Ollama gives more to machines with 24 GB of graphics memory; once the model runs the server says how much.
"""


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """tokens: prompt and reply together. source: where that is known from; assumed: nobody said (ask again later)."""

    tokens: int
    source: Literal["config", "server", "table", "assumed"]


async def context_window(backend: BackendConfig, environ: Mapping[str, str]) -> ContextWindow:
    """The window of a backend. Takes at most a few seconds: a server that cannot say in time is not needed.

    environ: where the endpoint and its key may be named, normally os.environ.

    Raises:
        MissingKeyError, ConfigError: as opening the backend's provider does.
    """
    if backend.context_window is not None:
        return ContextWindow(backend.context_window, "config")
    match backend.type:
        case "local":
            return ContextWindow(CONTEXT_WINDOW, "server")
        case "scripted":
            named = (backend.script or {}).get("context_window")
            named = named if isinstance(named, int) else 0
            return ContextWindow(named, "config") if named else ContextWindow(ASSUMED_WINDOW, "assumed")
        case _:
            return await _served(backend, resolve(backend, environ))


async def _served(backend: BackendConfig, endpoint: Endpoint) -> ContextWindow:
    ask = await asyncio.to_thread(_load_client)
    if said := await ask(backend.type, endpoint):
        return ContextWindow(said, "server")
    if backend.type in ("ollama", "lmstudio"):
        return ContextWindow(_UNLOADED, "assumed")
    if known := table_window(endpoint.model):
        return ContextWindow(known, "table")
    return ContextWindow(ASSUMED_WINDOW, "assumed")


def _load_client() -> Callable[[BackendType, Endpoint], Awaitable[int | None]]:
    from massmem.providers.window_server import asked_window

    return asked_window
