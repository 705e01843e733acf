"""Plain values that travel through every layer: what is said to a model and what it says back.

Nothing here knows storage, providers or agents.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
Purpose = Literal["answer", "vote", "present", "summary", "extract"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")

SESSION_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""What can name a session, to be matched in full. `records.check_session_id` is the check with a message."""


def clean_text(text: str) -> str:
    """Replace what no provider and no database accepts (NUL, lone surrogates) by U+FFFD.

    Applied where text enters (questions, model output) and again where it is sent, so that one odd
    character never makes a session unusable.
    """
    return _UNSENDABLE.sub("�", text)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """id: the provider's. arguments: the raw JSON text, not yet checked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as a model sees it. tool_call_id is set on role "tool" only."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer as another agent sees it: no name, only a label (A, B, ...)."""

    label: str
    agent_id: str
    content: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that a model may call. parameters: a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several requests. cached: the part of prompt that the provider read from its cache.

    requests counts what was sent, retries included. reported is False when any part is our estimate.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    requests: int = 0
    reported: bool = True

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.requests + other.requests,
            self.reported and other.reported,
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model.

    tools and schema are alternatives: with tools the model must call one of them; with schema (a JSON Schema)
    its text must be JSON of that form. purpose and agent_id say who asks and why: real providers ignore
    them, `scripted` and telemetry do not. temperature and max_tokens None: the backend's configuration decides.
    """

    messages: tuple[ChatMessage, ...]
    purpose: Purpose
    agent_id: str = ""
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None


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
