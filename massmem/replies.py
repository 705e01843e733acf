"""What a model says back: the chunks of a stream, and the reply that they make up."""

from dataclasses import dataclass, field
from typing import Literal

from massmem.messages import ToolCall, Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A whole tool call, sent once its arguments are complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class RetryChunk:
    """What was streamed so far is void: the request failed with `error` and is sent again after `delay` seconds."""

    error: str
    delay: float
    attempt: int


@dataclass(frozen=True, slots=True)
class FinishChunk:
    """Always the last chunk of a stream that ended well."""

    reason: FinishReason
    usage: Usage


Chunk = TextChunk | ReasoningChunk | ToolCallChunk | RetryChunk | FinishChunk


@dataclass(slots=True)
class Reply:
    """Collects the chunks of one request into what the model said."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall])
    finish: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)

    def feed(self, chunk: Chunk) -> None:
        match chunk:
            case TextChunk(text):
                self.text += text
            case ReasoningChunk(text):
                self.reasoning += text
            case ToolCallChunk(call):
                self.tool_calls.append(call)
            case RetryChunk():
                self.text, self.reasoning = "", ""
                self.tool_calls.clear()
            case FinishChunk(reason, usage):
                self.finish, self.usage = reason, usage
