"""How many tokens a backend's model reads: from the configuration, its server, a refusal or the price list, in order.

And whether a server has cut a prompt to its context size instead of refusing it.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal, cast

from massmem.config.home import replace_file
from massmem.config.models import BackendConfig, BackendType
from massmem.core.errors import PromptTruncated
from massmem.core.events import now
from massmem.core.redact import redact
from massmem.providers.local import CONTEXT_WINDOW
from massmem.providers.presets import Endpoint, resolve
from massmem.providers.pricing import find_listed_window

log = logging.getLogger(__name__)

ASSUMED_WINDOW = 128_000
"""Tokens of an unknown model: what most models that are served today read at least."""

_UNLOADED_WINDOW = 4_096
"""Tokens of a model that Ollama or LM Studio has not loaded yet: the default of both.

Ollama gives more to machines with 24 GB of graphics memory; once the model runs the server says how much.
"""

# Tokenizers differ. For one token that massmem counts (o200k_base, and a twentieth more) Qwen's needs 0.97 for prose,
# 0.95 for code, 0.82 for Chinese, 0.78 for Japanese and, as the lowest of fourteen kinds of text, 0.64 for nothing but
# emoji. A server that cuts keeps its window or half of it, and conversations grow: a cut that is missed at first is
# noticed some turns later.
_TRUNCATED_SHARE = 0.6
_LEAST_MISSING = 300
"""Tokens; below it, a chat template that words things differently could make the difference."""

_WINDOW_SETTINGS: Mapping[BackendType, str] = {
    "ollama": "num_ctx in its Modelfile, or OLLAMA_CONTEXT_LENGTH where `ollama serve` runs",
    "llamacpp": "--ctx-size of llama-server (it is divided by --parallel)",
    "lmstudio": "the context length that the model is loaded with",
    "vllm": "--max-model-len",
}
_ANY_SETTING = "the context size of the server (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH; llama.cpp: --ctx-size)"


_LEARNT_FILE = "windows.json"
_LEARNT_DAYS = 30
"""How long a refusal counts: servers are given other settings, and models other windows."""


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The context window of a model."""

    tokens: int
    """Prompt and reply together."""
    source: Literal["config", "server", "table", "assumed"]
    """Where the number is from; assumed: nobody said, so ask again later."""


class LearntWindows:
    """The windows that servers named when they refused a prompt, by endpoint and model, with the day of the refusal.

    They are kept in a file, so that the next process is not refused again.
    """

    def __init__(self, home: Path | None) -> None:
        """home: massmem's own folder; None: nothing is kept."""
        self._path = home / _LEARNT_FILE if home else None

    def find(self, endpoint: Endpoint) -> int | None:
        """Return the tokens of the window, None when there was no refusal in the last 30 days."""
        match self._read().get(_learnt_key(endpoint)):
            case {"tokens": int(tokens), "date": str(day)} if tokens > 0 and _is_recent(day):
                return tokens
            case _:
                return None

    def remember(self, endpoint: Endpoint, tokens: int) -> None:
        """Store the window that a server named. A file that cannot be written costs another refusal, no more."""
        if self._path is None:
            return
        entries = self._read() | {_learnt_key(endpoint): {"tokens": tokens, "date": now().date().isoformat()}}
        try:
            replace_file(self._path, json.dumps(entries, indent=1) + "\n")
        except OSError as e:
            log.info("the window of %s cannot be stored: %s", endpoint.model, e.strerror)

    def _read(self) -> dict[str, Any]:
        try:
            entries: object = json.loads(self._path.read_text("utf-8")) if self._path else {}
        except (OSError, ValueError):
            return {}
        return cast("dict[str, Any]", entries) if isinstance(entries, dict) else {}


def _learnt_key(endpoint: Endpoint) -> str:
    return redact(f"{endpoint.base_url} {endpoint.model}")


def _is_recent(day: str) -> bool:
    try:
        return date.fromisoformat(day) > now().date() - timedelta(days=_LEARNT_DAYS)
    except ValueError:
        return False


async def find_window(
    backend: BackendConfig, environ: Mapping[str, str], learnt: LearntWindows | None = None
) -> ContextWindow:
    """Return the window of a backend's model. Takes a few seconds at most: a slow server is not waited for.

    environ: where the endpoint and its key may be named, normally os.environ. learnt: from earlier refusals.

    Raises:
        MissingKeyError, ConfigError: as opening the backend's provider does.
    """
    if backend.context_window is not None:
        return ContextWindow(backend.context_window, "config")
    match backend.type:
        case "local":
            return ContextWindow(CONTEXT_WINDOW, "server")
        case "scripted":
            tokens = (backend.script or {}).get("context_window")
            if isinstance(tokens, int) and tokens:
                return ContextWindow(tokens, "config")
            return ContextWindow(ASSUMED_WINDOW, "assumed")
        case _:
            endpoint = resolve(backend, environ)
            window = await _find_served_window(backend, endpoint)
            tokens = learnt.find(endpoint) if learnt else None
            # A server on this machine says what it has now; others list what a model could read somewhere.
            is_exact = window.source == "server" and (endpoint.loopback or (tokens or 0) >= window.tokens)
            return window if tokens is None or is_exact else ContextWindow(tokens, "server")


def is_truncated(estimated: int, reported: int) -> bool:
    """Whether a server cut a prompt of `estimated` tokens (Buffer.at_least) that it counted as `reported`.

    reported: with tokens from the cache, as Usage.prompt has them; 0 means that the server does not say.
    """
    return 0 < reported < estimated * _TRUNCATED_SHARE and estimated - reported >= _LEAST_MISSING


def truncation_error(backend: BackendConfig, estimated: int, reported: int) -> PromptTruncated:
    """Return the error for a prompt that was cut; its hint names the setting to raise."""
    return PromptTruncated(
        f"{backend.type} ({backend.model}) read {reported:,} of about {estimated:,} tokens: it cut the prompt to its "
        "context size without saying so, and its reply does not count",
        f"Raise {_WINDOW_SETTINGS.get(backend.type, _ANY_SETTING)}, or set backend.context_window to what it really "
        "has.",
    )


async def _find_served_window(backend: BackendConfig, endpoint: Endpoint) -> ContextWindow:
    ask_window = await asyncio.to_thread(_load_ask_window)
    if tokens := await ask_window(backend.type, endpoint):
        return ContextWindow(tokens, "server")
    if backend.type in ("ollama", "lmstudio"):
        return ContextWindow(_UNLOADED_WINDOW, "assumed")
    if tokens := await asyncio.to_thread(find_listed_window, endpoint.model, endpoint.base_url):
        return ContextWindow(tokens, "table")
    return ContextWindow(ASSUMED_WINDOW, "assumed")


def _load_ask_window() -> Callable[[BackendType, Endpoint], Awaitable[int | None]]:
    """Import the HTTP client, which teams of local and scripted models do not need."""
    from massmem.providers.discovery import ask_window

    return ask_window
