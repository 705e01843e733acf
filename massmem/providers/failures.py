"""What a failed request means: from a status, a code and a server's words to one of massmem's errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from massmem.errors import (
    AuthenticationError,
    ContentRefused,
    ContextOverflow,
    MalformedResponse,
    ModelNotFound,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
    StreamInterrupted,
)
from massmem.redact import REDACTED, redact

_LONGEST_MESSAGE = 300

BY_STATUS: Mapping[int, type[ProviderError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: ModelNotFound,
    408: ProviderUnavailable,
    409: ProviderUnavailable,
    # The body is too large: like an overflow, it passes once the view is compressed.
    413: ContextOverflow,
    429: RateLimited,
}

# Codes and types in error bodies, where they say more than the status. In the middle of a stream they are all there is.
BY_CODE: Mapping[str, type[ProviderError]] = {
    "context_length_exceeded": ContextOverflow,
    "exceed_context_size_error": ContextOverflow,
    "model_context_window_exceeded": ContextOverflow,
    "request_too_large": ContextOverflow,
    # Sent with 429, but no wait helps.
    "insufficient_quota": RequestRejected,
    "billing_error": RequestRejected,
    "billing_hard_limit_reached": RequestRejected,
    "content_filter": ContentRefused,
    "content_policy_violation": ContentRefused,
    "model_not_found": ModelNotFound,
    "not_found_error": ModelNotFound,
    "invalid_api_key": AuthenticationError,
    "authentication_error": AuthenticationError,
    "permission_error": AuthenticationError,
    "rate_limit_exceeded": RateLimited,
    "rate_limit_error": RateLimited,
    "overloaded_error": ProviderUnavailable,
    "timeout_error": ProviderUnavailable,
    "conflict_error": ProviderUnavailable,
    "api_error": ProviderUnavailable,
    "server_error": ProviderUnavailable,
    "internal_server_error": ProviderUnavailable,
    "invalid_request_error": RequestRejected,
}

# Each way of saying "context too long", with the numbers where they are named. Tested one by one.
_OVERFLOW = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Anthropic; Fireworks
        r"prompt is too long(?:: (?P<prompt>\d+)"
        r"(?: tokens > (?P<window>\d+)|, model maximum context length: (?P<w2>\d+))?)?",
        r"input length and `max_tokens` exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<window>\d+)",
        # llama.cpp
        r"request(?: \((?P<prompt>\d+) tokens\))? exceeds the available context size(?: \((?P<window>\d+) tokens\))?",
        # vLLM and SGLang
        r"decoder prompt \(length (?P<prompt>\d+)\) is longer than the maximum model length of (?P<window>\d+)",
        r"input length \((?P<prompt>\d+)\) exceeds model's maximum context length \((?P<window>\d+)\)",
        # Together
        r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<window>\d+) tokens\)",
        r"`max_new_tokens` must be <= (?P<window>\d+)\. Given: (?P<prompt>\d+) `inputs` tokens",
        # Mistral
        r"prompt contains (?P<prompt>\d+) tokens.*?too large for model with (?P<window>\d+) maximum context length",
        # Gemini
        r"input token count(?: \((?P<prompt>\d+)\))? exceeds the maximum number of tokens allowed"
        r"(?: \((?P<window>\d+)\))?",
        # xAI
        r"maximum prompt length is (?P<window>\d+) but the request contains (?P<prompt>\d+)",
        # OpenAI, Azure, DeepSeek, vLLM, OpenRouter: "However, [your messages resulted in | you requested about] N"
        r"maximum context length (?:is|of) (?P<window>\d+) tokens\W+"
        r"(?:however,? )?(?:you requested|your messages resulted in|your request has|you requested a total of)"
        r"(?: about)? (?P<prompt>\d+)",
        r"(?<!too large: )maximum context length (?:is|of) (?P<window>\d+) tokens(?! and your request has)",
        r"exceeds the context window",
        # OpenAI and Groq: one request beyond the tokens that a whole minute allows
        r"request too large for .*?limit (?P<window>\d+), requested (?P<prompt>\d+)",
        # Groq, Cerebras
        r"reduce the length of the messages(?: or completion)?"
        r"(?:\. current length is (?P<prompt>\d+) while limit is (?P<window>\d+))?",
        # Ollama
        r"(?:input|input length|prompt) (?:exceeds|is longer than) (?:the )?(?:maximum )?context length",
        r"prompt too long; exceeded (?:max )?context length",
        # LM Studio
        r"tokens to keep from the initial prompt is greater than the context length",
        r"first (?P<prompt>\d+) tokens when context the overflows.*?context length of only (?P<window>\d+)",
        r"context[_ ]length[_ ]exceeded",
    )
)  # fmt: skip

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

_HINTS: Mapping[type[ProviderError], str] = {
    AuthenticationError: "Check the API key, and that it may use this model.",
    ModelNotFound: "Check backend.model and backend.base_url.",
    ProviderTimeout: "backend.timeout sets how long to wait.",
    ProviderConnectionError: "Check backend.base_url, and that the server runs and can be reached.",
    MalformedResponse: "Check that backend.base_url is the API's address (often it ends in /v1).",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Whose failure it is, for messages. key: taken out of every text."""

    name: str
    model: str
    key: str = field(repr=False)

    def error(self, kind: type[ProviderError], text: str, retry_after: float | None = None) -> ProviderError:
        """An error of a kind, in the server's or the library's words, cleaned and shortened."""
        message = f"{self.name} ({self.model}): {cleaned(text, self.key) or 'no reason given'}"
        if issubclass(kind, ContextOverflow):
            prompt, window = overflow_numbers(text)
            return kind(message, prompt_tokens=prompt, window=window)
        return kind(message, _HINTS.get(kind, ""), retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error as a server words it. status 200: it came in the middle of a stream."""

    status: int
    text: str
    codes: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    window: int | None = None

    def error(self, source: Source, retry_after: float | None = None) -> ProviderError:
        kind = self.kind()
        where = f"HTTP {self.status}" if self.status != 200 else "in the stream"
        error = source.error(kind, f"{where}: {self.text}", retry_after)
        if isinstance(error, ContextOverflow):
            error.prompt_tokens = self.prompt_tokens or error.prompt_tokens
            error.window = self.window or error.window
        return error

    def kind(self) -> type[ProviderError]:
        """Overflow first, since its status and code differ everywhere; then the code; then the status."""
        if is_overflow(self.text):
            return ContextOverflow
        for code in self.codes:
            if code in BY_CODE and not self._is_generic(code):
                return BY_CODE[code]
        return kind_of_status(self._status_in_stream())

    def _is_generic(self, code: str) -> bool:
        # OpenAI's servers call nearly every 4xx an invalid request.
        return code == "invalid_request_error" and self.status != 200

    def _status_in_stream(self) -> int:
        numbers = (int(code) for code in self.codes if re.fullmatch(r"[45]\d\d", code))
        return next(numbers, 500) if self.status == 200 else self.status


def kind_of_status(status: int) -> type[ProviderError]:
    """What a status alone says. 5xx may pass; any other is the request's fault."""
    if status >= 500:
        return ProviderUnavailable
    return BY_STATUS.get(status, RequestRejected)


def after_start(kind: type[ProviderError]) -> type[ProviderError]:
    """The same failure once the reply has begun: a lost connection is an interrupted stream."""
    return StreamInterrupted if issubclass(kind, ProviderConnectionError) else kind


def complaint(status: int, body: object, fallback: str = "") -> Complaint:
    """Read an error body, which is JSON of one of several shapes, text, or nothing. fallback: text if it has none."""
    error = _inner(body)
    if not isinstance(error, Mapping):
        return Complaint(status, _plain(error) or fallback)
    fields = cast("Mapping[str, Any]", error)
    texts = (fields.get(name) for name in ("message", "error", "detail", "msg"))
    codes = (fields.get(name) for name in ("code", "type", "status"))
    return Complaint(
        status,
        next((t for t in texts if isinstance(t, str) and t), fallback),
        tuple(str(c).lower() for c in codes if isinstance(c, str | int)),
        _count(fields.get("n_prompt_tokens")),
        _count(fields.get("n_ctx")),
    )


def is_overflow(text: str) -> bool:
    """The text says that the prompt does not fit."""
    return any(pattern.search(text) for pattern in _OVERFLOW)


def overflow_numbers(text: str) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the window, where the text names them."""
    for pattern in _OVERFLOW:
        if found := pattern.search(text):
            named = found.groupdict()
            return _count(named.get("prompt")), _count(named.get("window") or named.get("w2"))
    return None, None


def cleaned(text: str, key: str = "") -> str:
    """One line of at most 300 characters, without keys and control characters."""
    if key:
        text = text.replace(key, REDACTED)
    text = redact(text[: 20 * _LONGEST_MESSAGE])
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"


def _inner(body: object) -> object:
    """The error object itself: some servers wrap it in a list, most in {"error": ...}."""
    if isinstance(body, Sequence) and not isinstance(body, str | bytes) and body:
        body = cast("Sequence[object]", body)[0]
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, object]", body)
        inner = fields.get("error")
        return cast("object", inner) if isinstance(inner, Mapping) else fields
    return cast("object", body)


def _plain(body: object) -> str:
    text = body.strip() if isinstance(body, str) else ""
    return "an HTML page instead of an API's reply" if text[:1] == "<" else text


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else None
