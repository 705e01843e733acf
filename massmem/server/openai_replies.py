"""Answers in the form of OpenAI's API, as the OpenAPI description has them: one JSON object, or server-sent events.

Both are made of an answer as it comes: progress of the council, words of the answer, and its end.
"""

import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from sse_starlette import ServerSentEvent
from starlette.exceptions import HTTPException

from massmem.core import events as ev
from massmem.core.citations import find_marks
from massmem.core.errors import MassmemError
from massmem.core.messages import Citation, Usage
from massmem.core.outcome import TurnEnd
from massmem.core.turn_result import TurnResult
from massmem.render.text import describe_event, pluralize
from massmem.render.turn_view import TurnView
from massmem.server.errors import Rejected, make_openai_problem
from massmem.server.responses import Stream, get_text, hide_internals, require_answer
from massmem.server.schemas import Body
from massmem.server.turns import NumberedEvent

log = logging.getLogger(__name__)

_ID = "chatcmpl-0c4a5b"
_MODEL = "massmem/default"


class ModelEntry(Body):
    id: Annotated[str, Field(examples=[_MODEL])]
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "massmem"


class ModelList(Body):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


class PromptDetails(Body):
    cached_tokens: int


class CompletionDetails(Body):
    reasoning_tokens: int


class ChatUsage(Body):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class UrlCitation(Body):
    url: str
    title: str
    start_index: int
    """Where its number begins in the text."""
    end_index: int


class Annotation(Body):
    type: Literal["url_citation"] = "url_citation"
    url_citation: UrlCitation


class ChatReply(Body):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    reasoning_content: str | None = None
    annotations: list[Annotation] = Field(default_factory=list[Annotation])


class ChatChoice(Body):
    index: Literal[0] = 0
    message: ChatReply
    logprobs: None = None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Body):
    id: Annotated[str, Field(examples=[_ID])]
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: Annotated[str, Field(examples=[_MODEL])]
    choices: list[ChatChoice]
    usage: ChatUsage
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    """What the turn came to, as far as these fields are known."""


class InputDetails(Body):
    cached_tokens: int
    cache_write_tokens: int = 0


class ResponseUsage(Body):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: CompletionDetails
    total_tokens: int


class SummaryText(Body):
    type: Literal["summary_text"] = "summary_text"
    text: str


class ReasoningItem(Body):
    id: str
    type: Literal["reasoning"] = "reasoning"
    summary: list[SummaryText]
    status: Literal["in_progress", "completed"] = "completed"


class TextAnnotation(UrlCitation):
    type: Literal["url_citation"] = "url_citation"


class OutputText(Body):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[TextAnnotation] = Field(default_factory=list[TextAnnotation])
    logprobs: list[Any] = Field(default_factory=list[Any])


class MessageItem(Body):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    content: list[OutputText]


class IncompleteDetails(Body):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Response(Body):
    id: str
    """Of this answer; `previous_response_id` goes on with its conversation."""
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    error: None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    model: Annotated[str, Field(examples=[_MODEL])]
    output: list[ReasoningItem | MessageItem]
    parallel_tool_calls: bool = False
    previous_response_id: str | None = None
    tool_choice: Literal["none"] = "none"
    tools: list[Any] = Field(default_factory=list[Any])
    temperature: float | None = None
    top_p: float | None = None
    usage: ResponseUsage | None = None


_BYTES_PER_TOKEN = 4
"""As massmem.memory.tokens estimates."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A piece of what the council does, or of what a model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer is complete."""

    reason: Literal["stop", "length"]
    usage: Usage
    citations: tuple[Citation, ...] = ()
    """Sources: `[n]` in the text names the n-th."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What OpenAI's fields have no place for."""


Piece = Progress | Words | Finish
Pieces = AsyncGenerator[Piece, None]


async def read_turn(events: AsyncGenerator[NumberedEvent, None], *, live: bool, alone: bool) -> Pieces:
    """Yield a turn as pieces. Raise as `wait_for_outcome`, and what ended the turn.

    live: the final answer is sent while it is written. alone: the team's only agent, which has no tools, writes it in
    its first step.
    """
    reader = _TurnReader(live, alone)
    async with aclosing(events):
        async for _, event in events:
            for piece in reader.feed(event):
                yield piece
    for piece in reader.end():
        yield piece


