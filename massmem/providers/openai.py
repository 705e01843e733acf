"""OpenAI's two APIs, for OpenAI and every server that speaks its protocol.

OpenAI's newest models take tools on the Responses API only; most other servers have only chat completions.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, cast

import httpx2

from massmem.config.models import Api, BackendConfig
from massmem.config.presets import PRESETS, BackendType
from massmem.config.web_search import WebSearchConfig
from massmem.core.calls import parse_object
from massmem.core.messages import PDF, Attachment, ChatMessage, ChatRequest, Chunk, ToolCall, clean_text
from massmem.core.text import one_line
from massmem.providers.base import (
    data_url,
    end_with_user,
    list_places,
    portable_schema,
    runs_code,
    searches_web,
    takes_strict,
    write_location,
    writes_for_people,
)
from massmem.providers.chat_reader import ChatReader
from massmem.providers.clients import read_headers
from massmem.providers.dialects import read_state
from massmem.providers.endpoints import Endpoint
from massmem.providers.failures import ErrorContext, Refusal, parse_error_body
from massmem.providers.gemini import GeminiReader, build_gemini_body, is_alone, is_old
from massmem.providers.http import ApiFactory, ApiProvider
from massmem.providers.marks import Form
from massmem.providers.normaliser import Json, ReplyReader

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
"""Fields that requests to a model that refuses them go without."""


class OpenAIProvider(ApiProvider):
    @property
    def _api(self) -> Api:
        """The API of the next request: the configured one, else the usual one of this endpoint until it is refused."""
        if self._backend.api is not None:
            return self._backend.api
        if self._backend.code_execution:
            return "responses"
        if self._backend.web_search is not None and self._backend.type in _SEARCH_BY_RESPONSES:
            return "responses"
        if self._refuses("responses"):
            return "chat"
        return "responses" if self._endpoint.own or self._refuses("chat") else "chat"

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        if self._is_gemini:
            if is_old(self._endpoint.model) and searches_web(self._backend, request) and not is_alone(request):
                self._tools.say(f"{self._endpoint.model} does not search beside other tools", ["Google Search"])
            return build_gemini_body(request, self._backend, self._endpoint.model)
        write = build_response_body if self._api == "responses" else build_chat_body
        body = write(request, self._backend, self._endpoint)
        for name, value in self._backend.extra_body.items():
            body[name] = {**value, **body[name]} if isinstance(value, dict) and name in body else value
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

    async def _send(self, body: Json) -> httpx2.Response:
        path, headers = "/responses" if "input" in body else "/chat/completions", None
        if self._is_gemini:
            path = f"{self._endpoint.base_url.removesuffix('/openai')}/models/{self._endpoint.model}"
            path += ":streamGenerateContent?alt=sse"
            headers = {"x-goog-api-key": self._endpoint.key}
        return await self._client.post(path, body, self._backend.timeout, headers)

    @property
    def _is_gemini(self) -> bool:
        """Whether requests go by Gemini's own API: that of OpenAI's protocol has no search and runs no code."""
        backend = self._backend
        return backend.type == "gemini" and (backend.web_search is not None or backend.code_execution)

    def _reader(self, request: ChatRequest, body: Json) -> ReplyReader:
        if self._is_gemini:
            reader: ReplyReader = GeminiReader(request, self._context)
        else:
            reader = (ResponseReader if "input" in body else ChatReader)(request, self._context)
        if searches_web(self._backend, request) and writes_for_people(request):
            forms: Mapping[BackendType, Form] = {"gemini": "offsets", "openrouter": "offsets", "perplexity": "numbers"}
            reader.cited.form = forms.get(self._backend.type, "links")
        return reader


_VARIABLES = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}


class OpenAIFactory(ApiFactory):
    provider = OpenAIProvider

    def _write_headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        more = read_headers(_VARIABLES, "OPENAI_CUSTOM_HEADERS") if endpoint.takes_environment else {}
        return {"authorization": f"Bearer {endpoint.key}", **more}


def build_chat_body(request: ChatRequest, backend: BackendConfig, endpoint: Endpoint) -> dict[str, Any]:
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
        body["reasoning_effort"] = effort_name(backend.effort)
    if endpoint.own:
        body["prompt_cache_key"] = cache_key(request)
    body |= write_chat_search(request, backend)
    if request.tools:
        own = [{"type": "function", "function": tool.to_dict()} for tool in request.tools]
        body["tools"] = [*own, *body.get("tools", ())]
        body["tool_choice"] = request.tool_choice
    elif request.schema is not None:
        taken = portable_schema(request.schema) if endpoint.own else dict(request.schema)
        schema = {"name": "reply", "schema": taken, "strict": takes_strict(taken)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _message(message: ChatMessage) -> dict[str, Any]:
    text = clean_text(message.content)
    out: dict[str, Any] = {"role": message.role, "content": text}
    if message.attachments:
        out["content"] = [*map(_chat_part, message.attachments), {"type": "text", "text": text}]
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


def _chat_part(attachment: Attachment) -> dict[str, Any]:
    if attachment.file.media_type == PDF:
        return {"type": "file", "file": {"filename": attachment.file.name, "file_data": data_url(attachment)}}
    return {"type": "image_url", "image_url": {"url": data_url(attachment)}}


def build_response_body(request: ChatRequest, backend: BackendConfig, endpoint: Endpoint) -> dict[str, Any]:
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
        body["tools"] = [{"type": "function", **tool.to_dict(), "strict": False} for tool in request.tools]
        body["tool_choice"] = request.tool_choice
    if backend.web_search is not None and searches_web(backend, request):
        _add_search(body, backend.web_search, backend.type)
    if runs_code(backend, request):  # https://developers.openai.com/api/docs/guides/tools-code-interpreter
        body["tools"] = [*body.get("tools", ()), {"type": "code_interpreter", "container": {"type": "auto"}}]
        body["include"] = [*body.get("include", ()), "code_interpreter_call.outputs"]
    if request.schema is not None and not request.tools:
        schema = portable_schema(request.schema)
        form = {"type": "json_schema", "name": "reply", "schema": schema, "strict": takes_strict(schema)}
        body["text"] = {"format": form}
    return body


_SEARCH_BY_RESPONSES = ("openai", "azure_openai", "grok")
"""The types whose search is a tool of the Responses API."""


def _add_search(body: dict[str, Any], search: WebSearchConfig, kind: BackendType) -> None:
    """Add the search to the body of a response: https://developers.openai.com/api/docs/guides/tools-web-search, and
    https://docs.x.ai/developers/tools/web-search, where domains have another name and another place."""
    blocked = "excluded_domains" if kind == "grok" else "blocked_domains"
    domains = {"allowed_domains": search.allowed_domains, blocked: search.blocked_domains}
    filters = {name: list(names) for name, names in domains.items() if names}
    tool: dict[str, Any] = {"type": "web_search"}
    if filters:
        tool |= filters if kind == "grok" else {"filters": filters}
    if search.location is not None:
        tool["user_location"] = write_location(search.location)
    if search.max_uses is not None:
        body["max_tool_calls"] = search.max_uses
    if body.get("tool_choice") == "none":
        # The other tools are named for the cache alone.
        body["tool_choice"] = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    body["tools"] = [*body.get("tools", ()), tool]
    body["include"] = [*body.get("include", ()), "web_search_call.action.sources"]


