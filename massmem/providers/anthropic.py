"""Messages through the official Anthropic SDK."""

import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import anthropic
from anthropic import AsyncAnthropic, AsyncStream
from anthropic.types import RawMessageStreamEvent

from massmem.config.models import BackendConfig
from massmem.errors import (
    AuthenticationError,
    ContentRefused,
    ContextOverflow,
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
    StreamInterrupted,
)
from massmem.messages import ChatMessage, ChatRequest, ToolCall, Usage, clean_text
from massmem.providers.failures import Source, after_start, complaint
from massmem.providers.http import HTTP_ERRORS, Pool, kind_of, timeouts, words
from massmem.providers.presets import Endpoint, resolve
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy, retry_after
from massmem.replies import Chunk, FinishChunk, FinishReason, ReasoningChunk, TextChunk, ToolCallChunk

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

# A status error is mapped by its status and body instead (failures.py). The most derived class listed counts.
ERRORS: Mapping[type[Exception], type[ProviderError]] = {
    **HTTP_ERRORS,
    anthropic.APITimeoutError: ProviderTimeout,
    anthropic.APIConnectionError: ProviderConnectionError,
    anthropic.APIResponseValidationError: MalformedResponse,
    anthropic.APIError: ProviderUnavailable,
    anthropic.CredentialsError: AuthenticationError,
    anthropic.RetryableError: ProviderUnavailable,
    anthropic.AnthropicError: RequestRejected,
}
_FOREIGN = tuple(ERRORS)
_log = logging.getLogger(__name__)

# The API insists on a limit; a council's answers are shorter than this.
DEFAULT_MAX_TOKENS = 4096

_COUNT_TIMEOUT = 5.0

_FINISH: Mapping[str, FinishReason] = {"max_tokens": "length", "tool_use": "tool_calls"}
_FAILED_FINISH: Mapping[str, type[ProviderError]] = {
    "model_context_window_exceeded": ContextOverflow,
    "refusal": ContentRefused,
}

# The API wants a conversation that the user opens and ends.
_GO_ON = "Go on."
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")


class AnthropicClients:
    """Opens providers; agents with the same endpoint and key share one connection pool."""

    def __init__(self) -> None:
        self._pool = Pool(_client)

    def open(self, backend: BackendConfig) -> "AnthropicProvider":
        """Blocking for up to two seconds the first time (imports, TLS). Raises MissingKeyError, ConfigError."""
        endpoint = resolve(backend, os.environ)
        if backend.temperature is not None:
            _log.warning("backend.temperature is not used: Anthropic's API no longer has it")
        return AnthropicProvider(self._pool.client(endpoint), backend, endpoint, self._pool.budget(endpoint))

    async def close(self) -> None:
        await self._pool.close(AsyncAnthropic.close)


class AnthropicProvider:
    """One backend's model."""

    def __init__(self, client: AsyncAnthropic, backend: BackendConfig, endpoint: Endpoint, budget: RetryBudget) -> None:
        self._client = client
        self._backend = backend
        self._endpoint = endpoint
        self._retrier = Retrier(RetryPolicy(backend.max_retries), budget)
        self._source = Source(backend.type, endpoint.model, endpoint.key)

    @property
    def native_tools(self) -> bool:
        return self._endpoint.native_tools

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request))

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """By the count endpoint, which is free of charge."""
        body = request_body(request, self._backend, self._endpoint.model)
        count = cast("Any", self._client.messages.count_tokens)
        kept = {name: value for name, value in body.items() if name not in ("max_tokens", "stream")}
        try:
            counted = await count(**kept, timeout=timeouts(min(self._backend.timeout, _COUNT_TIMEOUT)))
        except _FOREIGN as e:
            _log.info("the count of a prompt could not be had: %s", type(e).__name__)
            return None
        tokens = getattr(counted, "input_tokens", None)
        return tokens if isinstance(tokens, int) else None

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        body = request_body(request, self._backend, self._endpoint.model)
        try:
            stream = await self._send(body)
        except _FOREIGN as e:
            raise self._translated(e, started=False) from e
        reader = _Reader(self._source)
        async with stream:
            self._check_content_type(stream)
            try:
                async for event in stream:
                    for out in reader.feed(event):
                        yield out
            except _FOREIGN as e:
                if not reader.complete:
                    raise self._translated(e, started=True) from e
        yield reader.close()

    async def _send(self, body: Mapping[str, Any]) -> AsyncStream[RawMessageStreamEvent]:
        create = cast("Any", self._client.messages.create)
        return await create(**body, timeout=timeouts(self._backend.timeout))

    def _check_content_type(self, stream: AsyncStream[RawMessageStreamEvent]) -> None:
        content_type = str(stream.response.headers.get("content-type", "text/event-stream"))
        if "text/event-stream" not in content_type:
            raise self._source.error(MalformedResponse, f"answered with {content_type} instead of an event stream")

    def _translated(self, error: Exception, *, started: bool) -> ProviderError:
        if isinstance(error, anthropic.APIStatusError):
            said = complaint(error.status_code, error.body, error.response.reason_phrase)
            return said.error(self._source, retry_after(error.response.headers))
        kind = kind_of(error, ERRORS)
        return self._source.error(after_start(kind) if started else kind, words(error, kind, self._backend))