async def limit_words(pieces: Pieces, stops: Sequence[str], max_tokens: int | None) -> Pieces:
    """Yield the pieces with an answer that ends before any of `stops`, and has `max_tokens` (estimated) at most."""
    hold = max((len(stop) for stop in stops), default=1) - 1
    held, room = "", None if max_tokens is None else max_tokens * _BYTES_PER_TOKEN
    reason: Literal["stop", "length"] | None = None
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Progress):
                yield piece
                continue
            is_last = isinstance(piece, Finish)
            held += "" if is_last else piece.text
            # The stop that is complete first, as if the answer came one character after the other.
            cuts = [(start + len(stop), start) for stop in stops if (start := held.find(stop)) >= 0]
            ready = min(cuts)[1] if cuts else len(held) if is_last else max(len(held) - hold, 0)
            text, held = held[:ready], held[ready:]
            if reason is None and text:
                cut = text if room is None else text.encode()[:room].decode(errors="ignore")
                room = None if room is None else room - len(cut.encode())
                reason = None if cut == text else "length"
                if cut:
                    yield Words(cut)
            if cuts:
                reason, held = reason or "stop", ""
            if is_last:
                yield replace(piece, reason=reason or piece.reason)


class _TurnReader:
    def __init__(self, live: bool, alone: bool) -> None:
        self._end: ev.Event | None = None
        self._view = TurnView()
        self._live = live
        self._alone = alone
        self._writer = ""
        """The agent that writes the final answer now."""
        self._sent = ""
        self._is_void = False
        """The attempt failed whose words were sent."""

    def feed(self, event: ev.Event) -> list[Piece]:
        public = hide_internals(event)
        if public is not None:
            self._view.feed(public)
        self._end = event if isinstance(event, TurnEnd) else None
        match event:
            case ev.WebSearched() | ev.AnswerSubmitted(citations=(_, *_)) if not self._sent:
                # The final answer gets the numbers of its sources when it is whole.
                self._live, self._writer = False, ""
            case ev.AgentStarted(agent_id=agent_id, step=step) if self._live:
                is_final = step == "present" or (self._alone and step == "answer")
                self._writer = agent_id if is_final else ""
            case ev.AgentRetrying(agent_id=self._writer) if self._sent:
                self._live, self._writer, self._is_void = False, "", True
            case ev.AgentDelta(agent_id=self._writer, channel="text", text=text) if self._writer:
                return self._send(text)
            case _:
                pass
        line = None if public is None or self._sent or isinstance(event, ev.TurnCompleted) else self._describe(public)
        return [] if line is None else [Progress(f"{line}\n")]

    def end(self) -> list[Piece]:
        require_answer(self._end)
        result = self._view.result
        answer, reason = get_text(result), "length" if result.truncated else "stop"
        finish = Finish(reason, result.usage, result.citations, build_metadata(result))
        sent = self._sent.rstrip()
        if answer.startswith(self._sent):
            rest = answer[len(self._sent) :]
        elif answer.startswith(sent):
            rest = ""
        elif self._is_void:  # no client takes words back
            raise Rejected(503, "what was sent of the answer does not count: its attempt failed; ask again")
        else:  # they were what a model thinks, which marks only the end of that
            rest = f"\n\n{answer}"
        return [Words(rest), finish] if rest else [finish]

    def _send(self, text: str) -> list[Piece]:
        if not self._sent:
            text = text.lstrip()
            if self._alone and text.startswith("{"):  # it may be a question to the user, as JSON
                self._live, self._writer = False, ""
                return []
        self._sent += text
        return [Words(text)] if text else []

    def _describe(self, event: ev.Event) -> str | None:
        if isinstance(event, ev.TurnStarted | ev.TurnResumed):  # without the id of the session
            return f"turn {event.turn}, {pluralize(len(event.agents), 'agent')}"
        return describe_event(event, self._view)


_METADATA = (
    "turn", "status", "winner", "decided_by", "agreement", "confidence", "verdict", "measured_confidence", "fallback",
    "truncated", "work_cut", "limit",
)  # fmt: skip
_MAX_METADATA = 512
"""Characters of a value, as OpenAI's API has it."""


def build_metadata(result: TurnResult) -> dict[str, str]:
    """Return what OpenAI's fields have no place for: fields of the result that say something, JSON where no text."""
    fields = result.model_dump(mode="json", include=set(_METADATA), exclude_defaults=True)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return {name: text[:_MAX_METADATA] for name, text in texts.items() if text != "null"}


@dataclass(slots=True)
class OpenAIAnswer:
    id: str
    model: str
    session_id: str = ""
    """As its user knows it; empty: it is in no session."""
    previous: str | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    progress: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])
    finish: Finish | None = None

    @property
    def text(self) -> str:
        return "".join(self.words)

    def feed(self, piece: Piece) -> None:
        match piece:
            case Progress(text):
                self.progress.append(text)
            case Words(text):
                self.words.append(text)
            case Finish():
                self.finish = piece


