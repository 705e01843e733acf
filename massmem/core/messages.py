"""The messages, requests and streamed replies that every provider and agent shares."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from massmem.core.attachments import Attachment

Role = Literal["system", "user", "assistant", "tool"]
Purpose = Literal["answer", "vote", "present", "summary", "extract", "describe"]
ToolChoice = Literal["required", "auto", "none"]

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace what no provider and no database accepts (NUL, lone surrogates) by U+FFFD.

    Callers clean text where it enters (questions, model output) and again where it is sent, so that one odd character
    never makes a session unusable.
    """
    return _UNSENDABLE.sub("�", text)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON of an object; what cannot be read as one is as the model wrote it."""
    state: str = field(default="", repr=False)
    """Given with the call by the provider, which wants it back (massmem.providers.dialects). It is no text: nobody is
    shown it, and no other provider or model is sent it."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as a model sees it."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """The call that a message of role "tool" answers."""
    head: int = field(default=0, compare=False)
    """So many characters at its beginning stand in later requests too; the rest is for this step."""
    attachments: tuple[Attachment, ...] = ()
    """Files that a message of role "user" shows beside its text."""
    tool: str = field(default="", compare=False)
    """The name of the tool whose result the text is, or of several, between commas. No provider is sent it."""
    calls: tuple[str, ...] = field(default=(), compare=False)
    """Ids of the calls whose results the text holds. No provider is sent them."""
    same_as: str = field(default="", compare=False)
    """Id of an earlier call with the same result, to which the text points. No provider is sent it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer as another agent sees it: under a label instead of the author's name."""

    label: str
    """A, B, ..."""
    agent_id: str
    content: str
    votable: bool = True
    """Who is shown it may vote for it; false: it is its own."""
    is_new: bool = False
    """Who is shown it has judged answers before, and not this one."""
    reasons: tuple[str, ...] = ()
    """Of the others' votes for it, once there is a winner."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that a model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    text: str
    """For the model and for the log."""
    failed: bool = False
    """The text says what went wrong."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one request or several."""

    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}  # `massmem --help` does not load pydantic
    prompt: int = 0
    """Tokens that were sent."""
    completion: int = 0
    """Tokens of replies."""
    cached: int = 0
    """Tokens of `prompt` that the provider read from its cache."""
    requests: int = 0
    """Requests that were sent, retries included."""
    reported: bool = True
    """The provider counted the tokens; false when any part is our estimate."""
    cost: float | None = None
    """US dollars (massmem.providers.pricing); None when any part has no known price."""
    reasoning: int = 0
    """Tokens of `completion` that the model thought with, as far as the provider says."""
    cache_written: int = 0
    """Tokens of `prompt` that the provider put into its cache and charges more for, as far as it says."""
    saved: float = 0.0
    """US dollars less than the tokens cost without a cache; below zero where filling it cost more than it gave."""

    def __add__(self, other: "Usage") -> "Usage":
        total = self._join(other, 1)
        cost = total.cost if self.prompt or self.completion else other.cost
        return replace(total, reported=self.reported and other.reported, cost=cost)

    def __sub__(self, part: "Usage") -> "Usage":
        """Return what is left of a sum without one part of it.

        Estimated when the sum is; without a cost when the sum or the part has tokens and no known price.
        """
        return self._join(part, -1)

    def _join(self, other: "Usage", sign: int) -> "Usage":
        cost = self.cost
        if other.prompt or other.completion:
            cost = None if cost is None or other.cost is None else round(cost + sign * other.cost, 10)
        return Usage(
            self.prompt + sign * other.prompt,
            self.completion + sign * other.completion,
            self.cached + sign * other.cached,
            self.requests + sign * other.requests,
            self.reported,
            cost,
            self.reasoning + sign * other.reasoning,
            self.cache_written + sign * other.cache_written,
            round(self.saved + sign * other.saved, 10),
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model.

    Give either tools or schema, not both. Real providers ignore purpose and agent_id, which say who asks and why;
    `scripted` and telemetry use them.
    """

    messages: tuple[ChatMessage, ...]
    purpose: Purpose
    agent_id: str = ""
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    """JSON Schema that the model's text must match."""
    temperature: float | None = None
    """None: the backend's configuration decides."""
    max_tokens: int | None = None
    """None: the backend's configuration decides."""
    deadline: float | None = None
    """Seconds for the whole reply, retries included; None: the backend's configuration decides."""
    tool_choice: ToolChoice = "required"
    """required: the model calls a tool; auto: it may; none: it must not, and `tools` only explain earlier calls."""

    @property
    def picture_tokens(self) -> int:
        """About how many tokens a model reads of what the messages show."""
        return sum(attachment.tokens for message in self.messages for attachment in message.attachments)


WRAPPER = "reply"
"""The one key of the object in which providers that take only objects as schemas wrap any other schema."""

Activity = Literal["loading", "reading"]
"""Of a model on this machine before its first word: it is loaded, or reads the prompt."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtsEndChunk:
    """The text so far was reasoning: the model has marked its end, and nothing its beginning."""


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A tool call whose arguments are complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class RetryChunk:
    """The request failed and is sent again: everything streamed so far is void."""

    error: str
    delay: float
    """Seconds until it is sent again."""
    attempt: int
    """Number of the request that follows; 0: nothing was sent, since the server wants no requests for so long."""


@dataclass(frozen=True, slots=True)
class ActivityChunk:
    """The model is busy before its first word."""

    activity: Activity
    share: float | None = None
    """How much of it is done, 0 to 1; None when that is not known."""


@dataclass(frozen=True, slots=True)
class NoticeChunk:
    """The request was sent with less than it has; the user is told once."""

    text: str


@dataclass(frozen=True, slots=True)
class FinishChunk:
    """The last chunk of every stream that ended well."""

    reason: FinishReason
    usage: Usage


Chunk = (
    TextChunk
    | ReasoningChunk
    | ThoughtsEndChunk
    | ToolCallChunk
    | RetryChunk
    | ActivityChunk
    | NoticeChunk
    | FinishChunk
)


@dataclass(slots=True)
class Reply:
    """The reply to one request, collected from its chunks."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall])
    finish: FinishReason | None = None
    """None until the stream has ended well."""
    usage: Usage = field(default_factory=Usage)

    @property
    def is_truncated(self) -> bool:
        """Whether the provider cut the reply at its limit of tokens, so that its end is missing."""
        return self.finish == "length"

    def feed(self, chunk: Chunk) -> None:
        match chunk:
            case TextChunk(text):
                self.text += text
            case ReasoningChunk(text):
                self.reasoning += text
            case ThoughtsEndChunk():
                self.reasoning, self.text = self.reasoning + self.text, ""
            case ToolCallChunk(call):
                self.tool_calls.append(call)
            case RetryChunk():
                self.text, self.reasoning = "", ""
                self.tool_calls.clear()
            case ActivityChunk() | NoticeChunk():
                pass
            case FinishChunk(reason, usage):
                self.finish, self.usage = reason, usage
