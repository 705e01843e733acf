"""Gemini's own API, for agents that search or run code: its endpoint with OpenAI's protocol has neither.

https://ai.google.dev/gemini-api/docs/google-search and https://ai.google.dev/gemini-api/docs/tool-combination; models
before Gemini 3 take the search only where a request has no other tools and no schema.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from massmem.config.models import BackendConfig
from massmem.core.calls import parse_object
from massmem.core.messages import ChatMessage, ChatRequest, Chunk, clean_text
from massmem.providers.base import encode_data, end_with_user, runs_code, searches_web
from massmem.providers.dialects import read_state
from massmem.providers.failures import ErrorContext
from massmem.providers.normaliser import Json, ReplyReader

_OLD = re.compile(r"gemini-(?:1|2)\b", re.IGNORECASE)
_LEVELS = {"none": "minimal", "xhigh": "high", "max": "high"}


def is_old(model: str) -> bool:
    """Whether the model takes its search without other tools only."""
    return _OLD.search(model) is not None


def is_alone(request: ChatRequest) -> bool:
    """Whether nothing stands beside a search in the request that old models do not take with it."""
    return not request.tools and request.schema is None


def build_gemini_body(request: ChatRequest, backend: BackendConfig, model: str) -> dict[str, Any]:
    """Return the JSON of a request to `streamGenerateContent`."""
    messages = end_with_user(request.messages)
    system = "\n\n".join(clean_text(m.content) for m in messages if m.role == "system" and m.content)
    body: dict[str, Any] = {"contents": _write_contents([m for m in messages if m.role != "system"])}
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    temperature = request.temperature if request.temperature is not None else backend.temperature
    settings: dict[str, Any] = {"temperature": temperature, "maxOutputTokens": request.max_tokens or backend.max_tokens}
    if backend.effort is not None and not is_old(model):
        settings["thinkingConfig"] = {"thinkingLevel": _LEVELS.get(backend.effort, backend.effort)}
    if request.schema is not None and not request.tools:
        settings |= {"responseMimeType": "application/json", "responseJsonSchema": dict(request.schema)}
    if filled := {name: value for name, value in settings.items() if value is not None}:
        body["generationConfig"] = filled
    tools: list[Json] = [{"google_search": {}}] if searches_web(backend, request) else []
    if runs_code(backend, request):  # https://ai.google.dev/gemini-api/docs/code-execution
        tools.append({"code_execution": {}})
    if not is_alone(request) and is_old(model):
        tools = []
    if request.tools:
        mode = {"required": "ANY", "none": "NONE", "auto": "VALIDATED" if tools else "AUTO"}[request.tool_choice]
        config: dict[str, Any] = {"functionCallingConfig": {"mode": mode}}
        if tools:
            config["includeServerSideToolInvocations"] = True
        body["toolConfig"] = config
        functions = [
            {"name": t.name, "description": t.description, "parametersJsonSchema": dict(t.parameters)}
            for t in request.tools
        ]
        tools.append({"functionDeclarations": functions})
    if tools:
        body["tools"] = tools
    return body


def _write_contents(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages as the API wants them: consecutive ones of one role are joined."""
    contents: list[dict[str, Any]] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        role = "model" if message.role == "assistant" else "user"
        if parts := list(_write_parts(message, names)):
            if contents and contents[-1]["role"] == role:
                contents[-1]["parts"] += parts
            else:
                contents.append({"role": role, "parts": parts})
    return contents