async def collect(answer: OpenAIAnswer, pieces: Pieces) -> OpenAIAnswer:
    async with aclosing(pieces):
        async for piece in pieces:
            answer.feed(piece)
    return answer


def make_completion(answer: OpenAIAnswer) -> ChatCompletion:
    assert answer.finish is not None
    progress = "".join(answer.progress) or None
    annotations = [Annotation(url_citation=citation) for citation in _annotate(answer)]
    message = ChatReply(content=answer.text, reasoning_content=progress, annotations=annotations)
    choice = ChatChoice(message=message, finish_reason=answer.finish.reason)
    usage = _chat_usage(answer.finish.usage)
    return ChatCompletion(
        id=answer.id,
        created=answer.created,
        model=answer.model,
        choices=[choice],
        usage=usage,
        metadata=dict(answer.finish.metadata),
    )


async def stream_completion(answer: OpenAIAnswer, pieces: Pieces, *, usage: bool) -> Stream:
    """Yield the answer in chunks. usage: with its tokens in the last one."""

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> ServerSentEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        metadata = {"metadata": dict(answer.finish.metadata)} if answer.finish and answer.finish.metadata else {}
        return _chat_chunk(answer, [choice], metadata | ({"usage": None} if usage else {}))

    try:
        yield chunk({"role": "assistant", "content": ""})
        async with aclosing(pieces):
            async for piece in pieces:
                answer.feed(piece)
                match piece:
                    case Progress(text):
                        yield chunk({"reasoning_content": text})
                    case Words(text):
                        yield chunk({"content": text})
                    case Finish(reason=reason):
                        annotations = [Annotation(url_citation=c).model_dump() for c in _annotate(answer)]
                        yield chunk({"annotations": annotations} if annotations else {}, reason)
                        if usage:
                            yield _chat_chunk(answer, [], {"usage": _chat_usage(piece.usage).model_dump()})
        yield ServerSentEvent("[DONE]", sep="\n")
    except (MassmemError, HTTPException) as e:
        yield ServerSentEvent(_describe_error(e), sep="\n")


def make_response(answer: OpenAIAnswer) -> Response:
    finish = answer.finish
    cut = finish is not None and finish.reason == "length"
    status = "in_progress" if finish is None else "incomplete" if cut else "completed"
    return Response(
        id=answer.id,
        created_at=answer.created,
        status=status,
        incomplete_details=IncompleteDetails() if cut else None,
        metadata=({"session_id": answer.session_id} if answer.session_id else {})
        | dict({} if finish is None else finish.metadata),
        model=answer.model,
        output=[] if finish is None else [*_reasoning_items(answer), _message_item(answer)],
        previous_response_id=answer.previous,
        usage=None if finish is None else _response_usage(finish.usage),
    )


async def stream_response_events(answer: OpenAIAnswer, pieces: Pieces) -> Stream:
    encoder = _ResponseEncoder(answer)
    try:
        for event in encoder.start():
            yield event
        async with aclosing(pieces):
            async for piece in pieces:
                for event in encoder.encode(piece):
                    yield event
    except (MassmemError, HTTPException) as e:
        error = json.loads(_describe_error(e))["error"]
        fields = {"code": error["code"], "message": error["message"], "param": error["param"]}
        yield encoder.event("error", **fields)


