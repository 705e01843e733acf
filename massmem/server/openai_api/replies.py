"""Replies in the form of OpenAI's API, as the OpenAPI description has them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from massmem.server.schemas import Body

_ID = "chatcmpl-0c4a5b"
_MODEL = "massmem/default"


class ModelEntry(Body):
    """A team, or one of its agents."""

    id: Annotated[str, Field(examples=[_MODEL])]
    object: Literal["model"] = "model"
    created: int = 0
    """0: it is not known."""
    owned_by: str = "massmem"


class ModelList(Body):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class PromptDetails(Body):
    """What the tokens of prompts are made of."""

    cached_tokens: int
    """Tokens that providers read from their caches."""


class CompletionDetails(Body):
    """What the tokens of replies are made of."""

    reasoning_tokens: int
    """Tokens that models thought with."""


class ChatUsage(Body):
    """Tokens of all requests of the turn, of all agents."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class ChatReply(Body):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    reasoning_content: str | None = None
    """What the council did, a line for each step."""


class ChatChoice(Body):
    """The only answer."""

    index: Literal[0] = 0
    message: ChatReply
    logprobs: None = None
    finish_reason: Literal["stop", "length"]
    """length: the end of the answer is missing."""


class ChatCompletion(Body):
    """The council's answer."""

    id: Annotated[str, Field(examples=[_ID])]
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    """Seconds since 1970."""
    model: Annotated[str, Field(examples=[_MODEL])]
    choices: list[ChatChoice]
    usage: ChatUsage


class InputDetails(Body):
    """What the tokens of prompts are made of."""

    cached_tokens: int
    """Tokens that providers read from their caches."""
    cache_write_tokens: int = 0
    """Tokens that providers put into their caches."""


class ResponseUsage(Body):
    """Tokens of all requests of the turn, of all agents."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: CompletionDetails
    total_tokens: int


class SummaryText(Body):
    """A part of a summary."""

    type: Literal["summary_text"] = "summary_text"
    text: str


class ReasoningItem(Body):
    """What the council did."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    summary: list[SummaryText]
    """A line for each step."""
    status: Literal["in_progress", "completed"] = "completed"
    """Whether more follows."""


class OutputText(Body):
    """A text."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list[Any])
    logprobs: list[Any] = Field(default_factory=list[Any])


class MessageItem(Body):
    """The answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    """incomplete: the end of the answer is missing."""
    content: list[OutputText]


class IncompleteDetails(Body):
    """Why the end of the answer is missing."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"
    """The limit of tokens."""


class Response(Body):
    """The council's answer."""

    id: str
    """Of this answer; `previous_response_id` goes on with its conversation."""
    object: Literal["response"] = "response"
    created_at: int
    """Seconds since 1970."""
    status: Literal["in_progress", "completed", "incomplete"]
    """incomplete: the end of the answer is missing."""
    error: None = None
    """Always null: an error is a response of its own."""
    incomplete_details: IncompleteDetails | None = None
    """Why the end of the answer is missing."""
    instructions: None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    """`session_id`: the conversation."""
    model: Annotated[str, Field(examples=[_MODEL])]
    output: list[ReasoningItem | MessageItem]
    """What the council did, and the answer."""
    parallel_tool_calls: bool = False
    previous_response_id: str | None = None
    tool_choice: Literal["none"] = "none"
    tools: list[Any] = Field(default_factory=list[Any])
    temperature: float | None = None
    top_p: float | None = None
    usage: ResponseUsage | None = None
