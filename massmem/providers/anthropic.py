"""Messages through the official Anthropic SDK."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream
from anthropic.types import RawMessageStreamEvent

from massmem.config.models import EFFORT_BUDGETS, BackendConfig
from massmem.core.attachments import PDF, Attachment
from massmem.core.errors import (
    AuthenticationError,
    ContentRefused,
    ContextOverflow,
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
)
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    Chunk,
    FinishReason,
    ReasoningChunk,
    TextChunk,
    ToolCall,
    ToolCallChunk,
    Usage,
    clean_text,
)
from massmem.providers.base import GO_ON, Thoughts, encode_data, portable_schema, read_count, read_usage
from massmem.providers.failures import ErrorContext, ErrorReply, Refusal, error_reply_of
from massmem.providers.http import HTTP_ERRORS, ApiFactory, ApiProvider, ReplyReader, timeouts
from massmem.providers.pauses import Pause
from massmem.providers.presets import Endpoint
from massmem.providers.retry import RetryBudget

log = logging.getLogger(__name__)

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

DEFAULT_MAX_TOKENS = 16_000
"""The API insists on a limit. A council's answers are much shorter, but the newest models think before all of them."""

_COUNT_TIMEOUT = 5.0
"""Seconds."""

_REFUSED_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")


class AnthropicFactory(ApiFactory[AsyncAnthropic]):
    """Opens providers of Anthropic's API."""

    def _make_client(self, endpoint: Endpoint, connections: httpx2.AsyncClient) -> AsyncAnthropic:
        client = AsyncAnthropic(
            api_key=endpoint.key,
            base_url=endpoint.base_url,
            http_client=connections,
            max_retries=0,
            open_telemetry=False,
        )
        _ = client.messages  # the SDK imports it on first use, which must not happen on the event loop
        return client

    def _make_provider(
        self, client: AsyncAnthropic, backend: BackendConfig, endpoint: Endpoint, budget: RetryBudget, pause: Pause
    ) -> "AnthropicProvider":
        if backend.temperature is not None:
            log.warning("backend.temperature is not used: Anthropic's API no longer has it")
        return AnthropicProvider(client, backend, endpoint, budget, pause, self._learnt)


class AnthropicProvider(ApiProvider[AsyncAnthropic]):
    """One backend's model."""

    sdk_errors = ERRORS

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """Ask the count endpoint, which is free of charge."""
        body = {name: value for name, value in self._body(request).items() if name not in ("max_tokens", "stream")}
        count = cast("Any", self._client.messages.count_tokens)
        try:
            async with asyncio.timeout(min(self._backend.timeout, _COUNT_TIMEOUT)):
                counted = await count(**body, timeout=timeouts(_COUNT_TIMEOUT))
        except tuple(ERRORS) as e:
            log.info("the tokens of a prompt could not be counted: %s", type(e).__name__)
            return None
        return read_count(getattr(counted, "input_tokens", None))

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        form = RequestForm(self._learnt.find_refusals(self._endpoint), self._thoughts)
        return request_body(request, self._backend, self._endpoint.model, form)

    def _list_refusable(self, body: Mapping[str, Any]) -> Sequence[Refusal]:
        output = body.get("output_config", {})
        forms: Mapping[Refusal, bool] = {
            "tools": "tools" in body,
            "adaptive_thinking": body.get("thinking", {}).get("type") == "adaptive",
            "effort": "effort" in output,
            "schema": "format" in output,
            "cache_control": any("cache_control" in block for block in body.get("system", ())),
        }
        return [name for name, is_sent in forms.items() if is_sent]

    async def _send(self, body: Mapping[str, Any]) -> AsyncStream[RawMessageStreamEvent]:
        create = cast("Any", self._client.messages.create)
        return await create(**body, timeout=timeouts(self._backend.timeout))

    def _reader(self, request: ChatRequest, body: Mapping[str, Any]) -> "_Reader":
        return _Reader(request, self._context, self._thoughts)

    async def _list_models(self) -> AsyncIterator[str]:
        async for model in self._client.models.list(timeout=timeouts(self._backend.timeout)):
            yield model.id

    def _error_reply(self, error: Exception) -> ErrorReply | None:
        return error_reply_of(error) if isinstance(error, anthropic.APIStatusError) else None


