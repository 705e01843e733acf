"""OpenAI's two APIs through its official SDK, for OpenAI and every server that speaks its protocol.

OpenAI's newest models take tools on the Responses API only (massmem.providers.responses); most other servers have only
chat completions.
"""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream

from massmem.config.models import Api, BackendConfig
from massmem.core.attachments import PDF, Attachment
from massmem.core.errors import (
    ContentRefused,
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
)
from massmem.core.messages import ChatMessage, ChatRequest, ToolCall, clean_text
from massmem.providers import responses
from massmem.providers.base import data_url, end_with_user, fits_strict, portable_schema
from massmem.providers.clients import HTTP_ERRORS, check_headers, timeouts
from massmem.providers.dialects import read_state
from massmem.providers.failures import Refusal
from massmem.providers.http import ApiFactory, ApiProvider
from massmem.providers.normaliser import ChatReader, Json, ReplyReader
from massmem.providers.presets import PRESETS, Endpoint

# With every request the SDK looks for httpx in sys.modules, and fails on one that is half loaded. Qdrant's client and
# mem0 load it in a thread, beside the first answers: load it whole before that.
with suppress(ImportError):
    import_module("httpx")

ERRORS: Mapping[type[Exception], type[ProviderError]] = {
    **HTTP_ERRORS,
    openai.APITimeoutError: ProviderTimeout,
    openai.APIConnectionError: ProviderConnectionError,
    openai.APIResponseValidationError: MalformedResponse,
    openai.APIError: ProviderUnavailable,
    openai.ContentFilterFinishReasonError: ContentRefused,
    openai.OpenAIError: RequestRejected,
}

# Options that some servers or models refuse, and the option that takes their value instead.
_OPTIONS: Mapping[Refusal, str] = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_LEFT_OUT: Mapping[Refusal, tuple[str, ...]] = {
    "schema": ("response_format", "text"),
    "effort": ("reasoning_effort",),
    "reasoning": ("reasoning", "include"),
    "temperature": ("temperature",),
    "stream_options": ("stream_options",),
    "prompt_cache_key": ("prompt_cache_key",),
}
"""What requests to a model that refuses them go without."""


class OpenAIProvider(ApiProvider[AsyncOpenAI]):
    sdk_errors = ERRORS
    status_error = openai.APIStatusError

    @property
    def _api(self) -> Api:
        """The API of the next request: the configured one, else the usual one of this endpoint until it is refused."""
        if self._backend.api is not None:
            return self._backend.api
        if self._refuses("responses"):
            return "chat"
        return "responses" if self._endpoint.own or self._refuses("chat") else "chat"

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        write = responses.request_body if self._api == "responses" else request_body
        body = write(request, self._backend, self._endpoint)
        refused = [(option, other) for option, other in _OPTIONS.items() if option in body and self._refuses(option)]
        for option, other in refused:
            body[other] = body.pop(option)
        if body.get("tool_choice") == "required" and self._refuses("forced_tools"):
            body["tool_choice"] = "auto"
        for refusal, fields in _LEFT_OUT.items():
            if self._refuses(refusal):
                body = {name: value for name, value in body.items() if name not in fields}
        return body

    def _list_refusable(self, body: Json) -> Mapping[Refusal, bool]:
        has_choice = self._backend.api is None
        return {
            "chat": has_choice and "messages" in body and not self._refuses("responses"),
            "responses": has_choice and "input" in body,
            "forced_tools": body.get("tool_choice") == "required",
            **{refusal: not body.keys().isdisjoint(fields) for refusal, fields in _LEFT_OUT.items()},
            **{option: option in body for option in _OPTIONS},
        }

    async def _send(self, body: Json) -> AsyncStream[object]:
        # The SDK's typed call copies every message and builds a model of every chunk: with 32 agents streaming, that
        # held the event loop for 0.1 s at a time. This is its own way to send a body and read chunks as they are.
        return await self._client.post(
            "/responses" if "input" in body else "/chat/completions",
            body=body,
            cast_to=object,
            options={"timeout": timeouts(self._backend.timeout)},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _reader(self, request: ChatRequest, body: Json) -> ReplyReader:
        if "input" in body:
            return responses.ResponseReader(request, self._context)
        return ChatReader(request, self._context)


class OpenAIFactory(ApiFactory[AsyncOpenAI]):
    provider = OpenAIProvider

    def _make_client(self, endpoint: Endpoint, connections: httpx2.AsyncClient) -> AsyncOpenAI:
        client = AsyncOpenAI(api_key=endpoint.key, base_url=endpoint.base_url, http_client=connections, max_retries=0)
        if endpoint.takes_environment:
            check_headers("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS")
        else:  # the SDK has read these variables, which are for OpenAI only
            client.organization = client.project = None
            client._custom_headers = {}  # pyright: ignore[reportPrivateUsage] - nothing public removes them
        return client


def request_body(request: ChatRequest, backend: BackendConfig, endpoint: Endpoint) -> dict[str, Any]:
    temperature = request.temperature if request.temperature is not None else backend.temperature
    max_tokens = request.max_tokens or backend.max_tokens
    messages = end_with_user(request.messages) if PRESETS[backend.type].ends_with_user else request.messages
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
    if backend.effort is not None:
        body["reasoning_effort"] = responses.effort_name(backend.effort)
    if endpoint.own:
        body["prompt_cache_key"] = responses.cache_key(request)
    if request.tools:
        body["tools"] = [{"type": "function", "function": responses.write_tool(tool)} for tool in request.tools]
        body["tool_choice"] = request.tool_choice
    elif request.schema is not None:
        taken = portable_schema(request.schema) if endpoint.own else dict(request.schema)
        schema = {"name": "reply", "schema": taken, "strict": fits_strict(taken)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _message(message: ChatMessage) -> dict[str, Any]:
    text = clean_text(message.content)
    out: dict[str, Any] = {"role": message.role, "content": text}
    if message.attachments:
        out["content"] = [*map(_content_part, message.attachments), {"type": "text", "text": text}]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = list(map(_write_call, message.tool_calls))
        for call in message.tool_calls:
            out = {**read_state(call).get("message", {}), **out}
    return out


def _write_call(call: ToolCall) -> Json:
    state = read_state(call)
    function = {**state.get("function", {}), "name": call.name, "arguments": clean_text(call.arguments)}
    return {**state.get("call", {}), "id": call.id, "type": "function", "function": function}


def _content_part(attachment: Attachment) -> dict[str, Any]:
    if attachment.file.media_type == PDF:
        return {"type": "file", "file": {"filename": attachment.file.name, "file_data": data_url(attachment)}}
    return {"type": "image_url", "image_url": {"url": data_url(attachment)}}
