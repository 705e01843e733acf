"""Replies in the form of OpenAI's API, as the OpenAPI description has them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from massmem.server.schemas import Body

_ID = "chatcmpl-0c4a5b"
_MODEL = "massmem/default"


class ModelEntry(Body):
    """A team, or one of its agents."""

    id: Annotated[str, Field(examples=[_MODEL])]
    """As requests name it."""
    object: Literal["model"] = "model"
    """Says so."""
    created: int = 0
    """0: it is not known."""
    owned_by: str = "massmem"
    """Always massmem."""


class ModelList(Body):
    """All models."""

    object: Literal["list"] = "list"
    """Says so."""
    data: list[ModelEntry]
    """Teams and agents."""


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
    """Sent to models."""
    completion_tokens: int
    """Written by models."""
    total_tokens: int
    """Both."""
    prompt_tokens_details: PromptDetails
    """Parts of `prompt_tokens`."""
    completion_tokens_details: CompletionDetails
    """Parts of `completion_tokens`."""


class ChatReply(Body):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    """Who speaks."""
    content: str
    """The text."""
    refusal: None = None
    """Always null."""
    reasoning_content: str | None = None
    """What the council did, a line for each step."""


class ChatChoice(Body):
    """The only answer."""

    index: Literal[0] = 0
    """Always 0."""
    message: ChatReply
    """What the council says."""
    logprobs: None = None
    """Always null."""
    finish_reason: Literal["stop", "length"]
    """length: the end of the answer is missing."""


class ChatCompletion(Body):
    """The council's answer."""

    id: Annotated[str, Field(examples=[_ID])]
    """Of this answer."""
    object: Literal["chat.completion"] = "chat.completion"
    """Says so."""
    created: int
    """Seconds since 1970."""
    model: Annotated[str, Field(examples=[_MODEL])]
    """As requested."""
    choices: list[ChatChoice]
    """One answer."""
    usage: ChatUsage
    """Tokens of all agents."""


class InputDetails(Body):
    """What the tokens of prompts are made of."""

    cached_tokens: int
    """Tokens that providers read from their caches."""
    cache_write_tokens: int = 0
    """Tokens that providers put into their caches."""


class ResponseUsage(Body):
    """Tokens of all requests of the turn, of all agents."""

    input_tokens: int
    """Sent to models."""
    input_tokens_details: InputDetails
    """Parts of `input_tokens`."""
    output_tokens: int
    """Written by models."""
    output_tokens_details: CompletionDetails
    """Parts of `output_tokens`."""
    total_tokens: int
    """Both."""


class SummaryText(Body):
    """A part of a summary."""

    type: Literal["summary_text"] = "summary_text"
    """Says so."""
    text: str
    """The text."""


class ReasoningItem(Body):
    """What the council did."""

    id: str
    """Of this item."""
    type: Literal["reasoning"] = "reasoning"
    """Says so."""
    summary: list[SummaryText]
    """A line for each step."""
    status: Literal["in_progress", "completed"] = "completed"
    """Whether more follows."""


class OutputText(Body):
    """A text."""

    type: Literal["output_text"] = "output_text"
    """Says so."""
    text: str
    """The text."""
    annotations: list[Any] = Field(default_factory=list[Any])
    """Always empty."""
    logprobs: list[Any] = Field(default_factory=list[Any])
    """Always empty."""


class MessageItem(Body):
    """The answer."""

    id: str
    """Of this item."""
    type: Literal["message"] = "message"
    """Says so."""
    role: Literal["assistant"] = "assistant"
    """Who speaks."""
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    """incomplete: the end of the answer is missing."""
    content: list[OutputText]
    """The text."""


class IncompleteDetails(Body):
    """Why the end of the answer is missing."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"
    """The limit of tokens."""


class Response(Body):
    """The council's answer."""

    id: str
    """Of this answer; `previous_response_id` goes on with its conversation."""
    object: Literal["response"] = "response"
    """Says so."""
    created_at: int
    """Seconds since 1970."""
    status: Literal["in_progress", "completed", "incomplete"]
    """incomplete: the end of the answer is missing."""
    error: None = None
    """Always null: an error is a response of its own."""
    incomplete_details: IncompleteDetails | None = None
    """Why the end of the answer is missing."""
    instructions: None = None
    """Always null."""
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    """`session_id`: the conversation."""
    model: Annotated[str, Field(examples=[_MODEL])]
    """As requested."""
    output: list[ReasoningItem | MessageItem]
    """What the council did, and the answer."""
    parallel_tool_calls: bool = False
    """Always false."""
    previous_response_id: str | None = None
    """As requested."""
    tool_choice: Literal["none"] = "none"
    """Always none."""
    tools: list[Any] = Field(default_factory=list[Any])
    """Always empty."""
    temperature: float | None = None
    """Always null."""
    top_p: float | None = None
    """Always null."""
    usage: ResponseUsage | None = None
    """Tokens of all agents."""
