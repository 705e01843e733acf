"""Anthropic's Messages: its own API, and Claude on Amazon Bedrock and on Google's Vertex AI."""

import asyncio
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from typing import Any, ClassVar

import httpx2

from massmem.config.models import EFFORT_BUDGETS, BackendConfig
from massmem.config.web_search import WebSearchConfig
from massmem.core.calls import parse_object
from massmem.core.messages import PDF, Attachment, ChatMessage, ChatRequest, Chunk, clean_text
from massmem.providers.base import (
    GO_ON,
    ChatProvider,
    encode_data,
    portable_schema,
    read_count,
    runs_code,
    searches_web,
    write_location,
    writes_for_people,
)
from massmem.providers.clients import HTTP_ERRORS, read_headers
from massmem.providers.dialects import read_state
from massmem.providers.endpoints import Endpoint
from massmem.providers.failures import ErrorContext, Refusal
from massmem.providers.http import ApiFactory, ApiProvider
from massmem.providers.marks import Source
from massmem.providers.normaliser import Json, ReplyReader

log = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 16_000
"""The API insists on a limit. A council's answers are much shorter, but the newest models think before all of them."""

_VERSION = "2026-10-21"
"""Of the API, as the official SDK asks for it."""
_COUNT_TIMEOUT = 5.0
"""Seconds."""
_MAX_PAUSES = 10
"""Times that one reply is asked to go on with its searches."""


class AnthropicProvider(ApiProvider):
    async def count_prompt(self, request: ChatRequest) -> int | None:
        """Ask the count endpoint, which is free of charge. The SDK has none for Bedrock, and says so."""
        body = self._body(self._adapt(request))
        del body["max_tokens"], body["stream"]
        try:
            async with asyncio.timeout(min(self._backend.timeout, _COUNT_TIMEOUT)):
                reply = await self._client.post("/v1/messages/count_tokens", body, _COUNT_TIMEOUT)
                async with aclosing(reply):
                    counted = parse_object((await reply.aread()).decode())
        except tuple(HTTP_ERRORS) as e:
            log.info("the tokens of a prompt could not be counted: %s", type(e).__name__)
            return None
        return read_count((counted or {}).get("input_tokens"))

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        refusals = self._learnt.find_refusals(self._endpoint)
        return request_body(request, self._backend, self._endpoint.model, refusals)

    def _list_refusable(self, body: Mapping[str, Any]) -> Mapping[Refusal, bool]:
        output = body.get("output_config", {})
        return {
            "adaptive_thinking": body.get("thinking", {}).get("type") == "adaptive",
            "effort": "effort" in output,
            "schema": "format" in output,
            "cache_control": any("cache_control" in block for block in body.get("system", ())),
        }

    async def _send(self, body: Mapping[str, Any]) -> httpx2.Response:
        return await self._client.post("/v1/messages", body, self._backend.timeout)

    def _reader(self, request: ChatRequest, body: Mapping[str, Any]) -> "MessageReader":
        reader = MessageReader(request, self._context)
        reader.is_searching = searches_web(self._backend, request) or runs_code(self._backend, request)
        if searches_web(self._backend, request) and writes_for_people(request):
            reader.cited.form = "parts"
        return reader

    def _go_on(self, reader: ReplyReader, body: dict[str, Any]) -> dict[str, Any] | None:
        """Hand back what the model has so far, when the server wants to be asked to go on with its searches:
        https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons."""
        blocks = reader.take_blocks() if isinstance(reader, MessageReader) else None
        if not blocks:
            return None
        return {**body, "messages": [*body["messages"], {"role": "assistant", "content": blocks}]}


class AnthropicFactory(ApiFactory):
    provider = AnthropicProvider

    def _write_headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        more = read_headers({}, "ANTHROPIC_CUSTOM_HEADERS") if endpoint.takes_environment else {}
        return {"authorization": f"Bearer {endpoint.key}", "anthropic-version": _VERSION, **more}

    def open(self, backend: BackendConfig) -> ChatProvider:
        if backend.temperature is not None:
            log.warning("backend.temperature is not used: Anthropic's API no longer has it")
        return super().open(backend)