@dataclass(frozen=True, slots=True)
class RequestForm:
    """What a model takes, as far as its refusals say, and what it thought before its tool calls."""

    refusals: Collection[Refusal] = ()
    thoughts: Thoughts = field(default_factory=Thoughts)

    def thinking(self, request: ChatRequest, backend: BackendConfig) -> dict[str, Any] | None:
        """Return how the model is to think: as it sees fit, or, when it is too old for that, with a budget."""
        if backend.usual_effort in (None, "none"):
            return None
        if "adaptive_thinking" not in self.refusals:
            return {"type": "adaptive", "display": "summarized"}
        # With a budget, thinking must go back with the calls that it led to.
        missing = any(m.tool_calls and not self.thoughts.find(m.tool_calls) for m in request.messages)
        return None if missing else {"type": "enabled", "budget_tokens": _budget(backend)}

    def output(self, request: ChatRequest, backend: BackendConfig) -> dict[str, Any]:
        """Return the form of the output: the effort that goes into it, and its schema."""
        output: dict[str, Any] = {}
        effort = backend.usual_effort
        if effort is not None and not {"adaptive_thinking", "effort"} & set(self.refusals):
            output["effort"] = "low" if effort in ("none", "minimal") else effort
        if request.schema is not None and not request.tools and "schema" not in self.refusals:
            output["format"] = {"type": "json_schema", "schema": portable_schema(request.schema)}
        return output


def request_body(
    request: ChatRequest, backend: BackendConfig, model: str, form: RequestForm | None = None
) -> dict[str, Any]:
    """Return the JSON of a request. This version of the API has no temperature.

    No tool call is forced: the newest models refuse it, none takes it with thinking, and another choice than that of
    the answer would keep the messages of a vote out of the cache. Thinking counts towards max_tokens.
    """
    form = form or RequestForm()
    thinking = form.thinking(request, backend)
    max_tokens = request.max_tokens or backend.max_tokens or DEFAULT_MAX_TOKENS
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens + (_budget(backend) if thinking else 0),
        "messages": _conversation([m for m in request.messages if m.role != "system"], form.thoughts),
        "stream": True,
    }
    if system := "\n\n".join(clean_text(m.content) for m in request.messages if m.role == "system" and m.content):
        body["system"] = [{"type": "text", "text": system}]
    if thinking:
        body["thinking"] = thinking
    if request.tools:
        body["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": dict(t.parameters)} for t in request.tools
        ]
        body["tool_choice"] = {"type": "none" if request.tool_choice == "none" else "auto"}
    if output := form.output(request, backend):
        body["output_config"] = output
    if "cache_control" not in form.refusals:
        heads = (clean_text(m.content[: m.head]) for m in reversed(request.messages) if m.head)
        _mark_for_cache(body, next(heads, ""))
    return body


def _budget(backend: BackendConfig) -> int:
    """Return the tokens that the model may think with, on top of those of its reply."""
    return backend.thinking_tokens or EFFORT_BUDGETS.get(backend.usual_effort or "none", 0)


def _mark_for_cache(body: dict[str, Any], question: str) -> None:
    """Mark what later requests of this agent begin with: the tools and the system prompt, the history, the question,
    and all of it.

    The server looks for the longest prefix that it knows before each mark, of which it takes four.
    """
    messages = body["messages"]
    heads = [
        block for message in messages for block in message["content"] if question and block.get("text") == question
    ]
    for block in (*body.get("system", ()), *heads[-1:], *(message["content"][-1] for message in messages[-2:])):
        block["cache_control"] = {"type": "ephemeral"}


