"""What a failed request means: one table from statuses, codes and messages of servers to massmem's errors.

The adapters of the APIs use it, and the extraction of facts for whichever library mem0 uses.
"""

import math
import re
import socket
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, cast, get_args

from massmem.core.errors import (
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
    ToolsRefused,
    WrongAddress,
)
from massmem.core.redact import REDACTED, redact

_MAX_MESSAGE = 300

_KIND_BY_STATUS: Mapping[int, type[ProviderError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: ModelNotFound,
    408: ProviderUnavailable,
    409: ProviderUnavailable,
    # The body is too large: like an overflow, it goes away once the prompt is compressed.
    413: ContextOverflow,
    429: RateLimited,
}

# Codes and types in error bodies, which say more than the status. In the middle of a stream there is nothing else.
_KIND_BY_CODE: Mapping[str, type[ProviderError]] = {
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
    # llama.cpp's, the second with status 501.
    "unavailable_error": ProviderUnavailable,
    "not_supported_error": RequestRejected,
    "invalid_request_error": RequestRejected,
}

# Messages of status 429 that no wait helps against, for servers that send no code.
_QUOTA_USED_UP = re.compile(r"insufficient_quota|billing[ _]hard[ _]limit", re.IGNORECASE)

_MOMENTS_FROM, _MILLISECONDS_FROM = 1e9, 1e11
"""Larger numbers in `ratelimit-reset` are seconds, or milliseconds, since 1970; smaller ones are seconds from now."""

# How servers say "context too long", with the numbers where they name them. Each has a test.
_OVERFLOW_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Anthropic; Fireworks
        r"prompt is too long(?:: (?P<prompt>\d+)"
        r"(?: tokens > (?P<window>\d+)|, model maximum context length: (?P<w2>\d+))?)?",
        r"input length and `max_tokens` exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<window>\d+)",
        # llama.cpp
        r"request(?: \((?P<prompt>\d+) tokens\))? exceeds the available context size(?: \((?P<window>\d+) tokens\))?",
        # vLLM and SGLang
        r"maximum context length is (?P<window>\d+) tokens\. however, you requested \d+ output tokens and your prompt "
        r"contains at least (?P<prompt>\d+) input tokens",
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
        # Bedrock: Claude, Titan, Nova, and every model behind a limit of characters
        r"input is too long for requested model",
        r"too many input tokens\. max input tokens: (?P<window>\d+), request input token count: (?P<prompt>\d+)",
        r"number of input tokens exceeds maximum length",
        r"expected maxlength: \d+, actual: \d+",
        # Vertex
        r"input token count is (?P<prompt>\d+) but (?:the )?model only supports up to (?P<window>\d+)",
        # Cohere
        r"number of tokens in the prompt cannot exceed (?P<window>\d+) - received (?P<prompt>\d+)",
        r"too many tokens: size limit exceeded",
        # Qwen, Moonshot, Z.ai, MiniMax
        r"range of input length should be \[\d+, (?P<window>\d+)\]",
        r"request exceeded model token limit: (?P<window>\d+)(?: \(requested: (?P<prompt>\d+)\))?",
        r"prompt exceeds max length",
        r"context window exceeds limit",
        # LM Studio
        r"tokens to keep from the initial prompt is greater than the context length",
        r"first (?P<prompt>\d+) tokens when context the overflows.*?context length of only (?P<window>\d+)",
        r"context[_ ]length[_ ]exceeded",
    )
)  # fmt: skip

# vLLM speaks of the reply's limit when prompt and reply together do not fit. A shorter prompt helps, unless the limit
# is larger than the window.
_NO_ROOM_FOR_REPLY = re.compile(
    r"is too large: (?P<reply>\d+)\. this model's maximum context length is (?P<window>\d+) tokens and your "
    r"request has (?P<prompt>\d+) input tokens",
    re.IGNORECASE,
)