def _write_parts(message: ChatMessage, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    text = clean_text(message.content)
    if message.tool_call_id is not None:
        name = names.get(message.tool_call_id, "unknown")
        yield {"functionResponse": {"id": message.tool_call_id, "name": name, "response": {"result": text}}}
        return
    for attachment in message.attachments:
        yield {"inlineData": {"mimeType": attachment.file.media_type, "data": encode_data(attachment)}}
    stored = [part for call in message.tool_calls for part in read_state(call).get("parts", ())]
    if text.strip() and not stored:
        yield {"text": text}
    calls = list(message.tool_calls)
    for part in stored:
        if "functionCall" in part and calls:
            part = {**part, "functionCall": {**part["functionCall"], "id": calls.pop(0).id}}
        yield part
    for call in calls:
        arguments = parse_object(clean_text(call.arguments)) or {}
        yield {"functionCall": {"id": call.id, "name": call.name, "args": dict(arguments)}}


class GeminiReader(ReplyReader):
    """Reads the pieces of a reply, each of which has the form of a whole one."""

    marks: ClassVar[Collection[str]] = ("candidates", "usageMetadata", "promptFeedback")

    def __init__(self, request: ChatRequest, context: ErrorContext) -> None:
        super().__init__(request, context)
        self._pieces: list[str] = []
        """Of the text as it came."""
        self._grounding: Json = {}

    def _read(self, event: Json) -> Iterator[Chunk]:
        self._read_usage(self._object(event.get("usageMetadata"), "usage"))
        if reason := self._object(event.get("promptFeedback"), "feedback").get("blockReason"):
            self._end(f"blocked {reason}")
        for candidate in self._objects(event.get("candidates"), "candidate")[:1]:
            content = self._object(candidate.get("content"), "content")
            for part in self._objects(content.get("parts"), "part"):
                yield from self._read_part(part)
            yield from self._read_grounding(self._object(candidate.get("groundingMetadata"), "grounding"))
            self._end(candidate.get("finishReason"))

    def close(self) -> Iterator[Chunk]:
        self._note_spans()
        yield from super().close()

    def _read_part(self, part: Json) -> Iterator[Chunk]:
        call, search = self._object(part.get("functionCall"), "call"), self._object(part.get("toolCall"), "search")
        text = self._text(part.get("text"))
        program = self._object(part.get("executableCode"), "code")
        printed = self._object(part.get("codeExecutionResult"), "result")
        if call or search or program or printed or part.get("toolResponse") or part.get("thoughtSignature"):
            self._state.setdefault("parts", []).append(dict(part))
        elif text and not part.get("thought"):
            self._state.setdefault("parts", []).append({"text": text})
        if call:
            self._add_call(object(), call.get("id"), call.get("name"), call.get("args") or {})
        if search:
            yield from self._read_queries(self._object(search.get("args"), "arguments").get("queries"))
        if program or printed:
            yield from self._write_program(
                self._text(program.get("code"), "code"), self._text(printed.get("output"), "output")
            )
        if part.get("thought"):
            yield from self._write(text, is_thought=True)
        elif text:
            self._pieces.append(text)
            yield from self._write(text)

    def _read_queries(self, queries: object) -> Iterator[Chunk]:
        for query in cast("list[object]", queries) if isinstance(queries, list) else ():
            if isinstance(query, str) and query.strip():  # empty ones are not billed
                yield from self._search(query, query)

    def _read_grounding(self, grounding: Json) -> Iterator[Chunk]:
        yield from self._read_queries(grounding.get("webSearchQueries"))
        self._grounding = {**self._grounding, **{name: value for name, value in grounding.items() if value}}

    def _note_spans(self) -> None:
        """Note which parts of the text rest on which pages. Their offsets are bytes of UTF-8."""
        data = "".join(self._pieces).encode("utf-8", "replace")
        chunks = self._grounding.get("groundingChunks")
        pages = [self._object(chunk.get("web"), "page") for chunk in self._objects(chunks or [], "chunk")]
        for support in self._objects(self._grounding.get("groundingSupports") or [], "support"):
            segment = self._object(support.get("segment"), "segment")
            start, end = (_count_characters(data, segment.get(name) or 0) for name in ("startIndex", "endIndex"))
            indices: object = support.get("groundingChunkIndices")
            for index in cast("list[object]", indices) if isinstance(indices, list) else ():
                page: Json = pages[index] if isinstance(index, int) and 0 <= index < len(pages) else {}
                if source := self.cited.add_source(page.get("uri"), page.get("title"), is_cited=True):
                    self.cited.add_span(source, start, end)

    def _read_usage(self, usage: Json) -> None:
        """Note the tokens. Those of the pages that were read count as sent, thoughts as written."""
        names = (("promptTokenCount", "toolUsePromptTokenCount"), ("candidatesTokenCount", "thoughtsTokenCount"))
        sums = [sum(n for name in group if isinstance(n := usage.get(name), int)) for group in names]
        counts = dict(zip(("prompt_tokens", "completion_tokens"), sums, strict=True))
        counts |= {"reasoning_tokens": usage.get("thoughtsTokenCount")}
        self._add_counts({**counts, "cached_tokens": usage.get("cachedContentTokenCount")})


def _count_characters(data: bytes, offset: object) -> int | None:
    """Return how many characters stand before an offset in bytes of UTF-8; None: it is none."""
    if not isinstance(offset, int) or not 0 <= offset <= len(data):
        return None
    return len(data[:offset].decode("utf-8", "ignore"))
