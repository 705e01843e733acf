"""Chat completions through the official OpenAI SDK, for OpenAI and every server that speaks its protocol."""

import json
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import openai
from openai import AsyncOpenAI, AsyncStream

from massmem.config.models import BackendConfig
from massmem.errors import (
    ContentRefused,
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
    StreamInterrupted,
)
from massmem.messages import ChatMessage, ChatRequest, ToolCall, Usage, clean_text
from massmem.providers.ending import with_user_last
from massmem.providers.failures import Source, after_start, complaint
from massmem.providers.http import HTTP_ERRORS, Pool, kind_of, timeouts, words
from massmem.providers.presets import PRESETS, Endpoint, resolve
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy, retry_after
from massmem.replies import Chunk, FinishChunk, FinishReason, ReasoningChunk, RetryChunk, TextChunk, ToolCallChunk

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

# A status error is mapped by its status and body instead (failures.py). The most derived class listed counts.
ERRORS: Mapping[type[Exception], type[ProviderError]] = {
    **HTTP_ERRORS,
    openai.APITimeoutError: ProviderTimeout,
    openai.APIConnectionError: ProviderConnectionError,
    openai.APIResponseValidationError: MalformedResponse,
    openai.APIError: ProviderUnavailable,
    openai.ContentFilterFinishReasonError: ContentRefused,
    openai.OpenAIError: RequestRejected,
}
_FOREIGN = tuple(ERRORS)

Json = Mapping[str, Any]