def write_chat_search(request: ChatRequest, backend: BackendConfig) -> dict[str, Any]:
    """Return what a body of chat completions says of the search.

    OpenRouter: https://openrouter.ai/docs/guides/features/server-tools/web-search. Options go with its own engine: the
    search of a model's provider ignores those that it does not have.
    Perplexity: https://docs.perplexity.ai/guides/search-domain-filters. Its models always search unless told not to.
    """
    search = backend.web_search or WebSearchConfig()
    if not searches_web(backend, request):
        return {"disable_search": True} if backend.type == "perplexity" else {}
    if backend.type == "perplexity":
        names = [*search.allowed_domains, *(f"-{name}" for name in search.blocked_domains)]
        body: dict[str, Any] = {"search_domain_filter": names} if names else {}
        if search.location is not None:
            body["web_search_options"] = {"user_location": list_places(search.location)}
        return body
    options: dict[str, Any] = {"max_uses": search.max_uses} if search.max_uses is not None else {}
    lists = {"allowed_domains": search.allowed_domains, "excluded_domains": search.blocked_domains}
    options |= {name: list(names) for name, names in lists.items() if names}
    if search.location is not None:
        options["user_location"] = write_location(search.location)
    parameters = {"engine": "exa", **options} if options else {}
    return {"tools": [{"type": "openrouter:web_search", **({"parameters": parameters} if parameters else {})}]}


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
        content = [*map(_response_part, message.attachments), {"type": kind, "text": text}]
        yield {"type": "message", "role": message.role, "content": content}
    for call in message.tool_calls:
        arguments = clean_text(call.arguments)
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def _response_part(attachment: Attachment) -> Json:
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
            case _:  # a source may decide what is held back
                self._read_annotation(self._object(event.get("annotation"), "annotation"))
                yield from self._write("")

    def _write_part(self, event: Json, text: str, *, whole: bool = False) -> Iterator[Chunk]:
        """Yield a piece of a part of the text, or what is new in the whole part."""
        place = json.dumps([event.get(name) for name in ("item_id", "output_index", "content_index")])
        part = self._parts.get(place, "")
        if whole:
            text = text[len(part) :] if text.startswith(part) and not self._written.endswith(text) else ""
        self._parts[place] = part + text
        self._written += text
        yield from self._write(text)

    def _read_search(self, item: Json, *, whole: bool) -> Iterator[Chunk]:
        """Yield a search, or the page that is opened, as soon as the server says what it is."""
        action = self._object(item.get("action") or parse_object(self._text(item.get("arguments"))), "action")
        queries = action.get("queries")
        words = self._text(action.get("query"), "query") or self._text(action.get("url"), "address")
        if isinstance(queries, list) and not words:
            words = "; ".join(map(self._text, cast("list[object]", queries)))
        if whole and item.get("id"):  # the server wants thoughts back together with what they led to
            short = {"action": {k: v for k, v in action.items() if k != "sources"}} if item.get("action") else {}
            self._state.setdefault("items", []).append({**item, **short})
        for source in self._objects(action.get("sources"), "source"):
            self.cited.add_source(source.get("url"))
        if action.get("url"):
            self.cited.add_source(action.get("url"))
        if words or whole:
            is_page = bool(action.get("url")) or action.get("type") in ("open_page", "find_in_page")
            yield from self._search(item.get("id") or words, words, is_page=is_page)
        if item.get("status") in ("failed", "incomplete"):
            yield from self._say(f"a search of the web failed{': ' if words else ''}{one_line(words, 100)}; it goes on")

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
            case "code_interpreter_call" if whole:
                # It goes back, as the thoughts before it.
                self._state.setdefault("items", []).append(dict(item))
                logs = (self._text(part.get("logs"), "logs") for part in self._objects(item.get("outputs"), "output"))
                yield from self._write_program(self._text(item.get("code"), "code"), "".join(logs))
            case "web_search_call":
                yield from self._read_search(item, whole=whole)
            case "message" if whole:
                self._read_annotations(item)
                yield from self._write_rest(self._list_texts(item.get("content")))
            case _:
                pass

    def _write_rest(self, text: str) -> Iterator[Chunk]:
        """Yield what follows on the text so far, in a text that begins with it."""
        if text.startswith(self._written):
            yield from self._write_part({}, text[len(self._written) :])

    def _read_annotations(self, message: Json) -> None:
        for part in self._objects(message.get("content"), "part") if message.get("type") == "message" else ():
            for annotation in self._objects(part.get("annotations"), "annotation"):
                self._read_annotation(annotation)

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
        messages = [item.get("content") for item in items if item.get("type") == "message"]
        for item in items:
            self._read_annotations(item)
        yield from self._write_rest("".join(map(self._list_texts, messages)))
        status = self._text(response.get("status"), "status") or kind
        if status == "failed":
            raise parse_error_body(200, response.get("error"), "the response failed").error(self._context)
        reason = self._object(response.get("incomplete_details"), "details").get("reason") or "max_output_tokens"
        self._end(reason if status == "incomplete" else status)
