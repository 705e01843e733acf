"""The Responses API of OpenAI: the body of a request, and the events of a reply."""

import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any, ClassVar

from massmem.config.models import BackendConfig
from massmem.core.attachments import PDF, Attachment
from massmem.core.messages import ChatMessage, ChatRequest, Chunk, ToolSpec, clean_text
from massmem.providers.base import data_url, fits_strict, portable_schema
from massmem.providers.dialects import read_state
from massmem.providers.failures import ErrorContext, parse_error_body
from massmem.providers.normaliser import Json, ReplyReader
from massmem.providers.presets import Endpoint


def request_body(request: ChatRequest, backend: BackendConfig, endpoint: Endpoint) -> dict[str, Any]:
    """Return the JSON of a request. The server stores nothing of it."""
    temperature = request.temperature if request.temperature is not None else backend.temperature
    body: dict[str, Any] = {
        "model": endpoint.model,
        "input": [item for message in request.messages for item in _items(message)],
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
        body["tools"] = [{"type": "function", **write_tool(tool), "strict": False} for tool in request.tools]
        body["tool_choice"] = request.tool_choice
    elif request.schema is not None:
        schema = portable_schema(request.schema)
        form = {"type": "json_schema", "name": "reply", "schema": schema, "strict": fits_strict(schema)}
        body["text"] = {"format": form}
    return body


def write_tool(tool: ToolSpec) -> Json:
    """Return what both APIs are told of a tool."""
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def effort_name(effort: str) -> str:
    return "xhigh" if effort == "max" else effort


def cache_key(request: ChatRequest) -> str:
    """Return a key that an agent's requests of one conversation share, so that they reach the same cache.

    The first line of what the user said first stays the same from step to step and from turn to turn.
    """
    first = next((message.content for message in request.messages if message.role == "user"), "")
    line = first.split("\n", 1)[0]
    return hashlib.sha256(f"{request.agent_id}\n{clean_text(line)}".encode()).hexdigest()[:32]


def _items(message: ChatMessage) -> Iterator[Json]:
    text = clean_text(message.content)
    if message.tool_call_id is not None:
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": text}
        return
    for call in message.tool_calls:
        yield from read_state(call).get("items", ())
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
    """Reads the events of a response, or one whole response.

    Later events have again, whole, what earlier ones had in pieces; some servers send only those.
    """

    marks: ClassVar[Collection[str]] = ("type", "object")

    def __init__(self, request: ChatRequest, context: ErrorContext) -> None:
        super().__init__(request, context)
        self._has_thought = False
        self._ids: set[str] = set()
        """Of the items that have been read whole."""
        self._written = ""
        self._parts: dict[str, str] = {}
        """The text so far of each of its parts."""

    def _read(self, event: Json) -> Iterator[Chunk]:
        kind = self._text(event.get("type"), "type").removeprefix("response.")
        delta, whole = self._text(event.get("delta"), "delta"), kind.endswith(".done")
        match kind:
            case "output_text.delta":
                yield from self._write_part(event, delta)
            case "output_text.done" | "content_part.done":
                yield from self._write_part(event, self._list_texts(event.get("part") or event), whole=True)
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._has_thought = True
                yield from self._write(delta, is_thought=True)
            case "reasoning_summary_part.added" if event.get("summary_index"):
                yield from self._write("\n\n", is_thought=True)
            case "refusal.delta" | "refusal.done":
                self._refusal = self._text(event.get("refusal"), "refusal") or self._refusal + delta
            case "function_call_arguments.delta" | "function_call_arguments.done":
                place = self._find_place(event.get("item_id"), event.get("output_index"))
                self._add_call(place, "", event.get("name"), event.get("arguments") or delta, whole=whole)
            case "output_item.added" | "output_item.done":
                item = self._object(event.get("item"), "item")
                yield from self._read_item(item, event.get("output_index"), whole=whole)
            case "completed" | "incomplete" | "failed" | "cancelled":
                yield from self._read_end(self._object(event.get("response"), "response"), kind)
            case _ if event.get("object") == "response":
                yield from self._read_end(event, "")
            case _:
                pass

    def _write_part(self, event: Json, text: str, *, whole: bool = False) -> Iterator[Chunk]:
        """Yield a piece of a part of the text, or what is new in the whole part."""
        place = json.dumps([event.get(name) for name in ("item_id", "output_index", "content_index")])
        part = self._parts.get(place, "")
        if whole:
            text = text[len(part) :] if text.startswith(part) and not self._written.endswith(text) else ""
        self._parts[place] = part + text
        self._written += text
        yield from self._write(text)

    def _read_item(self, item: Json, index: object, *, whole: bool) -> Iterator[Chunk]:
        id_ = self._text(item.get("id"), "id")
        if id_ in self._ids:
            return
        self._ids |= {id_} if id_ and whole else set()
        match item.get("type"):
            case "function_call":
                place = self._find_place(id_, index)
                self._add_call(place, item.get("call_id"), item.get("name"), item.get("arguments"), whole=whole)
            case "reasoning" if whole:
                if item.get("encrypted_content") or item.get("content"):
                    thoughts = self._state.setdefault("items", [])
                    thoughts.append({key: value for key, value in item.items() if key != "status"})
                if not self._has_thought:
                    yield from self._write_parts(item.get("summary") or item.get("content"), is_thought=True)
            case "message" if whole:
                yield from self._write_rest(self._list_texts(item.get("content")))
            case _:
                pass

    def _write_rest(self, text: str) -> Iterator[Chunk]:
        """Yield what follows on the text so far, in a text that begins with it."""
        if text.startswith(self._written):
            yield from self._write_part({}, text[len(self._written) :])

    def _list_texts(self, content: object) -> str:
        """Return the texts of a message or of a part of it, and note its refusal."""
        parts = self._objects(content, "part")
        refusals = (self._text(part.get("refusal"), "refusal") for part in parts)
        self._refusal = next(filter(None, refusals), self._refusal)
        return "".join(self._text(part.get("text")) for part in parts if part.get("type") != "reasoning_text")

    def _read_end(self, response: Json, kind: str) -> Iterator[Chunk]:
        self._add_counts(response.get("usage"))
        items = self._objects(response.get("output"), "output item")
        for item in items:
            if item.get("type") != "message":
                yield from self._read_item(item, None, whole=True)
        messages = (item.get("content") for item in items if item.get("type") == "message")
        yield from self._write_rest("".join(map(self._list_texts, messages)))
        status = self._text(response.get("status"), "status") or kind
        if status == "failed":
            raise parse_error_body(200, response.get("error"), "the response failed").error(self._context)
        reason = self._object(response.get("incomplete_details"), "details").get("reason") or "max_output_tokens"
        self._end(reason if status == "incomplete" else status)