_FINISH: Mapping[str, FinishReason] = {
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
# Servers invent words for "done", so what is not known is a stop; these three are not.
_FAILED_FINISH: Mapping[str, type[ProviderError]] = {
    "content_filter": ContentRefused,
    "error": ProviderUnavailable,
    "insufficient_system_resource": ProviderUnavailable,
}

# Options that some servers or models refuse, and what is sent instead: nothing, or another name or value.
_FALLBACKS: Mapping[str, tuple[str, Any] | None] = {
    "stream_options": None,
    "temperature": None,
    "max_tokens": ("max_completion_tokens", ...),
    "max_completion_tokens": ("max_tokens", ...),
    "tool_choice": ("tool_choice", "auto"),
}
_UNSUPPORTED = re.compile(r"support|unknown|unrecogni[sz]ed|unexpected|not (?:permitted|allowed)|extra|invalid", re.I)


class OpenAIClients:
    """Opens providers; agents with the same endpoint and key share one connection pool."""

    def __init__(self) -> None:
        self._pool = Pool(_client)

    def open(self, backend: BackendConfig) -> "OpenAIProvider":
        """Blocking for up to a second the first time (imports, TLS). Raises MissingKeyError, ConfigError."""
        endpoint = resolve(backend, os.environ)
        return OpenAIProvider(self._pool.client(endpoint), backend, endpoint, self._pool.budget(endpoint))

    async def close(self) -> None:
        await self._pool.close(AsyncOpenAI.close)


class OpenAIProvider:
    """One backend's model. An option that the server refuses is left out from then on (see _FALLBACKS)."""

    def __init__(self, client: AsyncOpenAI, backend: BackendConfig, endpoint: Endpoint, budget: RetryBudget) -> None:
        self._client = client
        self._backend = backend
        self._endpoint = endpoint
        self._refused: set[str] = set()
        self._retrier = Retrier(RetryPolicy(backend.max_retries), budget)
        self._source = Source(backend.type, endpoint.model, endpoint.key)

    @property
    def native_tools(self) -> bool:
        return self._endpoint.native_tools

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request))

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """None: the protocol has no such request. OpenAI's own vocabulary is the counter's (massmem.memory.tokens)."""

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        while True:
            body = self._body(request)
            try:
                stream = await self._send(body)
                break
            except openai.APIStatusError as e:
                option = _refused_option(e, body)
                if option is None or option in self._refused:
                    raise self._translated(e, started=False) from e
                self._refused.add(option)
                yield RetryChunk(f"{self._endpoint.model} does not take {option!r}", 0.0, 0)
            except _FOREIGN as e:
                raise self._translated(e, started=False) from e
        reader = _Reader(request, self._source)
        async with stream:
            self._check_content_type(stream)
            try:
                async for chunk in stream:
                    for out in reader.feed(chunk):
                        yield out
            except _FOREIGN as e:
                if not reader.complete:
                    raise self._translated(e, started=True) from e
        for out in reader.close():
            yield out

    async def _send(self, body: Json) -> AsyncStream[object]:
        # The SDK's typed call copies every message and builds a model of every chunk: with 32 agents streaming, that
        # held the event loop for 0.1 s at a time. This is its own way to send a body and read chunks as they are.
        return await self._client.post(
            "/chat/completions",
            body=body,
            cast_to=object,
            options={"timeout": timeouts(self._backend.timeout)},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body = request_body(request, self._backend, self._endpoint)
        for option in sorted(self._refused & body.keys()):
            value = body.pop(option)
            if fallback := _FALLBACKS[option]:
                name, other = fallback
                body[name] = value if other is ... else other
        return body

    def _check_content_type(self, stream: AsyncStream[object]) -> None:
        content_type = str(stream.response.headers.get("content-type", "text/event-stream"))
        if "text/event-stream" not in content_type:
            raise self._source.error(MalformedResponse, f"answered with {content_type} instead of an event stream")

    def _translated(self, error: Exception, *, started: bool) -> ProviderError:
        match error:
            case openai.APIStatusError():
                said = complaint(error.status_code, error.body, error.response.reason_phrase)
                return said.error(self._source, retry_after(error.response.headers))
            case openai.APIError() if type(error) is openai.APIError:
                return complaint(200, error.body, error.message).error(self._source)
            case _:
                kind = kind_of(error, ERRORS)
                return self._source.error(after_start(kind) if started else kind, words(error, kind, self._backend))


def request_body(request: ChatRequest, backend: BackendConfig, endpoint: Endpoint) -> dict[str, Any]:
    """The JSON of a request."""
    temperature = request.temperature if request.temperature is not None else backend.temperature
    max_tokens = request.max_tokens or backend.max_tokens
    messages = with_user_last(request.messages) if PRESETS[backend.type].ends_with_user else request.messages
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [_message(m) for m in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if temperature is not None:
        body["temperature"] = temperature
    if max_tokens is not None:
        body[endpoint.completion_limit] = max_tokens
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in request.tools
        ]
        body["tool_choice"] = "none" if request.closed else "auto" if request.optional else "required"
    elif request.schema is not None:
        schema = {"name": "reply", "schema": dict(request.schema), "strict": _fits_strict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _message(message: ChatMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, "content": clean_text(message.content)}
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": clean_text(c.arguments)}}
            for c in message.tool_calls
        ]
    return out


def _fits_strict(schema: Mapping[str, Any]) -> bool:
    """OpenAI refuses `strict` for other schemas; other servers ignore the flag and always hold to the schema."""
    if "anyOf" in schema or schema.get("type") != "object":
        return False
    properties: Mapping[str, Any] = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    inner = [p for p in properties.values() if p.get("type") in ("object", "array") or "anyOf" in p]
    return closed and all(_fits_strict(p.get("items", p)) for p in inner)


def _refused_option(error: openai.APIStatusError, body: Mapping[str, Any]) -> str | None:
    """The option of `body` that the server does not know or support, if it can be left out or replaced."""
    said = complaint(error.status_code, error.body)
    if error.status_code not in (400, 422) or said.kind() is not RequestRejected or not _UNSUPPORTED.search(said.text):
        return None
    return next((o for o in _FALLBACKS if o in body and (o == error.param or o in said.text)), None)


@dataclass(slots=True)
class _Call:
    id: str
    name: str = ""
    arguments: str = ""


class _Reader:
    """Turns the stream of one reply into our chunks. Tool calls come whole, before the FinishChunk."""

    def __init__(self, request: ChatRequest, source: Source) -> None:
        self._request = request
        self._source = source
        self._finish = ""
        self._usage: Usage | None = None
        self._calls: list[_Call] = []
        self._open: dict[int, _Call] = {}
        self._length = 0
        self._refusal = ""

    @property
    def complete(self) -> bool:
        """The finish reason is there; only the usage may be missing."""
        return bool(self._finish)

    def feed(self, chunk: object) -> Iterator[Chunk]:
        try:
            yield from self._read(cast("Json", chunk))
        except (AttributeError, TypeError) as e:
            # Nothing checks what servers send; a chunk of another shape shows here.
            raise self._source.error(MalformedResponse, "a chunk of the reply is not of the documented form") from e

    def close(self) -> Iterator[Chunk]:
        """The last chunks. Raises when the reply is not one."""
        if not self._finish:
            raise self._source.error(StreamInterrupted, "the stream ended without a finish reason")
        if kind := _FAILED_FINISH.get(self._finish):
            raise self._source.error(kind, f"the reply was broken off ({self._finish})")
        if self._refusal:
            raise self._source.error(ContentRefused, f"the model refused: {self._refusal}")
        for call in self._calls:
            yield ToolCallChunk(ToolCall(call.id, call.name, call.arguments))
        yield FinishChunk(_FINISH.get(self._finish, "stop"), self._usage or self._estimate())

    def _read(self, chunk: Json) -> Iterator[Chunk]:
        if usage := chunk.get("usage"):
            self._usage = _usage(usage)
        for choice in chunk.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta")
            if delta is None:  # Azure and others send null
                continue
            yield from self._texts(delta)
            self._refusal += delta.get("refusal") or ""
            for call in delta.get("tool_calls") or ():
                self._add_call(call)

    def _texts(self, delta: Json) -> Iterator[Chunk]:
        # DeepSeek, vLLM and xAI say reasoning_content; OpenRouter, Groq and Ollama say reasoning.
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str):
            yield ReasoningChunk(reasoning)
        content = delta.get("content")
        # Mistral's reasoning models send a list of parts.
        parts = cast("list[Any]", content) if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        for part in parts:
            text = part.get("text")
            if part.get("type") == "text" and text:
                self._length += len(text)
                yield TextChunk(text)

    def _add_call(self, delta: Json) -> None:
        """Add a piece of a tool call. A new id opens a new call even when a server repeats the index."""
        index, given = delta.get("index") or 0, delta.get("id")
        call = self._open.get(index)
        if call is None or (given and given != call.id):
            call = self._open[index] = _Call(given or f"call_{len(self._calls)}")
            self._calls.append(call)
        function: Json = delta.get("function") or {}
        call.name = call.name or function.get("name") or ""
        arguments = function.get("arguments") or ""
        # The protocol says text; Ollama and others have sent objects.
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call.arguments += text
        self._length += len(text)

    def _estimate(self) -> Usage:
        prompt = sum(len(m.content) for m in self._request.messages)
        return Usage(prompt // 4, self._length // 4, reported=False)


def _usage(usage: Json) -> Usage:
    details: Json = usage.get("prompt_tokens_details") or {}
    # DeepSeek names the cached part at the top level.
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    prompt = usage.get("prompt_tokens") or 0
    # The cached part belongs to the prompt; where it is larger, the server counts only what it read anew.
    return Usage(prompt + cached if cached > prompt else prompt, usage.get("completion_tokens") or 0, cached)


def _client(endpoint: Endpoint, http: Any) -> AsyncOpenAI:
    client = AsyncOpenAI(api_key=endpoint.key, base_url=endpoint.base_url, http_client=http, max_retries=0)
    if endpoint.base_url != PRESETS["openai"].base_url:
        # Read from OPENAI_ORG_ID and OPENAI_PROJECT_ID, and nobody else's business.
        client.organization = client.project = None
    return client


if TYPE_CHECKING:
    _CONFORMS: type[ChatProvider] = OpenAIProvider