def request_body(request: ChatRequest, backend: BackendConfig, model: str) -> dict[str, Any]:
    """The JSON of a request. This version of the API has no temperature.

    With thinking the API takes no forced tool call, and counts the thinking towards max_tokens. In a request that
    follows a tool call it wants the thinking before that call back, which is not kept: there thinking is left out.
    """
    thinking = None if any(m.tool_calls for m in request.messages) else backend.thinking_tokens
    max_tokens = request.max_tokens or backend.max_tokens or DEFAULT_MAX_TOKENS
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens + (thinking or 0),
        "messages": _conversation([m for m in request.messages if m.role != "system"]),
        "stream": True,
    }
    if system := "\n\n".join(clean_text(m.content) for m in request.messages if m.role == "system" and m.content):
        body["system"] = system
    if thinking:
        body["thinking"] = {"type": "enabled", "budget_tokens": thinking}
    if request.tools:
        body["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": dict(t.parameters)} for t in request.tools
        ]
        choice = "none" if request.closed else "auto" if thinking or request.optional else "any"
        body["tool_choice"] = {"type": choice}
    elif request.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
    return body


def _conversation(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages of one role in a row become one; empty texts, which the API refuses, are left out."""
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if blocks and out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    if not out or out[0]["role"] == "assistant":
        out.insert(0, _user(_GO_ON))
    if out[-1]["role"] == "assistant":
        out.append(_user(_GO_ON))
    return out


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    text = clean_text(message.content)
    if message.tool_call_id is not None:
        return [{"type": "tool_result", "tool_use_id": _id(message.tool_call_id), "content": text}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
    for call in message.tool_calls:
        blocks.append({"type": "tool_use", "id": _id(call.id), "name": call.name, "input": _input(call.arguments)})
    return blocks


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _id(call_id: str) -> str:
    """Other providers' ids have characters that this one refuses."""
    return _NOT_IN_AN_ID.sub("_", call_id) or "_"


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as the object that the API wants, even when a model wrote something else."""
    try:
        value = json.loads(clean_text(arguments))
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"arguments": clean_text(arguments)}


class _Reader:
    """Turns the events of one reply into our chunks."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._finish = ""
        self._usage = _Counts()
        self._call: ToolCall | None = None
        self._arguments: list[str] = []

    @property
    def complete(self) -> bool:
        """The stop reason is there, and with it the usage."""
        return bool(self._finish)

    def feed(self, event: RawMessageStreamEvent) -> Iterator[Chunk]:
        try:
            yield from self._read(event)
        except (AttributeError, TypeError) as e:
            # The SDK does not check what servers send; an event of another shape shows here.
            raise self._source.error(MalformedResponse, "an event of the reply is not of the documented form") from e

    def close(self) -> FinishChunk:
        """The last chunk. Raises when the reply is not one."""
        if not self._finish:
            raise self._source.error(StreamInterrupted, "the stream ended without a stop reason")
        if kind := _FAILED_FINISH.get(self._finish):
            raise self._source.error(kind, f"the reply was broken off ({self._finish})")
        return FinishChunk(_FINISH.get(self._finish, "stop"), self._usage.total())

    def _read(self, event: RawMessageStreamEvent) -> Iterator[Chunk]:
        match event.type:
            case "message_start":
                self._usage.note(event.message.usage)
            case "content_block_start":
                yield from self._open_block(event.content_block)
            case "content_block_delta":
                yield from self._delta(event.delta)
            case "content_block_stop" if self._call:
                arguments = "".join(self._arguments) or self._call.arguments
                yield ToolCallChunk(ToolCall(self._call.id, self._call.name, arguments))
                self._call = None
            case "message_delta":
                self._usage.note(event.usage)
                self._finish = event.delta.stop_reason or self._finish
            case _:
                pass

    def _open_block(self, block: Any) -> Iterator[Chunk]:
        if block.type == "tool_use":
            self._call = ToolCall(block.id, block.name, json.dumps(block.input or {}))
            self._arguments.clear()
        elif block.type == "text" and block.text:
            yield TextChunk(block.text)

    def _delta(self, delta: Any) -> Iterator[Chunk]:
        match delta.type:
            case "text_delta":
                yield TextChunk(delta.text)
            case "thinking_delta":
                yield ReasoningChunk(delta.thinking)
            case "input_json_delta":
                self._arguments.append(delta.partial_json)
            case _:
                pass


class _Counts:
    """The running token counts: each event repeats those that it knows, as totals."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def note(self, usage: Any) -> None:
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            value = getattr(usage, name, None)
            if isinstance(value, int):
                self._known[name] = value

    def total(self) -> Usage:
        """The API leaves out of input_tokens what came from the cache or went into it."""
        known = self._known.get
        cached = known("cache_read_input_tokens", 0)
        prompt = known("input_tokens", 0) + cached + known("cache_creation_input_tokens", 0)
        return Usage(prompt, known("output_tokens", 0), cached, reported=bool(self._known))


def _client(endpoint: Endpoint, http: Any) -> AsyncAnthropic:
    client = AsyncAnthropic(
        api_key=endpoint.key, base_url=endpoint.base_url, http_client=http, max_retries=0, open_telemetry=False
    )
    _ = client.messages  # imported on first use, which must not be on the event loop
    return client


if TYPE_CHECKING:
    _CONFORMS: type[ChatProvider] = AnthropicProvider
