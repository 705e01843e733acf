"""Meanings of failed requests: one table from statuses, codes and messages of servers to massmem's errors."""

import json
import math
import re
import socket
import ssl
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, cast, get_args

from massmem.core.errors import (
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
    ToolsRefused,
    WrongAddress,
)
from massmem.core.redact import REDACTED, redact
from massmem.core.text import shorten

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
_CODES_BY_KIND: Mapping[type[ProviderError], str] = {
    ContextOverflow: "request_too_large 1261",  # Anthropic's and Zhipu's
    # The first ones are sent with 429, but no wait helps; llama.cpp sends the last one with 501.
    RequestRejected: "insufficient_quota billing_error billing_hard_limit_reached budget_exceeded "
    "invalid_request_error not_supported_error",
    ContentRefused: "content_filter content_policy_violation",
    ModelNotFound: "model_not_found not_found_error",
    AuthenticationError: "invalid_api_key api_key_invalid authentication_error permission_error",
    RateLimited: "rate_limit_exceeded rate_limit_error",
    ProviderUnavailable: "overloaded_error timeout_error conflict_error api_error server_error internal_server_error "
    "unavailable_error",
}
_KIND_BY_CODE = {code: kind for kind, codes in _CODES_BY_KIND.items() for code in codes.split()}
_OVERFLOW_CODE = re.compile(r"(?:context|prompt|input).{0,60}(?:exceed|long|overflow)|exceed.{0,60}context")

# What no wait helps against, in the words of servers that send no code for it.
_QUOTA_USED_UP = re.compile(
    r"insufficient[_ ](?:quota|balance|credit|funds)|billing|(?:credit|token|account)s? balance|out of credits|arrear"
    r"|exceeded your (?:current )?quota|quota (?:is |has been )?(?:exceeded|exhausted|used up)"
    r"|\b(?:daily|weekly|monthly)\b|per ?(?:day|week|month)|\b(?:for|of) (?:to|the )day|余额不足|欠费",
    re.IGNORECASE,
)
# For errors that have neither a status nor a code that is known, as those in streams.
_KIND_BY_WORDS: Sequence[tuple[str, type[ProviderError]]] = (
    (r"rate.?limit|too many requests|throttl|\b(?:qps|[rt]pm)\b|concurren", RateLimited),
    (r"overload|unavailable|try again|\bbusy\b|timed? ?out", ProviderUnavailable),
    (r"api.?key|unauthori[sz]ed|authenticat|permission|forbidden|access denied", AuthenticationError),
    (r"no such model|unknown model|model.{0,60}(?:not (?:found|exist)|does ?n.t exist)", ModelNotFound),
    (r"sensitive|content.{0,20}(?:filter|policy|inspection)", ContentRefused),
    (r"\binvalid|not support|unsupported|\bexpired", RequestRejected),
)

_MOMENTS_FROM, _MILLISECONDS_FROM = 1e9, 1e11
"""Larger numbers are seconds, or milliseconds, since 1970; smaller ones are seconds from now."""
_LONGEST_GUESS = 30.0
"""Seconds. OpenAI and others tell when a limit is whole again, long after the next request may be sent."""
_RESET_HEADERS = ("x-ratelimit-reset", "ratelimit-reset", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens")

_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TIME_PART = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)\s*(ms|milli|[smhd])")
_DURATION = (
    r"(?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z]),?\s*)+"
)
# "Please try again in 1m3.5s", "retry after 20 seconds", "Limit resets at: 2026-01-01 10:00:00 UTC".
_WAIT_IN_WORDS = re.compile(
    rf"\b(?:again|retry(?:ing)?|wait|available|resets?)\b[^.;\d]{{0,40}}?(?P<wait>{_DURATION})"
    r"|\b(?:again|retry|available|resets?)\b[^.;\d]{0,20}"
    r"(?P<moment>\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(?:[+-]\d\d:?\d\d)?)",
    re.IGNORECASE,
)
_WAIT_FIELD = re.compile(
    r"(?:x?ratelimit|quota)?(?:retry(?:delay|after|in|at)?|resets?(?:delay|after|in|at|time|timestamp)?|estimatedtime"
    r"|waittime|cooldown)(?P<unit>ms|milliseconds|s|sec|seconds)?"
)