# What a refusal in words that no pattern knows says of a prompt that is too long: what it counts, and that it is too
# much. A refusal that speaks of the reply, of a rate or of another field is none.
_SPEAKS_OF_LENGTH = re.compile(
    r"\btokens?\b|context (?:length|window|size)|(?:prompt|input)\b.{0,40}\blength", re.IGNORECASE
)
_SPEAKS_OF_EXCESS = re.compile(
    r"exceed|too (?:long|large|many)|longer than|more than|at most|limit|maximum", re.IGNORECASE
)
_SPEAKS_OF_OTHERS = re.compile(
    r"max_?(?:completion_|output_|new_)?tokens|max_?length|completion tokens|output tokens|per (?:minute|min|day|hour)"
    r"|\brate\b|quota|array|budget|thinking|\bimages?\b|\bfiles?\b|stop (?:sequence|word)|api key|auth|expired"
    r"|invalid token",
    re.IGNORECASE,
)
_BAD_REQUESTS = (400, 413, 422)

# What models and servers do not take, and how they say so. What is refused is left out, or said in another form.

Refusal = Literal[
    "chat", "responses", "tools", "forced_tools", "schema", "adaptive_thinking", "effort", "reasoning", "temperature",
    "stream_options", "max_tokens", "max_completion_tokens", "prompt_cache_key",
    "cache_control", "pictures",
]  # fmt: skip
"""What a request held that was refused: an API, a form of actions, or an option."""

REFUSALS: tuple[Refusal, ...] = get_args(Refusal)

_REFUSAL_WORDS: Mapping[Refusal, str] = {
    "chat": "tools on chat completions",
    "responses": "the Responses API",
    "tools": "tool calls",
    "forced_tools": "forced tool calls",
    "schema": "structured output",
    "adaptive_thinking": "adaptive thinking",
    "cache_control": "marks for its cache",
    "pictures": "pictures",
    "reasoning": "these reasoning options",
}

# Each has a test. The first that speaks of something that the request held counts.
_REFUSAL_TEXTS: tuple[tuple[Refusal, str], ...] = (
    # OpenAI: function tools with the newest models, and models that chat completions do not have
    ("chat", r"v1/responses"),
    # OpenAI, Azure
    ("responses", r"not supported (?:in|by|with|on) (?:the |v1/)?responses|responses api is (?:not|only)"),
    # OpenAI, where only chat completions are wanted
    ("tools", r"function tools .*?not supported"),
    # Ollama, Bedrock, Groq, OpenRouter, Gemini, vLLM, llama.cpp
    ("tools", r"(?:does not|doesn't) support (?:tools|tool use|tool call|function call)"),
    ("tools", r"\b(?:tool|function) (?:calling|calls|use)`? (?:is|are) not (?:supported|enabled|available)"),
    ("tools", r"no endpoints found that support tool use"),
    ("tools", r"--enable-auto-tool-choice"),
    ("tools", r"tools param requires --jinja"),
    ("tools", r"\btools (?:is|are) not (?:supported|enabled|available)"),
    ("tools", r"unsupported parameter: .?tools\b"),
    # Anthropic, DeepSeek, Qwen, Moonshot, OpenRouter
    ("forced_tools", r"tool_choice.{0,60}(?:not support|incompatible|not compatible|forces tool use)"),
    ("forced_tools", r"(?:not support|when) (?:this |the provided )?.?tool_choice"),
    ("forced_tools", r"no endpoints found that support the provided .?tool_choice"),
    # DeepSeek, Groq, Gemini, OpenAI, Anthropic
    ("schema", r"response_format type is unavailable"),
    ("schema", r"not support (?:response format|structured output|output format|json_schema)"),
    ("schema", r"(?:json mode|structured outputs?|output format) (?:is|are) not (?:enabled|supported)"),
    ("schema", r"invalid schema for (?:response_format|text\.format)|output_config\.format\.schema"),
    ("adaptive_thinking", r"adaptive thinking is not supported"),
    ("adaptive_thinking", r"'adaptive' is not supported|should be 'enabled' or 'disabled'"),
    ("effort", r"not support the effort parameter|output_config\.effort"),
    ("cache_control", r"cache_control.{0,60}(?:not (?:supported|permitted|allowed)|unsupported|unknown)"),
    # OpenAI, OpenRouter, Azure; llama.cpp; Ollama; vLLM; Mistral; DeepSeek
    ("pictures", r"image_url is only supported by"),
    ("pictures", r"(?:does not|doesn't|not) support (?:any )?(?:image|vision|multi-?modal)"),
    ("pictures", r"image inputs? (?:is|are) not (?:supported|enabled)"),
    ("pictures", r"missing data required for image input|no endpoints found that support image"),
    ("pictures", r"is not a multi-?modal model|at most 0 image"),
    ("pictures", r"unknown variant `image_url`"),
    # OpenAI: models that do not reason, and organisations that are not verified
    ("reasoning", r"encrypted content is not supported|verified to generate reasoning summaries"),
)

