"""How many tokens a backend's model reads: from the configuration, its server, a refusal or the price list, in order.

And whether a server has cut a prompt to its context size instead of refusing it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS, PROGRAM_TYPES, BackendType
from massmem.core.errors import PromptTruncated
from massmem.core.messages import Usage
from massmem.providers.endpoints import Endpoint, resolve
from massmem.providers.learnt import LearntModels
from massmem.providers.local import CONTEXT_WINDOW
from massmem.providers.pricing import find_listed_window

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
_MIN_MISSING = 300
"""Tokens; below it, a chat template that words things differently could make the difference."""
_ALIKE = 3
"""Prompts that count alike, however long they are, before that proves a cut. What is read anew differs each time."""

_ANY_SETTING = "the context size of the server (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH; llama.cpp: --ctx-size)"


@dataclass(frozen=True, slots=True)
class ContextWindow:
    tokens: int
    """Prompt and reply together."""
    source: Literal["config", "server", "table", "assumed"]
    """Where the number is from; assumed: nobody said, so ask again later."""


async def find_window(
    backend: BackendConfig, environ: Mapping[str, str], learnt: LearntModels | None = None
) -> ContextWindow:
    """Return the window of a backend's model. Takes a few seconds at most: a slow server is not waited for.

    environ: where the endpoint and its key may be named, normally os.environ. learnt: from earlier refusals.

    Raises MissingKeyError, ConfigError: as opening the backend's provider does.
    """
    if backend.context_window is not None:
        return ContextWindow(backend.context_window, "config")
    match backend.type:
        case "local":
            return ContextWindow(CONTEXT_WINDOW, "server")
        case type_ if type_ in PROGRAM_TYPES:
            return ContextWindow(ASSUMED_WINDOW, "assumed")
        case "scripted":
            tokens = (backend.script or {}).get("context_window")
            if isinstance(tokens, int) and tokens:
                return ContextWindow(tokens, "config")
            return ContextWindow(ASSUMED_WINDOW, "assumed")
        case _:
            endpoint = resolve(backend, environ)
            window = await _find_served_window(backend, endpoint)
            tokens = learnt.find_window(endpoint) if learnt else None
            # A server on this machine says what it has now; others list what a model could read somewhere.
            is_exact = window.source == "server" and (endpoint.loopback or (tokens or 0) >= window.tokens)
            return window if tokens is None or is_exact else ContextWindow(tokens, "server")


def is_short_count(estimated: int, usage: Usage) -> bool:
    """Whether a server counts much less than a prompt of `estimated` tokens (Buffer.at_least).

    It may have cut the prompt. Or it counts only what it has read anew (Ollama, gateways) or nothing at all (0).
    """
    reported = usage.prompt
    return 0 < reported < estimated * _TRUNCATED_SHARE and estimated - reported >= _MIN_MISSING and not usage.cached


async def ask_served_window(type_: BackendType, endpoint: Endpoint) -> int | None:
    """Return the tokens that a server gives its model now, None when it does not say."""

    def load() -> Callable[[BackendType, Endpoint], Awaitable[int | None]]:
        from massmem.providers.discovery import ask_window  # it has an HTTP client, which most teams need late or never

        return ask_window

    ask_window = await asyncio.to_thread(load)
    return await ask_window(type_, endpoint)


def find_cut(backend: BackendConfig, window: int | None, counts: Sequence[tuple[int, int]]) -> PromptTruncated | None:
    """Return the error for a prompt that its server has surely cut, None when a short count is all there is.

    The server's window is smaller than the prompt; or, when it names none, prompts of different lengths count alike.
    The hint names the setting to raise.

    window: of `ask_served_window`. counts: of the last prompts with short counts, our tokens and the server's; the last
    is the prompt in question.
    """
    estimated, reported = counts[-1]
    ours, theirs = zip(*counts[-_ALIKE:], strict=True)
    is_alike = len(theirs) == _ALIKE and max(theirs) <= 1.02 * min(theirs) and max(ours) >= 1.1 * min(ours)
    is_cut = is_alike if window is None else reported <= window < estimated * _TRUNCATED_SHARE
    if not is_cut:
        return None
    return PromptTruncated(
        f"{backend.type} ({backend.model}) read {reported:,} of about {estimated:,} tokens: it cut the prompt to its "
        "context size without saying so, and its reply does not count",
        f"Raise {PRESETS[backend.type].window_setting or _ANY_SETTING}, or set backend.context_window to what it "
        "really has.",
    )


async def _find_served_window(backend: BackendConfig, endpoint: Endpoint) -> ContextWindow:
    if tokens := await ask_served_window(backend.type, endpoint):
        return ContextWindow(tokens, "server")
    if backend.type in ("ollama", "lmstudio"):
        return ContextWindow(_UNLOADED_WINDOW, "assumed")
    if tokens := await asyncio.to_thread(find_listed_window, endpoint.model, endpoint.base_url):
        return ContextWindow(tokens, "table")
    return ContextWindow(ASSUMED_WINDOW, "assumed")