def request_body(
    request: ChatRequest, backend: BackendConfig, model: str, refusals: Collection[Refusal] = ()
) -> dict[str, Any]:
    """Return the JSON of a request. This version of the API has no temperature.

    No tool call is forced: the newest models refuse it, none takes it with thinking, and another choice than that of
    the answer would keep the messages of a vote out of the cache. Thinking counts towards max_tokens.
    """
    thinking = _choose_thinking(request, backend, refusals)
    max_tokens = request.max_tokens or backend.max_tokens or DEFAULT_MAX_TOKENS
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens + (_budget(backend) if thinking else 0),
        "messages": _conversation([m for m in request.messages if m.role != "system"]),
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
    if backend.web_search is not None and searches_web(backend, request):
        body["tools"] = [*body.get("tools", ()), *_write_search(backend.web_search)]
    if runs_code(backend, request):
        # https://platform.claude.com/docs/en/agents-and-tools/tool-use/code-execution-tool
        body["tools"] = [*body.get("tools", ()), {"type": "code_execution_20250825", "name": "code_execution"}]
    if output := _write_output(request, backend, refusals):
        body["output_config"] = output
    if "cache_control" not in refusals:
        heads = (clean_text(m.content[: m.head]) for m in reversed(request.messages) if m.head)
        _mark_for_cache(body, next(heads, ""))
    return body


_MAX_PAGE = 20_000
"""Tokens of a page that the model opens; each costs as one that is sent."""


def _write_search(search: WebSearchConfig) -> list[dict[str, Any]]:
    """Return the tools that search the web and open pages, in the versions that every model has and that run no code:
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool, and web-fetch-tool beside it."""
    lists = {"allowed_domains": search.allowed_domains, "blocked_domains": search.blocked_domains}
    options: dict[str, Any] = {name: list(names) for name, names in lists.items() if names}
    if search.max_uses is not None:
        options["max_uses"] = search.max_uses
    place = {} if search.location is None else {"user_location": write_location(search.location)}
    fetch = {"citations": {"enabled": True}, "max_content_tokens": _MAX_PAGE}
    return [
        {"type": "web_search_20250305", "name": "web_search", **options, **place},
        {"type": "web_fetch_20250910", "name": "web_fetch", **options, **fetch},
    ]


def _choose_thinking(
    request: ChatRequest, backend: BackendConfig, refusals: Collection[Refusal]
) -> dict[str, Any] | None:
    """Return how the model is to think: as it sees fit, or, when it is too old for that, with a budget."""
    if backend.usual_effort in (None, "none"):
        return None
    if "adaptive_thinking" not in refusals:
        return {"type": "adaptive", "display": "summarized"}
    # With a budget, thinking must go back with the calls that it led to.
    missing = any(m.tool_calls and not m.tool_calls[0].state for m in request.messages)
    return None if missing else {"type": "enabled", "budget_tokens": _budget(backend)}


def _write_output(request: ChatRequest, backend: BackendConfig, refusals: Collection[Refusal]) -> dict[str, Any]:
    """Return the form of the output: the effort that goes into it, and its schema."""
    output: dict[str, Any] = {}
    effort = backend.usual_effort
    if effort is not None and not {"adaptive_thinking", "effort"} & set(refusals):
        output["effort"] = "low" if effort in ("none", "minimal") else effort
    if request.schema is not None and not request.tools and "schema" not in refusals:
        output["format"] = {"type": "json_schema", "schema": portable_schema(request.schema)}
    return output


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


def _conversation(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages as the API wants them.

    The user begins and ends, consecutive messages of one role are joined, and empty texts are left out.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if blocks and out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    if not out or out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": _blocks(GO_ON)})
    if out[-1]["role"] == "assistant":
        out.append({"role": "user", "content": _blocks(GO_ON)})
    return out


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    text = clean_text(message.content)
    if message.tool_call_id is not None:
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": text}]
    head, rest = text[: message.head], text[message.head :].lstrip("\n")
    texts = (head, rest) if head.strip() and rest else (text,)
    thoughts = [block for call in message.tool_calls for block in read_state(call).get("blocks", ())]
    # Beside searches the text is in its place among them, with what the server wants back of it.
    has_text = any(block.get("type") == "text" for block in thoughts)
    text_blocks = [{"type": "text", "text": part} for part in texts if part.strip() and not has_text]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in message.tool_calls
    ]
    return [*thoughts, *map(_file_block, message.attachments), *text_blocks, *calls]