_FIELDS: Mapping[Refusal, tuple[str, ...]] = {
    "forced_tools": ("tool_choice",),
    "schema": ("response_format", "json_schema", "text.format", "output_config", "output_format"),
    "effort": ("reasoning_effort",),
    "reasoning": ("reasoning.summary", "reasoning.effort", "reasoning", "include"),
    "temperature": ("temperature",),
    "stream_options": ("stream_options",),
    "max_tokens": ("max_tokens",),
    "max_completion_tokens": ("max_completion_tokens",),
    "prompt_cache_key": ("prompt_cache_key",),
}
"""Names under which an error may speak of them."""

_UNSUPPORTED = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not (?:permitted|allowed)|unavailable|extra|invalid", re.IGNORECASE
)

# Groq: the model was made to call a tool and wrote something else. Another form may be easier for it.
_TOOL_CALL_FAILED = re.compile(
    r"failed to call a function|tool choice is required, but model did not call|tool_use_failed", re.IGNORECASE
)

# Exceptions without a status, by the names of their classes. Most libraries derive time-outs from connection errors.
_KIND_BY_CLASS_NAME: Mapping[str, type[ProviderError]] = {
    "ContentFilter": ContentRefused,
    "Timeout": ProviderTimeout,
    "Connect|Transport|Network|OSError": ProviderConnectionError,
}

_HINTS: Mapping[type[ProviderError], str] = {
    AuthenticationError: "Check the API key{of_settings}, and that it may use this model.",
    ModelNotFound: "Check {settings}.model and {settings}.base_url.",
    ProviderTimeout: "{settings}.timeout sets how long to wait.",
    ProviderConnectionError: "Check {settings}.base_url, and that the server runs and can be reached.",
    WrongAddress: "Correct {settings}.base_url.",
    MalformedResponse: "Check that {settings}.base_url is the API's address (often it ends in /v1).",
}

_UNKNOWN_HOST = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The model that failed, as error messages name it."""

    provider: str
    model: str
    key: str = field(repr=False)
    """The API key; it is removed from every message."""
    settings: str = ""
    """Where the configuration describes this model, for hints; "" for the backend of an agent."""

    def error(self, kind: type[ProviderError], text: str, retry_after: float | None = None) -> ProviderError:
        """Return an error of this kind with the text of the server or library, cleaned and shortened."""
        message = f"{self.provider} ({self.model}): {clean_message(text, self.key) or 'no reason given'}"
        if issubclass(kind, ContextOverflow):
            prompt, window = read_overflow(text) or (None, None)
            return kind(message, prompt_tokens=prompt, window=window)
        of_settings = f" of {self.settings}" if self.settings else ""
        hint = _HINTS.get(kind, "").format(settings=self.settings or "backend", of_settings=of_settings)
        return kind(message, hint, retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error that a server sent."""

    status: int
    """The HTTP status; 200 for an error in the middle of a stream."""
    text: str
    codes: tuple[str, ...] = ()
    """Code and type from the body, in lower case."""
    param: str = ""
    """The field of the request that the error is about, if it names one."""
    prompt_tokens: int | None = None
    window: int | None = None
    retry_after: float | None = None
    """Seconds that the server asks to wait."""

    @property
    def kind(self) -> type[ProviderError]:
        """The error class. Overflow texts count first, since servers send them with any status; then codes; then the
        status."""
        if read_overflow(self.text) is not None:
            return ContextOverflow
        for code in self.codes:
            # OpenAI's servers call nearly every 4xx an invalid request.
            if code in _KIND_BY_CODE and (code != "invalid_request_error" or self.status == 200):
                return _KIND_BY_CODE[code]
        if _TOOL_CALL_FAILED.search(self.text):
            return ToolsRefused
        if self.status in _BAD_REQUESTS and _may_be_overflow(self.text):
            return ContextOverflow
        kind = _kind_of_status(self._effective_status())
        return RequestRejected if kind is RateLimited and _QUOTA_USED_UP.search(self.text) else kind

    def error(self, context: ErrorContext) -> ProviderError:
        where = f"HTTP {self.status}" if self.status != 200 else "in the stream"
        error = context.error(self.kind, f"{where}: {self.text}", self.retry_after)
        if isinstance(error, ContextOverflow):
            error.prompt_tokens = self.prompt_tokens or error.prompt_tokens
            error.window = self.window or error.window
        return error

    def _effective_status(self) -> int:
        """The status; for an error in a stream the one that its code names, else 500."""
        numbers = (int(code) for code in self.codes if re.fullmatch(r"[45]\d\d", code))
        return next(numbers, 500) if self.status == 200 else self.status


