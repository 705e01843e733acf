"""How many tokens a backend's model reads: from the configuration, its server, or a table, in this order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from massmem.config.models import BackendConfig
from massmem.providers.local import CONTEXT_WINDOW
from massmem.providers.window_table import table_window

ASSUMED_WINDOW = 128_000
"""Of an unknown model: what most models that are served today read at least."""


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """tokens: prompt and reply together. source: where that is known from; assumed: nobody said."""

    tokens: int
    source: Literal["config", "server", "table", "assumed"]


async def context_window(backend: BackendConfig, environ: Mapping[str, str]) -> ContextWindow:
    """The window of a backend. Never fails and takes at most a few seconds: a server that does not say is not needed.

    environ: where the endpoint and its key may be named, normally os.environ.
    """
    if backend.context_window is not None:
        return ContextWindow(backend.context_window, "config")
    match backend.type:
        case "local":
            return ContextWindow(CONTEXT_WINDOW, "server")
        case "scripted":
            named = (backend.script or {}).get("context_window")
            return ContextWindow(named, "config") if isinstance(named, int) and named else _assumed()
        case _:
            known = table_window(backend.model)
            return ContextWindow(known, "table") if known else _assumed()


def _assumed() -> ContextWindow:
    return ContextWindow(ASSUMED_WINDOW, "assumed")
