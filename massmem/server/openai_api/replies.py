"""Answers in the form of OpenAI's API, as the OpenAPI description has them: one JSON object, or server-sent events."""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field
from sse_starlette import ServerSentEvent
from starlette.exceptions import HTTPException

from massmem.core.errors import MassmemError
from massmem.core.messages import Usage
from massmem.server.errors import Refused, make_openai_problem
from massmem.server.openai_api.pieces import Finish, Pieces, Progress, Words
from massmem.server.responses import Stream
from massmem.server.schemas import Body

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


class ChatReply(Body):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    reasoning_content: str | None = None


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


class OutputText(Body):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list[Any])
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


@dataclass(slots=True)
class Answer:
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

    def feed(self, piece: Progress | Words | Finish) -> None:
        match piece:
            case Progress(text):
                self.progress.append(text)
            case Words(text):
                self.words.append(text)
            case Finish():
                self.finish = piece


async def collect(answer: Answer, pieces: Pieces) -> Answer:
    async with aclosing(pieces):
        async for piece in pieces:
            answer.feed(piece)
    return answer


def make_completion(answer: Answer) -> ChatCompletion:
    assert answer.finish is not None
    progress = "".join(answer.progress) or None
    message = ChatReply(content=answer.text, reasoning_content=progress)
    choice = ChatChoice(message=message, finish_reason=answer.finish.reason)
    usage = _chat_usage(answer.finish.usage)
    return ChatCompletion(id=answer.id, created=answer.created, model=answer.model, choices=[choice], usage=usage)


async def stream_completion(answer: Answer, pieces: Pieces, *, usage: bool) -> Stream:
    """Yield the answer in chunks. usage: with its tokens in the last one."""

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> ServerSentEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _chat_chunk(answer, [choice], {"usage": None} if usage else {})

    try:
        yield chunk({"role": "assistant", "content": ""})
        async with aclosing(pieces):
            async for piece in pieces:
                match piece:
                    case Progress(text):
                        yield chunk({"reasoning_content": text})
                    case Words(text):
                        yield chunk({"content": text})
                    case Finish(reason=reason):
                        yield chunk({}, reason)
                        if usage:
                            yield _chat_chunk(answer, [], {"usage": _chat_usage(piece.usage).model_dump()})
        yield ServerSentEvent("[DONE]", sep="\n")
    except (MassmemError, HTTPException) as e:
        yield ServerSentEvent(_describe_error(e), sep="\n")


def make_response(answer: Answer) -> Response:
    finish = answer.finish
    cut = finish is not None and finish.reason == "length"
    status = "in_progress" if finish is None else "incomplete" if cut else "completed"
    return Response(
        id=answer.id,
        created_at=answer.created,
        status=status,
        incomplete_details=IncompleteDetails() if cut else None,
        metadata={"session_id": answer.session_id} if answer.session_id else {},
        model=answer.model,
        output=[] if finish is None else [*_reasoning_items(answer), _message_item(answer)],
        previous_response_id=answer.previous,
        usage=None if finish is None else _response_usage(finish.usage),
    )


async def stream_response_events(answer: Answer, pieces: Pieces) -> Stream:
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
    def __init__(self, answer: Answer) -> None:
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

    def encode(self, piece: Progress | Words | Finish) -> list[ServerSentEvent]:
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
        return [
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


def _chat_chunk(answer: Answer, choices: list[dict[str, Any]], more: Mapping[str, Any]) -> ServerSentEvent:
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
        case Refused():
            problem = make_openai_problem(error.status, error.message, error.param, error.code)
        case HTTPException():
            problem = make_openai_problem(error.status_code, error.detail)
        case _:
            log.error("an answer broke off: %s", type(error).__name__)
            problem = make_openai_problem(503, "the service cannot answer now")
    return problem.model_dump_json()


def _reasoning_id(answer: Answer) -> str:
    return f"rs_{answer.id}"


def _message_id(answer: Answer) -> str:
    return f"msg_{answer.id}"


def _reasoning_items(answer: Answer) -> list[ReasoningItem]:
    if not answer.progress:
        return []
    summary = [SummaryText(text="".join(answer.progress))]
    return [ReasoningItem(id=_reasoning_id(answer), summary=summary)]


def _message_item(answer: Answer) -> MessageItem:
    cut = answer.finish is not None and answer.finish.reason == "length"
    content = [OutputText(text=answer.text)]
    return MessageItem(id=_message_id(answer), status="incomplete" if cut else "completed", content=content)


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