def parse_error_body(
    status: int, body: object, fallback: str = "", headers: Mapping[str, str] | None = None
) -> ErrorReply:
    """Read an error body: JSON of one of several shapes, text, or nothing.

    fallback: the text of a body that has none. headers: those of the reply, for Retry-After.
    """
    wait = parse_retry_after(headers or {})
    error = _error_object(body)
    if not isinstance(error, Mapping):
        return ErrorReply(status, _text_of(error) or fallback, retry_after=wait)
    fields = cast("Mapping[str, Any]", error)
    texts = (fields.get(name) for name in ("message", "error", "detail", "msg"))
    codes = (fields.get(name) for name in ("code", "type", "status"))
    return ErrorReply(
        status,
        next((t for t in texts if isinstance(t, str) and t), fallback),
        tuple(str(c).lower() for c in codes if isinstance(c, str | int)),
        str(fields.get("param") or ""),
        _to_count(fields.get("n_prompt_tokens")),
        _to_count(fields.get("n_ctx")),
        wait,
    )


def error_reply_of(error: BaseException) -> ErrorReply | None:
    """Return the server's reply that an exception of an SDK carries, None when it carries none.

    Status, body and headers are read from the attributes that most SDKs have; boto3 has a dictionary instead.
    """
    response = getattr(error, "response", None)
    numbers = (
        getattr(error, "status_code", None),
        getattr(error, "code", None),
        getattr(response, "status_code", None),
        _find_boto_status(response),
    )
    status = next((number for number in numbers if isinstance(number, int)), None)
    if status is None:
        return None
    has_body = hasattr(error, "body")
    text = getattr(response, "reason_phrase", "") if has_body else str(error)
    headers = getattr(response, "headers", None)
    return parse_error_body(status, getattr(error, "body", None), text, headers)


def find_refusal(reply: ErrorReply, sent: Collection[Refusal]) -> Refusal | None:
    """Return what the server says that it does not take, None when the error is about something else.

    sent: what the request held that may be refused.
    """
    if reply.status in (401, 429) or read_overflow(reply.text) is not None:
        return None
    for refusal, pattern in _REFUSAL_TEXTS:
        if refusal in sent and re.search(pattern, reply.text, re.IGNORECASE | re.DOTALL):
            return refusal
    is_path_unknown = reply.status in (404, 405) and not re.search("model|deployment", reply.text, re.IGNORECASE)
    if is_path_unknown and "responses" in sent:
        return "responses"
    if reply.status not in (400, 422) or reply.kind is not RequestRejected or not _UNSUPPORTED.search(reply.text):
        return None
    return next((refusal for refusal in sent if _is_about(reply, _FIELDS.get(refusal, ()))), None)


def describe_refusal(refusal: Refusal) -> str:
    """Return what was refused, in words for people."""
    return _REFUSAL_WORDS.get(refusal, refusal)


def _is_about(reply: ErrorReply, fields: Sequence[str]) -> bool:
    whole_name = r"(?<![\w.]){}(?!\w|\.\w)"
    return any(reply.param == name or re.search(whole_name.format(re.escape(name)), reply.text) for name in fields)


def translate_error(error: BaseException, context: ErrorContext) -> MassmemError:
    """Return massmem's error for an exception of any library; an error of massmem's own is returned as it is."""
    if isinstance(error, MassmemError):
        return error
    if reply := error_reply_of(error):
        return reply.error(context)
    text = str(error) or type(error).__name__
    if read_overflow(text) is not None:
        return context.error(ContextOverflow, text)
    names = " ".join(cls.__name__ for cls in type(error).__mro__)
    for pattern, kind in _KIND_BY_CLASS_NAME.items():
        if re.search(pattern, names):
            return context.error(kind, text)
    # The library stumbled over the reply.
    return context.error(MalformedResponse, f"the server's reply does not follow its protocol ({text})")