# How servers say that the prompt is too long: what they count, and that it is too much. What speaks of the reply alone,
# of what refills with time, or of another field is something else.
_PROMPT = re.compile(
    r"\bcontext\b|context_(?:length|window)|\bprompt(?:s|_tokens)?\b|\b(?:inputs?|messages?|conversation|question|sequence|n_ctx)\b"
    r"|\brequest\b.{0,20}(?:exceed|token)|tokens in (?:the )?request",
    re.IGNORECASE,
)
_LENGTH = re.compile(r"\btokens?\b|length|\blong(?:er)?\b|\bwindow\b|\bsize\b|\bn_ctx\b|\bmax_\w*len", re.IGNORECASE)
_EXCESS = re.compile(
    r"exceed|too (?:long|large|many|big)|(?:longer|larger|more|greater|less|fewer) than|at most|overflow|over the"
    r"|limit|max|[<≤>]=? ?\d|>=|reduce the length|range of|only supports|not fit|超",
    re.IGNORECASE,
)
_REPLY_LIMIT = re.compile(r"max_?(?:completion_?|output_?|new_?)?tokens|(?:completion|output) tokens", re.IGNORECASE)
_REFILLS = re.compile(
    r"per ?(?:second|min|hour|day|week|month)|\b(?:daily|hourly|weekly|monthly|today)\b|this (?:week|month)"
    r"|\b[rt]p[mhd]\b|\brate\b|quota|credit|balance|billing|\bplan\b|subscription|concurren|\bwait\b",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"\barray\b|schema|budget|thinking|\b(?:images|files?|audio|pages)\b|stop (?:sequence|word)|api.?key|\bauth|expired"
    r"|invalid token|deadline|timed? ?out|took too long|\.(?:name|id)\b|tool_call|description|metadata",
    re.IGNORECASE,
)
_CHINESE_OVERFLOW = re.compile(r"(?:长度|上下文|tokens?).{0,20}超|超.{0,30}(?:长度|上下文)|超长", re.IGNORECASE)
_ANY_ERROR = re.compile(r"(?:input validation|invalid input|malformed input) ?(?:error|request)?:?", re.IGNORECASE)
"""Begins the errors of some servers, whatever they are about."""

# The numbers in such a text; those of characters and bytes do not count, and "(2013)" is a code of MiniMax.
_N = r"(?<![\w.])(?!0|2013\))(\d[\d,_]{2,})(?![\w%]|\.\d|\W{0,2}(?:characters|chars|bytes|[km]i?b\b))"
_WINDOW_IN_WORDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:<=?|≤|>=?) {_N}",
        rf"\[\d+, ?{_N}\]",
        r"(?:limit|max\w{0,20}|n_ctx|(?:longer|larger|more|less) than|up to|at most|only|exceed"
        r"|context(?: size| length| window)?)"
        rf"[^\w.;'`]{{1,9}}(?:(?!by\b|exceeded\b|requested\b|given\b|output\b|n_keep\b)[a-z_'`]{{1,30}}[^\w.;'`]{{1,9}}){{0,6}}?[`']?{_N}",
        rf"{_N} (?:tokens? )?(?:max|limit|context|allowed)",
    )
)
_PROMPT_IN_WORDS = re.compile(rf"{_N} \+ \d+ >|{_N} [`']?(?:input|prompt)s?[`']? tokens", re.IGNORECASE)
_REQUESTED = re.compile(rf"(?:tpm|per min).{{0,200}}requested:? {_N}", re.IGNORECASE | re.DOTALL)
# vLLM speaks of the reply's limit when prompt and reply together do not fit. A shorter prompt helps, unless the limit
# is larger than the window.
_REPLY_TOO_LARGE = re.compile(r"max_\w{0,30}tokens\W{1,3}(?:is|are) too large: (\d+)", re.IGNORECASE)

# What models and servers do not take, and how they say so. What is refused is left out, or said in another form.

Refusal = Literal[
    "chat", "responses", "tools", "forced_tools", "schema", "adaptive_thinking", "effort", "reasoning", "temperature",
    "stream_options", "max_tokens", "max_completion_tokens", "prompt_cache_key",
    "cache_control", "pictures", "state", "this_state", "calls_without_state",
]  # fmt: skip
"""Part of a request that was refused: an API, a form of actions, or an option."""

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
    "state": "what it gave with earlier calls of tools",
    "this_state": "what it gave with these calls of tools",
    "calls_without_state": "calls of tools without what it gave with them",
}

_STATES = (
    r"reasoning_?(?:content|details|opaque)|thought_?signature|extra_content|thinking_?blocks?|\breasoning\b.{0,3} item"
    r"|`?(?:redacted_)?thinking`? (?:block|or)|property 'reasoning'"
)
"""Names of what providers give with calls and want back."""

