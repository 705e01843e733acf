"""The Responses API of OpenAI: the body of a request, and the events of a reply."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from massmem.config.models import BackendConfig
from massmem.core.attachments import PDF, Attachment
from massmem.core.errors import ContentRefused, ProviderError
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
from massmem.providers.base import Thoughts, data_url, fits_strict, portable_schema, read_count, read_detail, read_usage
from massmem.providers.failures import ErrorContext, parse_error_body
from massmem.providers.http import ReplyReader
from massmem.providers.presets import Endpoint

Json = Mapping[str, Any]


def request_body(
    request: ChatRequest, backend: BackendConfig, endpoint: Endpoint, thoughts: Thoughts
) -> dict[str, Any]:
    """Return the JSON of a request. The server stores nothing of it.

    thoughts: of earlier replies of this step.
    """
    temperature = request.temperature if request.temperature is not None else backend.temperature
    body: dict[str, Any] = {
        "model": endpoint.model,
        "input": [item for message in request.messages for item in _items(message, thoughts)],
        "stream": True,
        "store": False,
    }
    if temperature is not None:
        body["temperature"] = temperature
    if max_tokens := request.max_tokens or backend.max_tokens:
        body["max_output_tokens"] = max_tokens
    if backend.effort is not None:
        body["reasoning"] = {"effort": effort_name(backend.effort)}
    if endpoint.own:
        body["reasoning"] = {**body.get("reasoning", {}), "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
        body["prompt_cache_key"] = cache_key(request)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
        body["tool_choice"] = request.tool_choice
    elif request.schema is not None:
        schema = portable_schema(request.schema)
        form = {"type": "json_schema", "name": "reply", "schema": schema, "strict": fits_strict(schema)}
        body["text"] = {"format": form}
    return body


def effort_name(effort: str) -> str:
    """Return an effort in the words of OpenAI."""
    return "xhigh" if effort == "max" else effort


def cache_key(request: ChatRequest) -> str:
    """Return a key that an agent's requests of one conversation share, so that they reach the same cache.

    The first line of what the user said first stays the same from step to step and from turn to turn.
    """
    first = next((message.content for message in request.messages if message.role == "user"), "")
    line = first.split("\n", 1)[0]
    return hashlib.sha256(f"{request.agent_id}\n{clean_text(line)}".encode()).hexdigest()[:32]


def _items(message: ChatMessage, thoughts: Thoughts) -> Iterator[Json]:
    text = clean_text(message.content)
    if message.tool_call_id is not None:
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": text}
        return
    yield from thoughts.find(message.tool_calls)
    if text or not message.tool_calls:
        kind = "output_text" if message.role == "assistant" else "input_text"
        content = [*map(_content_part, message.attachments), {"type": kind, "text": text}]
        yield {"type": "message", "role": message.role, "content": content}
    for call in message.tool_calls:
        arguments = clean_text(call.arguments)
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def _content_part(attachment: Attachment) -> Json:
    if attachment.file.media_type == PDF:
        return {"type": "input_file", "filename": attachment.file.name, "file_data": data_url(attachment)}
    return {"type": "input_image", "image_url": data_url(attachment)}


class ResponseReader(ReplyReader):
    """Reads the events of a response."""

    finish_reasons: ClassVar[Mapping[str, FinishReason]] = {"max_output_tokens": "length", "tool_calls": "tool_calls"}
    failures: ClassVar[Mapping[str, type[ProviderError]]] = {"content_filter": ContentRefused}

    def __init__(self, request: ChatRequest, context: ErrorContext, thoughts: Thoughts) -> None:
        super().__init__(request, context)
        self._all_thoughts = thoughts
        self._thoughts: list[Json] = []
        self._calls: list[ToolCall] = []
        self._refusal = ""
        self._usage_fields: Json = {}

    def _read(self, event: Json) -> Iterator[Chunk]:
        match event.get("type"):
            case "response.output_text.delta":
                yield TextChunk(event["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield ReasoningChunk(event["delta"])
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                yield ReasoningChunk("\n\n")
            case "response.function_call_arguments.delta":
                self.length += len(event["delta"])
            case "response.refusal.delta":
                self._refusal += event["delta"]
            case "response.refusal.done":
                self._refusal = event["refusal"] or self._refusal
            case "response.output_item.done":
                self._add_item(event["item"])
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(event["response"])
            case "error":
                raise parse_error_body(200, event).error(self._context)
            case _:
                pass

    def _add_item(self, item: Json) -> None:
        match item.get("type"):
            case "function_call":
                number = len(self._calls)
                arguments = item.get("arguments") or "{}"
                self._calls.append(ToolCall(item.get("call_id") or f"call_{number}", item["name"], arguments))
            case "reasoning" if item.get("encrypted_content"):
                self._thoughts.append({key: value for key, value in item.items() if key != "status"})
            case "message":
                refusals = (part for part in item.get("content") or () if part.get("type") == "refusal")
                self._refusal = next((part["refusal"] for part in refusals if part.get("refusal")), self._refusal)
            case _:
                pass

    def _end(self, response: Json) -> None:
        if isinstance(usage := response.get("usage"), dict):
            self._usage_fields = cast("Json", usage)
        match response.get("status"):
            case "failed":
                raise parse_error_body(200, response.get("error"), "the response failed").error(self._context)
            case "incomplete":
                self._finish = str(read_detail(response, "incomplete_details", "reason") or "max_output_tokens")
            case _:
                self._finish = "tool_calls" if self._calls else "stop"

    def _last_chunks(self) -> Iterator[Chunk]:
        if self._refusal:
            raise self._context.error(ContentRefused, f"the model refused: {self._refusal}")
        self._all_thoughts.add(self._calls, self._thoughts)
        yield from map(ToolCallChunk, self._calls)

    def _usage(self) -> Usage:
        fields = self._usage_fields
        cached = read_detail(fields, "input_tokens_details", "cached_tokens")
        usage = read_usage(fields.get("input_tokens"), fields.get("output_tokens"), cached, self._estimate())
        reasoning = read_count(read_detail(fields, "output_tokens_details", "reasoning_tokens"))
        return replace(usage, reasoning=reasoning or 0)
