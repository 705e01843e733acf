"""What went wrong when mem0 asked a model, in our terms. By status, names and words: each provider has its library."""

import re
from collections.abc import Mapping
from typing import Any

from massmem.config.models import MemoryLlmConfig
from massmem.errors import (
    AuthenticationError,
    ContentRefused,
    ContextOverflow,
    MalformedResponse,
    MassmemError,
    ModelNotFound,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
)
from massmem.redact import REDACTED, redact

_LONGEST_MESSAGE = 300

_BY_STATUS: Mapping[int, type[ProviderError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: ModelNotFound,
    408: ProviderUnavailable,
    409: ProviderUnavailable,
    413: ContextOverflow,
    429: RateLimited,
}

_BY_NAME: Mapping[str, type[ProviderError]] = {
    "ContentFilter": ContentRefused,
    "Timeout": ProviderTimeout,
    "Connect|Transport|Network|OSError": ProviderConnectionError,
}
"""Failures without a status, by the names of their classes; a time-out is a kind of connection failure to most."""

_OVERFLOW = re.compile(
    r"context[ _](?:length|window|size)|prompt (?:is )?too long|longer than the .{0,40}length"
    r"|reduce the length|input token count|maximum prompt length|too large for model",
    re.IGNORECASE,
)
_NO_WAIT_HELPS = re.compile(r"insufficient_quota|billing", re.IGNORECASE)

_HINTS: Mapping[type[ProviderError], str] = {
    AuthenticationError: "Check the API key of memory.persistent_memory.llm, and that it may use this model.",
    ModelNotFound: "Check model and base_url of memory.persistent_memory.llm.",
    ProviderConnectionError: "Check that the server of memory.persistent_memory.llm runs and can be reached.",
}


def failure(error: BaseException, config: MemoryLlmConfig) -> MassmemError:
    """What went wrong when a model was asked, whichever library raised it."""
    if isinstance(error, MassmemError):
        return error
    text = _cleaned(str(error), config)
    kind = _kind_of_failure(error, text)
    if kind is MalformedResponse:
        text = f"the server's reply is not what the protocol promises ({text or type(error).__name__})"
    message = f"{config.provider} ({config.model or 'default model'}): {text or type(error).__name__}"
    if issubclass(kind, ContextOverflow):
        return kind(message)
    return kind(message, _HINTS.get(kind, ""), retry_after=_retry_after(error))


def _kind_of_failure(error: BaseException, text: str) -> type[ProviderError]:
    status = _status(error)
    if status is not None:
        return _kind_of_status(status, f"{text} {getattr(error, 'code', '')} {getattr(error, 'body', '')}")
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    for pattern, kind in _BY_NAME.items():
        if re.search(pattern, names):
            return kind
    return MalformedResponse  # the library stumbled over what the server sent


def _kind_of_status(status: int, text: str) -> type[ProviderError]:
    if status in (400, 413, 422, 500) and _OVERFLOW.search(text):
        return ContextOverflow
    if status == 429 and _NO_WAIT_HELPS.search(text):
        return RequestRejected
    return ProviderUnavailable if status >= 500 else _BY_STATUS.get(status, RequestRejected)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    found = (getattr(error, "status_code", None), getattr(error, "code", None), getattr(response, "status_code", None))
    return next((value for value in found if isinstance(value, int)), None)


def _retry_after(error: BaseException) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    asked = headers.get("retry-after") if hasattr(headers, "get") else None
    return float(asked) if isinstance(asked, str) and asked.isdecimal() else None


def _cleaned(text: str, config: MemoryLlmConfig) -> str:
    if config.api_key:
        text = text.replace(config.api_key.get_secret_value(), REDACTED)
    text = " ".join(redact(text[: 20 * _LONGEST_MESSAGE]).split())
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"