def _conversation(messages: Sequence[ChatMessage], thoughts: Thoughts) -> list[dict[str, Any]]:
    """Return the messages as the API wants them.

    The user begins and ends, consecutive messages of one role are joined, and empty texts are left out.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [*map(dict, thoughts.find(message.tool_calls)), *_blocks(message)]
        if blocks and out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    if not out or out[0]["role"] == "assistant":
        out.insert(0, _go_on())
    if out[-1]["role"] == "assistant":
        out.append(_go_on())
    return out


def _go_on() -> dict[str, Any]:
    return {"role": "user", "content": _blocks(GO_ON)}


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    text = clean_text(message.content)
    if message.tool_call_id is not None:
        return [{"type": "tool_result", "tool_use_id": _call_id(message.tool_call_id), "content": text}]
    head, rest = text[: message.head], text[message.head :].lstrip("\n")
    texts = (head, rest) if head.strip() and rest else (text,)
    blocks = [
        *map(_file_block, message.attachments),
        *({"type": "text", "text": part} for part in texts if part.strip()),
    ]
    for call in message.tool_calls:
        use = {"type": "tool_use", "id": _call_id(call.id), "name": call.name, "input": _call_input(call.arguments)}
        blocks.append(use)
    return blocks


def _file_block(attachment: Attachment) -> dict[str, Any]:
    file = attachment.file
    source = {"type": "base64", "media_type": file.media_type, "data": encode_data(attachment)}
    if file.media_type == PDF:
        return {"type": "document", "source": source, "title": file.name}
    return {"type": "image", "source": source}


def _call_id(id_: str) -> str:
    """Return the id without characters that other providers use and this one refuses."""
    return _REFUSED_IN_IDS.sub("_", id_) or "_"


def _call_input(arguments: str) -> dict[str, Any]:
    """Return the arguments as the object that the API wants, even when a model wrote something else."""
    try:
        value = json.loads(clean_text(arguments))
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"arguments": clean_text(arguments)}


class _Reader(ReplyReader):
    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {
        "max_tokens": "length",
        "pause_turn": "length",  # the server wants to be asked to go on, as after its limit of tokens
        "tool_use": "tool_calls",
    }
    failures: ClassVar[Mapping[str, type[ProviderError]]] = {
        "model_context_window_exceeded": ContextOverflow,
        "refusal": ContentRefused,
    }

    def __init__(self, request: ChatRequest, context: ErrorContext, thoughts: Thoughts) -> None:
        super().__init__(request, context)
        self._all_thoughts = thoughts
        self._thoughts: list[dict[str, Any]] = []
        self._counts: dict[str, int] = {}
        self._call: ToolCall | None = None
        self._calls: list[ToolCall] = []
        self._arguments: list[str] = []

    def _read(self, event: RawMessageStreamEvent) -> Iterator[Chunk]:
        match event.type:
            case "message_start":
                self._add_counts(getattr(event.message, "usage", None))
            case "content_block_start":
                yield from self._open_block(event.content_block)
            case "content_block_delta":
                yield from self._read_delta(event.delta)
            case "content_block_stop" if self._call:
                arguments = "".join(self._arguments) or self._call.arguments
                self._calls.append(ToolCall(self._call.id, self._call.name, arguments))
                yield ToolCallChunk(self._calls[-1])
                self._call = None
            case "message_delta":
                self._add_counts(getattr(event, "usage", None))
                self._finish = event.delta.stop_reason or self._finish
                self._why = getattr(getattr(event.delta, "stop_details", None), "explanation", None) or ""
            case _:
                pass

    def _open_block(self, block: Any) -> Iterator[Chunk]:
        if block.type == "tool_use":
            self._call = ToolCall(block.id, block.name, json.dumps(block.input or {}))
            self._arguments.clear()
        elif block.type == "text" and block.text:
            yield TextChunk(block.text)
        elif block.type in ("thinking", "redacted_thinking"):
            self._thoughts.append(block.model_dump())

    def _read_delta(self, delta: Any) -> Iterator[Chunk]:
        match delta.type:
            case "text_delta":
                yield TextChunk(delta.text)
            case "thinking_delta":
                self._thoughts[-1]["thinking"] += delta.thinking
                yield ReasoningChunk(delta.thinking)
            case "signature_delta":
                self._thoughts[-1]["signature"] = delta.signature
            case "input_json_delta":
                self._arguments.append(delta.partial_json)
                self.length += len(delta.partial_json)
            case _:
                pass

    def _last_chunks(self) -> Iterator[Chunk]:
        self._all_thoughts.add(self._calls, self._thoughts)
        yield from ()

    def _add_counts(self, usage: Any) -> None:
        """Note the token counts of an event. They are running totals, and each event has some of them."""
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            value = read_count(getattr(usage, name, None))
            if value is not None:
                self._counts[name] = value
        thinking = read_count(getattr(getattr(usage, "output_tokens_details", None), "thinking_tokens", None))
        self._counts["thinking_tokens"] = thinking or self._counts.get("thinking_tokens", 0)

    def _usage(self) -> Usage:
        """The usage; the API leaves out of input_tokens what came from the cache or went into it."""
        count = self._counts.get
        cached, written = count("cache_read_input_tokens", 0), count("cache_creation_input_tokens", 0)
        prompt = count("input_tokens", 0) + cached + written
        usage = read_usage(prompt or None, count("output_tokens"), cached, self._estimate())
        return replace(usage, cache_written=written, reasoning=count("thinking_tokens", 0))