class _ResponseEncoder:
    def __init__(self, answer: OpenAIAnswer) -> None:
        self._answer = answer
        self._number = -1
        self._in_message = False

    def event(self, kind: str, **fields: Any) -> ServerSentEvent:
        self._number += 1
        data = {"type": kind, "sequence_number": self._number, **fields}
        return ServerSentEvent(json.dumps(data), event=kind, sep="\n")

    def start(self) -> list[ServerSentEvent]:
        response = make_response(self._answer).model_dump()
        return [self.event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def encode(self, piece: Piece) -> list[ServerSentEvent]:
        answer, events = self._answer, list[ServerSentEvent]()
        match piece:
            case Progress() if self._in_message:
                return []
            case Progress(text):
                if not answer.progress:
                    item = ReasoningItem(id=_reasoning_id(answer), summary=[], status="in_progress").model_dump()
                    part = {"type": "summary_text", "text": ""}
                    events.append(self.event("response.output_item.added", output_index=0, item=item))
                    events.append(self._of_summary("response.reasoning_summary_part.added", part=part))
                events.append(self._of_summary("response.reasoning_summary_text.delta", delta=text))
            case Words(text):
                events += self._open_message()
                events.append(self._of_text("response.output_text.delta", delta=text, logprobs=[]))
            case Finish():
                events += self._open_message()
        answer.feed(piece)
        if answer.finish is not None:
            events += self._close_message()
            kind = "response.incomplete" if answer.finish.reason == "length" else "response.completed"
            events.append(self.event(kind, response=make_response(answer).model_dump()))
        return events

    def _open_message(self) -> list[ServerSentEvent]:
        if self._in_message:
            return []
        self._in_message, events = True, list[ServerSentEvent]()
        for item in _reasoning_items(self._answer):
            text = item.summary[0].text
            part = {"type": "summary_text", "text": text}
            events += [
                self._of_summary("response.reasoning_summary_text.done", text=text),
                self._of_summary("response.reasoning_summary_part.done", part=part),
                self.event("response.output_item.done", output_index=0, item=item.model_dump()),
            ]
        empty = MessageItem(id=_message_id(self._answer), status="in_progress", content=[]).model_dump()
        part = OutputText(text="").model_dump()
        return [
            *events,
            self.event("response.output_item.added", output_index=self._index, item=empty),
            self._of_text("response.content_part.added", part=part),
        ]

    def _close_message(self) -> list[ServerSentEvent]:
        item = _message_item(self._answer)
        annotations = [
            self._of_text(
                "response.output_text.annotation.added", annotation_index=i, annotation=annotation.model_dump()
            )
            for i, annotation in enumerate(item.content[0].annotations)
        ]
        return [
            *annotations,
            self._of_text("response.output_text.done", text=self._answer.text, logprobs=[]),
            self._of_text("response.content_part.done", part=item.content[0].model_dump()),
            self.event("response.output_item.done", output_index=self._index, item=item.model_dump()),
        ]

    @property
    def _index(self) -> int:
        return 1 if self._answer.progress else 0

    def _of_summary(self, kind: str, **fields: Any) -> ServerSentEvent:
        return self.event(kind, item_id=_reasoning_id(self._answer), output_index=0, summary_index=0, **fields)

    def _of_text(self, kind: str, **fields: Any) -> ServerSentEvent:
        index = self._index
        return self.event(kind, item_id=_message_id(self._answer), output_index=index, content_index=0, **fields)


def _chat_chunk(answer: OpenAIAnswer, choices: list[dict[str, Any]], more: Mapping[str, Any]) -> ServerSentEvent:
    data = {
        "id": answer.id,
        "object": "chat.completion.chunk",
        "created": answer.created,
        "model": answer.model,
        "choices": choices,
        **more,
    }
    return ServerSentEvent(json.dumps(data), sep="\n")


def _describe_error(error: Exception) -> str:
    match error:
        case Rejected():
            problem = make_openai_problem(error.status, error.message, error.param, error.code)
        case HTTPException():
            problem = make_openai_problem(error.status_code, error.detail)
        case _:
            log.error("an answer broke off: %s", type(error).__name__)
            problem = make_openai_problem(503, "the service cannot answer now")
    return problem.model_dump_json()


def _reasoning_id(answer: OpenAIAnswer) -> str:
    return f"rs_{answer.id}"


def _message_id(answer: OpenAIAnswer) -> str:
    return f"msg_{answer.id}"


def _reasoning_items(answer: OpenAIAnswer) -> list[ReasoningItem]:
    if not answer.progress:
        return []
    summary = [SummaryText(text="".join(answer.progress))]
    return [ReasoningItem(id=_reasoning_id(answer), summary=summary)]


def _message_item(answer: OpenAIAnswer) -> MessageItem:
    cut = answer.finish is not None and answer.finish.reason == "length"
    annotations = [TextAnnotation(**citation.model_dump()) for citation in _annotate(answer)]
    content = [OutputText(text=answer.text, annotations=annotations)]
    return MessageItem(id=_message_id(answer), status="incomplete" if cut else "completed", content=content)


def _annotate(answer: OpenAIAnswer) -> list[UrlCitation]:
    """Return a citation for each number in the text, and one at its end for each source that no number names."""
    citations, text = () if answer.finish is None else answer.finish.citations, answer.text
    marks = find_marks(text, citations)
    named = {source.url for _, _, source in marks}
    marks += [(len(text), len(text), source) for source in citations if source.url not in named]
    return [
        UrlCitation(url=source.url, title=source.title, start_index=start, end_index=end)
        for start, end, source in marks
    ]


def _chat_usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cached),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning),
    )


def _response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt,
        input_tokens_details=InputDetails(cached_tokens=usage.cached, cache_write_tokens=usage.cache_written),
        output_tokens=usage.completion,
        output_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning),
        total_tokens=usage.prompt + usage.completion,
    )