def _file_block(attachment: Attachment) -> dict[str, Any]:
    file = attachment.file
    source = {"type": "base64", "media_type": file.media_type, "data": encode_data(attachment)}
    if file.media_type == PDF:
        return {"type": "document", "source": source, "title": file.name}
    return {"type": "image", "source": source}


class MessageReader(ReplyReader):
    """Reads the events of a message, or one whole message."""

    marks: ClassVar[Collection[str]] = ("type",)

    def __init__(self, request: ChatRequest, context: ErrorContext) -> None:
        super().__init__(request, context)
        self.is_searching = False
        """The server may search or run code: all blocks go back with calls, and when it pauses."""
        self._blocks = 0
        self._content: list[dict[str, Any]] = []
        """The blocks so far, as they go back."""
        self._input = ""
        """JSON of the search that is being written."""
        self._start = 0
        """Where the part of the text begins that is being written."""
        self._titles: dict[str, str] = {}
        """Addresses of the pages that were opened, by their titles."""
        self._is_paused = False
        self._pauses = 0
        self._earlier: dict[str, int] = {}
        """Tokens of requests before a pause."""

    def take_blocks(self) -> list[dict[str, Any]] | None:
        """Return what the server wants back to go on; None: it does not pause."""
        if not self._is_paused:
            return None
        self._is_paused = False
        self._pauses += 1
        for name, count in self._counts.items():
            self._earlier[name] = self._earlier.get(name, 0) + count
        self._counts = {}
        return self._list_blocks()

    def close(self) -> Iterator[Chunk]:
        for name, count in self._earlier.items():
            self._counts[name] = self._counts.get(name, 0) + count
        self.requests += self._pauses
        if any("tool_result" in str(block.get("type")) for block in self._content):
            self._state["blocks"] = [block for block in self._list_blocks() if block.get("type") != "tool_use"]
        yield from super().close()

    def _list_blocks(self) -> list[dict[str, Any]]:
        """Return the blocks as they may go back: the server refuses empty texts."""
        return [block for block in self._content if block.get("type") != "text" or str(block.get("text") or "").strip()]

    def _read(self, event: Json) -> Iterator[Chunk]:
        match event.get("type"):
            case "message_start":
                self._add_counts(self._object(event.get("message"), "message").get("usage"))
            case "content_block_start":
                yield from self._open_block(self._object(event.get("content_block"), "block"), event.get("index"))
            case "content_block_delta":
                yield from self._read_delta(self._object(event.get("delta"), "delta"), event.get("index"))
            case "content_block_stop":
                yield from self._end_block()
            case "message_delta":
                self._add_counts(event.get("usage"))
                self._read_end(self._object(event.get("delta"), "delta"))
            case "message":
                for place, block in enumerate(self._objects(event.get("content"), "block")):
                    yield from self._open_block(block, place)
                    yield from self._end_block()
                self._add_counts(event.get("usage"))
                self._read_end(event)
            case _:
                pass

    def _open_block(self, block: Json, index: object) -> Iterator[Chunk]:
        self._blocks += 1
        self._start = self.cited.length
        if self.is_searching:
            self._content.append(deepcopy(dict(block)))
        match block.get("type"):
            case "tool_use":
                place = self._find_place(index, f"block {self._blocks}")
                self._add_call(place, block.get("id"), block.get("name"), block.get("input") or None)
            case "thinking" | "redacted_thinking":
                self._state.setdefault("blocks", []).append(dict(block))
                yield from self._write(self._text(block.get("thinking"), "thinking"), is_thought=True)
            case "text":
                yield from self._write(self._text(block.get("text")))
            case "bash_code_execution_tool_result" | "code_execution_tool_result":
                printed = self._object(block.get("content"), "result")
                texts = (self._text(printed.get(name), name) for name in ("stdout", "stderr", "error_code"))
                yield from self._write_program("", "\n".join(filter(None, texts)))
            case "web_search_tool_result" | "web_fetch_tool_result":
                yield from self._read_result(block)
            case _:
                pass

    def _read_delta(self, delta: Json, index: object) -> Iterator[Chunk]:
        match delta.get("type"):
            case "text_delta":
                text = self._text(delta.get("text"))
                self._extend_content("text", text)
                yield from self._write(text)
            case "thinking_delta":
                text = self._text(delta.get("thinking"), "thinking")
                self._extend_thought("thinking", text)
                yield from self._write(text, is_thought=True)
            case "signature_delta":
                self._extend_thought("signature", self._text(delta.get("signature"), "signature"))
            case "input_json_delta" if self._last.get("type") == "server_tool_use":
                self._input += self._text(delta.get("partial_json"), "input")
            case "input_json_delta":
                self._add_call(self._find_place(index), "", "", delta.get("partial_json"))
            case "citations_delta" if self._last:
                self._last["citations"] = [*(self._last.get("citations") or ()), delta.get("citation")]
            case _:
                pass

    @property
    def _last(self) -> dict[str, Any]:
        return self._content[-1] if self._content else {}

    def _extend_content(self, name: str, text: str) -> None:
        if self._content:
            self._last[name] = self._text(self._last.get(name), name) + text

    def _extend_thought(self, name: str, text: str) -> None:
        self._extend_content(name, text)
        if thoughts := self._state.get("blocks"):
            thoughts[-1][name] = self._text(thoughts[-1].get(name), name) + text

    def _end_block(self) -> Iterator[Chunk]:
        block = self._last
        match block.get("type"):
            case "server_tool_use":
                query = parse_object(self._input) or block.get("input") or {}
                self._input, block["input"] = "", dict(query)
                if "code_execution" in str(block.get("name")):
                    yield from self._write_program(self._text(query.get("command") or query.get("code"), "code"), "")
                    return
                words = self._text(query.get("query"), "query") or self._text(query.get("url"), "address")
                yield from self._search(block.get("id"), words, is_page=block.get("name") != "web_search")
            case "text":
                cited = [self._read_citation(entry) for entry in self._objects(block.get("citations"), "citation")]
                for piece in self.cited.end_part(self._start, [c for c in cited if c is not None]):
                    yield from self._write_piece(piece, is_thought=False)
            case _:
                pass

    def _read_citation(self, citation: Json) -> tuple[Source, str] | None:
        """Return the source of a part of the text and what it says; None: it is no page of the web."""
        url, quote = citation.get("url"), self._text(citation.get("cited_text"), "quote")
        title = self._text(citation.get("title") or citation.get("document_title"), "title")
        if citation.get("type") in ("char_location", "page_location", "content_block_location"):
            url = self._titles.get(title)
            if url is None:
                return None
        elif citation.get("type") != "web_search_result_location":
            return None
        source = self.cited.add_source(url, title, is_cited=True)
        return None if source is None else (source, quote)

    def _read_result(self, block: Json) -> Iterator[Chunk]:
        """Note the pages that were found or opened."""
        content = block.get("content")
        for entry in self._objects(content, "result"):
            code = entry.get("error_code")
            if code == "max_uses_exceeded":
                yield from self._say("it has made all searches that max_uses allows, and goes on without more")
            elif code is not None:
                what = "page could not be opened" if "fetch" in str(block.get("type")) else "search of the web failed"
                yield from self._say(f"a {what} ({self._text(code, 'code')}); it goes on")
            elif url := entry.get("url"):
                document = self._object(entry.get("content"), "document")
                title = self._text(entry.get("title") or document.get("title"), "title")
                self.cited.add_source(url, title)
                if document:
                    self._titles[title] = self._text(url, "address")

    def _read_end(self, fields: Json) -> None:
        if self.is_searching and fields.get("stop_reason") == "pause_turn" and self._pauses < _MAX_PAUSES:
            self._is_paused = True
            return
        self._end(fields.get("stop_reason"))
        self._why = self._text(self._object(fields.get("stop_details"), "details").get("explanation")) or self._why