# Each has a test. The first that speaks of something that the request held counts.
_REFUSAL_TEXTS: tuple[tuple[Refusal, str], ...] = (
    # OpenAI: function tools with the newest models, and models that chat completions do not have
    ("chat", r"v1/responses"),
    # OpenAI, Azure
    ("responses", r"not supported (?:in|by|with|on) (?:the |v1/)?responses|responses api is (?:not|only)"),
    # OpenAI, where only chat completions are wanted
    ("tools", r"function tools .{0,200}?not supported"),
    # Ollama, Bedrock, Groq, OpenRouter, Gemini, vLLM, llama.cpp
    ("tools", r"(?:does not|doesn't) support (?:tools|tool use|tool call|function call)"),
    ("tools", r"\b(?:tools|(?:tool|function) (?:calling|calls|use)`?) (?:is|are) not (?:supported|enabled|available)"),
    ("tools", r"no endpoints found that support tool use"),
    ("tools", r"--enable-auto-tool-choice"),
    ("tools", r"tools param requires --jinja"),
    ("tools", r"unsupported parameter: .?tools\b"),
    # Anthropic, DeepSeek, Qwen, Moonshot, OpenRouter
    ("forced_tools", r"tool_choice.{0,60}(?:not support|incompatible|not compatible|forces tool use)"),
    ("forced_tools", r"(?:not support|endpoints found that support|when) (?:this |the provided )?.?tool_choice"),
    # DeepSeek, Groq, Gemini, OpenAI, Anthropic
    ("schema", r"response_format type is unavailable"),
    ("schema", r"not support (?:response format|structured output|output format|json_schema)"),
    ("schema", r"(?:json mode|structured outputs?|output format) (?:is|are) not (?:enabled|supported)"),
    ("schema", r"invalid schema for (?:response_format|text\.format)|output_config\.format\.schema"),
    ("adaptive_thinking", r"(?:adaptive thinking|'adaptive') is not supported|should be 'enabled' or 'disabled'"),
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
    # Anthropic, OpenAI, Gemini: a state that is damaged, or of another key
    ("this_state", r"(?:invalid|corrupted).{0,20}signature|signature.{0,30}(?:not valid|invalid)|cannot be modified"),
    ("this_state", r"encrypted.content.{0,200}could not be|item .{0,80}(?:not found|required following item)"),
    # DeepSeek, Kimi, Gemini, Anthropic, OpenAI
    ("calls_without_state", rf"(?:missing|without|lack|expected|required|must).{{0,60}}(?:{_STATES})"),
    ("calls_without_state", rf"(?:{_STATES}).{{0,60}}(?:missing|required|must|expected|not provided|passed back)"),
    # Mistral, Groq, Cerebras, Fireworks, Gemini
    ("state", rf"(?:extra|unknown|unexpected|unrecogni[sz]ed|not support|unsupported).{{0,60}}(?:{_STATES})"),
    ("state", rf"(?:{_STATES}).{{0,60}}(?:extra|unknown|unexpected|unrecogni[sz]ed|not |unsupported)"),
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

_HINTS: Mapping[type[ProviderError], str] = {
    AuthenticationError: "Check the API key, and that it may use this model.",
    ModelNotFound: "Check backend.model and backend.base_url.",
    ProviderTimeout: "backend.timeout sets how long to wait.",
    ProviderConnectionError: "Check that the server runs, the network connection, and backend.base_url.",
    WrongAddress: "Check the network connection of this machine, and backend.base_url where one is set.",
    MalformedResponse: "Check that backend.base_url is the API's address (often it ends in /v1).",
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

    def error(self, kind: type[ProviderError], text: str, retry_after: float | None = None) -> ProviderError:
        """Return an error of this kind with the text of the server or library, cleaned and shortened."""
        message = f"{self.provider} ({self.model}): {clean_message(text, self.key) or 'no reason given'}"
        if issubclass(kind, ContextOverflow):
            prompt, window = read_overflow(text, may_be_short=True) or (None, None)
            return kind(message, prompt_tokens=prompt, window=window)
        return kind(message, _HINTS.get(kind, ""), retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error that a server sent."""

    status: int
    """The HTTP status; 200 for an error in the middle of a stream."""
    text: str
    codes: tuple[str, ...] = ()
    """Codes and types from the body, in lower case."""
    param: str = ""
    """The field of the request that the error is about, if it names one."""
    prompt_tokens: int | None = None
    window: int | None = None
    retry_after: float | None = None
    """Seconds that the server asks to wait."""

    @property
    def kind(self) -> type[ProviderError]:
        """The error class. Overflow texts count first, since servers send them with any status; then codes; then the
        status, and where there is none, words."""
        numbers = (int(code) for code in self.codes if re.fullmatch(r"[45]\d\d", code))
        status = next(numbers, 200) if self.status == 200 else self.status
        if read_overflow(self.text, may_be_short=status not in (401, 402, 404, 429)):
            return ContextOverflow
        # Who names a time takes requests again then, whatever the limit is called; Gemini names one for a day's too.
        is_final = self.retry_after is None and bool(_QUOTA_USED_UP.search(self.text))
        if status in (200, 400, 402, 403, 429) and (is_final or any("perday" in code for code in self.codes)):
            return RequestRejected
        for code in self.codes:
            kind = ContextOverflow if _OVERFLOW_CODE.search(code) else _KIND_BY_CODE.get(code)
            # OpenAI's servers call nearly every 4xx an invalid request.
            if kind is not None and (code != "invalid_request_error" or self.status == 200):
                return kind
        if _TOOL_CALL_FAILED.search(self.text):
            return ToolsRefused
        if status == 200:
            text = " ".join((*self.codes, self.text))
            words = (kind for pattern, kind in _KIND_BY_WORDS if re.search(pattern, text, re.IGNORECASE))
            return next(words, ProviderUnavailable)
        return ProviderUnavailable if status >= 500 else _KIND_BY_STATUS.get(status, RequestRejected)

    def error(self, context: ErrorContext) -> ProviderError:
        where = f"HTTP {self.status}" if self.status != 200 else "in the stream"
        error = context.error(self.kind, f"{where}: {self.text or 'no reason given'}", self.retry_after)
        if isinstance(error, ContextOverflow):
            error.prompt_tokens = self.prompt_tokens or error.prompt_tokens
            error.window = self.window or error.window
        return error


# Where error bodies have their words, the most telling first; then what speaks where none of these does.
_SENTENCES = (
    "message", "msg", "errormessage", "errormsg", "statusmsg", "error", "errors", "detail", "errordescription",
    "faultstring", "raw",
)  # fmt: skip
_LESSER_SENTENCES = ("details", "title", "description", "reason", "cause", "exception")
_CODES = (
    "code", "type", "status", "errorcode", "errorcodes", "errcode", "errortype", "statuscode", "reason", "quotaid",
)  # fmt: skip
_ECHOES = ("input", "ctx", "url", "links", "request", "messages", "failedgeneration", "choices", "usage", "stack")
"""They hold the request, or are for developers of the server."""
_DEEPEST, _MOST_SENTENCES = 8, 3
_OF_REPLIES = ("id", "type", "object", "choices", "delta", "usage", "output", "content", "candidates")
"""An event of a reply has one of these."""
_FINE = ("", "0", "200", "ok", "success", "none", "null", "false")
"""Codes of what is no error."""


class _Body:
    """The words, codes and fields of an error body, wherever in it they stand."""

    def __init__(self, body: object) -> None:
        self.sentences: list[str] = []
        self.codes: list[str] = []
        self.fields: dict[str, object] = {}
        """The last value of each name, at any depth. Names are written in lower-case letters alone."""
        self._lesser: list[str] = []
        self._read(body, "message", 0)

    @property
    def text(self) -> str:
        """Its sentences, without those that another one holds; "" for a body without words."""
        sentences = self.sentences or self._lesser
        others = [{*sentences} - {sentence} for sentence in sentences]
        whole = {s: None for s, rest in zip(sentences, others, strict=True) if not any(s in other for other in rest)}
        return "; ".join([*whole][:_MOST_SENTENCES])

    @property
    def retry_after(self) -> float | None:
        """Seconds that a field or its words ask to wait."""
        for name, value in self.fields.items():
            match = _WAIT_FIELD.fullmatch(name)
            seconds = match and _read_wait(value, datetime.now(UTC))
            if match and seconds is not None:
                return seconds / 1000 if (match["unit"] or "").startswith("m") else seconds
        words = _WAIT_IN_WORDS.search(self.text)
        return words and _read_wait(words["wait"] or words["moment"], datetime.now(UTC))

    def _read(self, value: object, name: str, depth: int) -> None:
        if isinstance(value, str) and value.strip()[:1] in ("{", "["):
            value = parse_json(value)
        if depth > _DEEPEST or name in _ECHOES:
            return
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, object]", value).items()
            fields = {"".join(filter(str.isalnum, str(key))).lower(): inner for key, inner in items}
            place = fields.get("loc")  # FastAPI names the field of the request beside its message
            if isinstance(place, list) and isinstance(fields.get("msg"), str):
                fields["msg"] = f"{'.'.join(map(str, cast('list[object]', place)))}: {fields['msg']}"
            for key in sorted(fields, key=lambda key: _SENTENCES.index(key) if key in _SENTENCES else len(_SENTENCES)):
                self._read(fields[key], key, depth + 1)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for inner in cast("Sequence[object]", value)[:_MOST_SENTENCES]:
                self._read(inner, name, depth + 1)
        else:
            self._add(name, value)

    def _add(self, name: str, value: object) -> None:
        self.fields.setdefault(name, value)
        if name in _CODES and isinstance(value, str | int) and not isinstance(value, bool):
            self.codes.append(str(value).lower())
        if not isinstance(value, str) or not (text := _text_of(value)):
            return
        if name in _SENTENCES:
            self.sentences.append(text)
        elif name in _LESSER_SENTENCES:
            self._lesser.append(text)


def parse_error_body(
    status: int, body: object, fallback: str = "", headers: Mapping[str, str] | None = None
) -> ErrorReply:
    """Read an error body: JSON of any shape, text, or nothing.

    fallback: the text of a body that has none. headers: those of the reply, for Retry-After.
    """
    read = _Body(body)
    wait = parse_retry_after(headers or {})
    named = (code for code in read.codes if not code.isdecimal())
    return ErrorReply(
        status,
        read.text or fallback or next(named, ""),
        tuple(read.codes),
        str(read.fields.get("param") or ""),
        _to_count(read.fields.get("nprompttokens")),
        _to_count(read.fields.get("nctx")),
        next((s for s in (wait, read.retry_after, _guess_wait(headers or {})) if s is not None), None),
    )


def find_failure(event: Mapping[str, Any]) -> ErrorReply | None:
    """Return the error that a JSON object with status 200 is, an event of a stream or a whole body; None: it is none.

    Gateways send errors beside `choices`, in `base_resp`, with a code, or with `success: false`.
    """
    error, status = event.get("error") or event.get("errors"), event.get("base_resp")
    body = _Body(error)
    is_failure = (
        error is True
        or bool(error and (body.text or any(map(_is_bad_code, body.codes))))
        or "error" in (event.get("type"), event.get("object"))
        or event.get("success") is False
        or (isinstance(status, Mapping) and _is_bad_code(cast("Mapping[str, Any]", status).get("status_code")))
        or (event.keys().isdisjoint(_OF_REPLIES) and _is_bad_code(event.get("code")))
    )
    return parse_error_body(200, event) if is_failure else None


def _is_bad_code(code: object) -> bool:
    return isinstance(code, str | int) and str(code).lower() not in _FINE


def find_refusal(reply: ErrorReply, sent: Collection[Refusal]) -> Refusal | None:
    """Return what the server says that it does not take, None when the error is about something else.

    sent: what the request held that may be refused.
    """
    if reply.status in (401, 429) or read_overflow(reply.text):
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
    return _REFUSAL_WORDS.get(refusal, refusal)


def _is_about(reply: ErrorReply, fields: Sequence[str]) -> bool:
    whole_name = r"(?<![\w.]){}(?!\w|\.\w)"
    return any(reply.param == name or re.search(whole_name.format(re.escape(name)), reply.text) for name in fields)


def find_wrong_address(error: BaseException | None) -> str:
    """Return why the address is wrong, when that is the cause of a failed connection; "" when it is not.

    A server that is away, or a network without names, may be there a moment later.
    """
    while error is not None:
        match error:
            case socket.gaierror() if error.errno in _UNKNOWN_HOST:
                return "this host could not be found"
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
    return parse_exhaustion(headers, now) if value is None else _read_wait(value, now)


def parse_exhaustion(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds until a server takes requests again that says that none is left; None: it does not say that.

    These headers (OpenRouter, gateways) tell the end of a window. Those of OpenAI and Anthropic tell when the limit is
    whole again, long after the next request may be sent: they do not count.
    """
    for prefix in ("x-ratelimit", "ratelimit"):
        if _number(headers.get(f"{prefix}-remaining")) == 0:
            return _read_wait(headers.get(f"{prefix}-reset"), now or datetime.now(UTC))
    return None


def _guess_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by the headers that tell when a limit is whole again, for want of better ones."""
    waits = (_read_wait(headers.get(name), datetime.now(UTC)) for name in _RESET_HEADERS)
    return min((_LONGEST_GUESS, *known)) if (known := [wait for wait in waits if wait is not None]) else None


def _read_wait(value: object, now: datetime) -> float | None:
    """Return the seconds that a number, a duration (`1m3.5s`) or a moment stands for, None when it is none of these."""
    number = _number(value)
    if number is not None:
        moment = number / 1000 if number > _MILLISECONDS_FROM else number
        return max(0.0, moment - now.timestamp()) if number > _MOMENTS_FROM else number
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(_DURATION, text, re.IGNORECASE):
        return sum(float(part) * _UNITS[unit] for part, unit in _TIME_PART.findall(text.lower()))
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError):
            when = parse(text)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            return max(0.0, (when - now).total_seconds())
    return None


def read_overflow(text: str, *, may_be_short: bool = False) -> tuple[int | None, int | None] | None:
    """Return the tokens of prompt and window that the text names when it says that the prompt is too long.

    may_be_short: the text need not say what has too many tokens. Return None when it says something else. A number that
    is not named is None.
    """
    text = _ANY_ERROR.sub("", text)
    prompt, window = _read_numbers(text)
    if _REFILLS.search(text):
        # What a whole minute does not allow does not fit later either.
        requested = _REQUESTED.search(text)
        is_overflow = bool(requested and window and _to_count(requested[1], window) and "too large" in text.lower())
        return (prompt, window) if is_overflow else None
    if re.search(r"tokens must be at least 1, got -", text):  # vLLM: what the prompt leaves for the reply
        return None, None
    is_about_reply = _REPLY_LIMIT.search(text) and not re.search(r"context|input|prompt", text, re.IGNORECASE)
    if reply := _REPLY_TOO_LARGE.search(text):
        is_about_reply = window is None or int(reply[1]) >= window
    if is_about_reply or _OTHERS.search(text):
        return None
    what = _PROMPT.search(text) or (may_be_short and re.search(r"\btokens?\b", text, re.IGNORECASE))
    is_overflow = what and _LENGTH.search(text) and _EXCESS.search(text)
    return (prompt, window) if is_overflow or _CHINESE_OVERFLOW.search(text) else None


def _read_numbers(text: str) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt and of the window in a text about an overflow, None for what it does not name."""
    if re.search(r"\bstring\b|maxlength", text, re.IGNORECASE):
        return None, None  # characters
    window = next((_to_count(match[1]) for pattern in _WINDOW_IN_WORDS if (match := pattern.search(text))), None)
    named = _PROMPT_IN_WORDS.search(text)
    if named:
        return _to_count(named[1] or named[2]), window
    larger = (count for digits in re.findall(_N, text) if window and (count := _to_count(digits, window)))
    return next(larger, None), window


SHORTEST_KEY = 8
"""Characters; a shorter word is no secret, and would be taken out of others."""


def clean_message(text: str, key: str = "") -> str:
    """Return the text as one line of at most 300 characters, without secrets and control characters."""
    if len(key) >= SHORTEST_KEY:
        text = text.replace(key, REDACTED)
    text = redact(text[: 20 * _MAX_MESSAGE])
    text = " ".join(_CONTROL.sub(" ", text).split())
    return shorten(text, _MAX_MESSAGE)


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def parse_json(text: object) -> object:
    """Return the object or list that a text, or the body of a reply, is, else the text."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    with suppress(ValueError, RecursionError):
        if isinstance(text, str) and isinstance(value := json.loads(text), dict | list):
            return cast("object", value)
    return text


def _text_of(text: str) -> str:
    """Return the text; of a page, which a proxy writes for browsers, the title."""
    text = text[: 20 * _MAX_MESSAGE].strip()
    if not re.match("<[a-z!?]", text, re.IGNORECASE):
        return text
    if words := re.search(r"<message[^<>]*>([^<]+)", text, re.IGNORECASE):  # XML
        return words[1].strip()
    title = re.search(r"<title[^<>]*>([^<]+)", text, re.IGNORECASE)
    return "an HTML page instead of an API's reply" + (f": {title[1].strip()}" if title else "")


def _to_count(value: object, above: int = 0) -> int | None:
    """Return a number of tokens that is larger than `above`, None for anything else."""
    digits = re.sub(r"[,_]", "", str(value)) if isinstance(value, int | str) else ""
    return int(digits) if digits.isdecimal() and len(digits) < 12 and int(digits) > above else None