def find_wrong_address(error: BaseException | None) -> str:
    """Return why the address is wrong, when that is the cause of a failed connection; "" when it is not.

    A server that is away, or a network without names, may be there a moment later.
    """
    while error is not None:
        match error:
            case socket.gaierror() if error.errno in _UNKNOWN_HOST:
                return "there is no host with this name"
            case ssl.SSLCertVerificationError():
                return f"its certificate is refused: {error.verify_message}"
            case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE"):
                return "the server does not speak TLS: its address may begin with http://"
            case _:
                error = error.__cause__ or error.__context__
    return ""


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait, from `retry-after-ms` or `retry-after` (seconds or an HTTP date).

    Without either, they are those until the end of a window of which nothing is left. headers: with lower-case names,
    or a mapping that ignores case. Return None when there is no usable value.
    """
    now = now or datetime.now(UTC)
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return parse_exhaustion(headers, now)
    seconds = _number(value)
    return _seconds_until(value, now) if seconds is None else seconds


def parse_exhaustion(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds until a server takes requests again that says that none is left; None: it does not say that.

    These headers (OpenRouter, gateways) tell the end of a window. Those of OpenAI and Anthropic tell when the limit is
    whole again, long after the next request may be sent: they do not count.
    """
    for prefix in ("x-ratelimit", "ratelimit"):
        reset = _number(headers.get(f"{prefix}-reset"))
        if reset is not None and _number(headers.get(f"{prefix}-remaining")) == 0:
            moment = reset / 1000 if reset > _MILLISECONDS_FROM else reset
            clock = (now or datetime.now(UTC)).timestamp() if reset > _MOMENTS_FROM else 0.0
            return max(0.0, moment - clock)
    return None


def read_overflow(text: str) -> tuple[int | None, int | None] | None:
    """Return the tokens of prompt and window that the text names when it says that the prompt is too long.

    Return None when it says something else. A number that is not named is None.
    """
    for pattern in _OVERFLOW_PATTERNS:
        if match := pattern.search(text):
            numbers = match.groupdict()
            return _to_count(numbers.get("prompt")), _to_count(numbers.get("window") or numbers.get("w2"))
    match = _NO_ROOM_FOR_REPLY.search(text)
    if match and int(match["reply"]) < int(match["window"]):
        return int(match["prompt"]), int(match["window"])
    return None


def _may_be_overflow(text: str) -> bool:
    """Whether a refusal of a request, in words that no pattern knows, says that the prompt is too long."""
    return bool(
        _SPEAKS_OF_LENGTH.search(text) and _SPEAKS_OF_EXCESS.search(text) and not _SPEAKS_OF_OTHERS.search(text)
    )


SHORTEST_KEY = 8
"""Characters; a shorter word is no secret, and would be taken out of others."""


def clean_message(text: str, key: str = "") -> str:
    """Return the text as one line of at most 300 characters, without secrets and control characters."""
    if len(key) >= SHORTEST_KEY:
        text = text.replace(key, REDACTED)
    text = redact(text[: 20 * _MAX_MESSAGE])
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _seconds_until(text: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def _find_boto_status(response: object) -> object:
    match response:
        case {"ResponseMetadata": {"HTTPStatusCode": int(status)}}:
            return status
        case _:
            return None


def _kind_of_status(status: int) -> type[ProviderError]:
    if status >= 500:
        return ProviderUnavailable
    return _KIND_BY_STATUS.get(status, RequestRejected)


def _error_object(body: object) -> object:
    """Return the error object itself: some servers wrap it in a list, most in {"error": ...}."""
    if isinstance(body, Sequence) and not isinstance(body, str | bytes) and body:
        body = cast("Sequence[object]", body)[0]
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, object]", body)
        inner = fields.get("error")
        return cast("object", inner) if isinstance(inner, Mapping) else fields
    return cast("object", body)


def _text_of(body: object) -> str:
    text = body.strip() if isinstance(body, str) else ""
    return "an HTML page instead of an API's reply" if text[:1] == "<" else text


def _to_count(value: object) -> int | None:
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else None
