"""Bodies of requests and responses, as clients know them. Times are ISO 8601 in UTC unless a name says otherwise."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from massmem.config.variation import Mode
from massmem.core.ids import SESSION_ID
from massmem.core.messages import Citation
from massmem.core.turn_result import TurnResult, TurnSummary

MAX_SESSION_ID_LENGTH = 100
MAX_MESSAGE_LENGTH = 1_000_000
MAX_LIST_LENGTH = 200
MAX_HISTORY_LENGTH = 1_000
MAX_OFFSET = 1_000_000
MAX_PARTS = 50
MAX_SMALL_BODY = 100_000
MAX_DATA_URL_LENGTH = 100_000_000
MAX_QUERY_LENGTH = 1_000
MAX_QUERY_WORDS = 100

_SESSION = "user-123-support-chat"
_ANSWER = "Air scatters blue light more than red light."

SessionId = Annotated[
    str,
    Field(
        max_length=MAX_SESSION_ID_LENGTH,
        # The rule of SESSION_ID in terms of JSON Schema: no dot follows another.
        pattern=r"^[A-Za-z0-9_](?:\.?[A-Za-z0-9_-])*\.?$",
        description="Letters, digits, '_', '-' and single dots.",
        examples=[_SESSION],
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE_LENGTH, pattern=r"\S")]
ProjectName = Annotated[str, Field(max_length=4_096, pattern=r"^[^\x00-\x1f]*$", examples=["alpha"])]
Team = Annotated[str, Field(max_length=100, examples=["support"])]
Milliseconds = Annotated[int, Field(description="Milliseconds since 1970.", examples=[1_705_750_200_123])]


def check_words(text: str) -> str:
    if len(text.split()) > MAX_QUERY_WORDS:
        raise ValueError(f"a search has {MAX_QUERY_WORDS} words at most")
    return text


def is_session_id(text: str) -> bool:
    return len(text) <= MAX_SESSION_ID_LENGTH and SESSION_ID.fullmatch(text) is not None


class Body(BaseModel):
    """A body. The docstring of a field is its description in the OpenAPI document; plain names have none."""

    model_config = ConfigDict(frozen=True)


class SmallBody(Body, extra="forbid"):
    """A body of a request with a few short texts: of MAX_SMALL_BODY bytes at most."""


class Problem(Body):
    success: Literal[False] = False
    error: Annotated[str, Field(examples=["Session not found"])]


class OpenAIError(Body):
    message: Annotated[str, Field(examples=["there is no model massmem/sales"])]
    type: Annotated[str, Field(examples=["invalid_request_error"])]
    param: Annotated[str | None, Field(examples=["model"])] = None
    code: Annotated[str | None, Field(examples=["model_not_found"])] = None


class OpenAIProblem(Body):
    error: OpenAIError


class TextPart(Body):
    type: Literal["text"]
    text: Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH, examples=["What is this?"])]


class ImageUrl(Body):
    url: Annotated[str, Field(max_length=MAX_DATA_URL_LENGTH, examples=["data:image/png;base64,iVBORw0KGgo="])]
    """The picture itself as a data: URL; other addresses are not fetched."""


class ImagePart(Body):
    type: Literal["image_url"]
    image_url: ImageUrl
    """PNG, JPEG, GIF or WebP, or a PDF to be seen."""


class FileData(Body):
    filename: Annotated[str, Field(min_length=1, max_length=200, examples=["report.pdf"])]
    file_data: Annotated[str, Field(max_length=MAX_DATA_URL_LENGTH, examples=["data:application/pdf;base64,JVBERi0="])]
    """The file itself as a data: URL."""


class FilePart(Body):
    type: Literal["file"]
    file: FileData


ContentPart = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="type")]
Content = Text | Annotated[list[ContentPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)]
"""A text, or parts in the form of OpenAI's chat messages."""


class AskRequest(Body, extra="forbid"):
    session_id: SessionId | None = None
    """The conversation; an unknown one is created; left out: a new one."""
    team: Team | None = None
    """One of the configured teams; left out: the session's own."""
    agent: Annotated[str, Field(max_length=64, examples=["researcher"])] = ""
    """This agent of the team answers alone; empty: the team."""
    model: Annotated[str, Field(max_length=200, examples=["ollama/qwen3:8b"])] = ""
    """One agent with this model answers instead of the team, for the user of this machine."""
    folder: Annotated[str, Field(max_length=4_096, pattern=r"^[^\x00-\x1f]*$", examples=["~/notes"])] = ""
    """The agents read it for this question, for the user of this machine; others have those of the configuration."""
    job: Annotated[str, Field(max_length=100, examples=["decide"])] = ""
    """The team, or the agent, does this job with the question, see `jobs` of `/api/v1/about`; empty: it answers it."""
    mode: Mode = "council"
    """solo: the first agent alone; report: with what all say, what is disputed, and what only one says."""
    project: ProjectName | None = None
    """Of a new conversation: what it says is recalled in this project alone. Any name; of the user of this machine that
    of a folder, or its path. Left out, or empty: none, and it is recalled everywhere. An old one has its own."""
    full: bool = False
    """All agents are asked, also where the first of them would be enough, see `coordination.depth`."""
    replaces: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """Ask in the place of this turn: the new one is another version of it, and what followed it is withdrawn. Left out:
    ask after the last turn."""


class ChatRequest(AskRequest):
    message: Annotated[Content, Field(examples=["Why is the sky blue?"])]
    user_id: Annotated[str | None, Field(max_length=255, examples=["user-456"])] = None
    """For older clients: the token names the owner, and another user is refused."""


class QueryRequest(AskRequest):
    query: Annotated[Content, Field(examples=["Why is the sky blue?"])]


class TurnAnswer(TurnResult):
    """What the turn came to, and for older clients some of it under other names."""

    waiting_for_param: Annotated[str | None, Field(examples=["order_id"])]
    agent: Annotated[str | None, Field(examples=["Researcher"])] = None
    """The name of the agent that speaks: whose answer won, or that asks; of one without a name its id."""
    agent_id: Annotated[str | None, Field(examples=["researcher"])] = None
    warning: Annotated[
        str | None, Field(examples=["this conversation is held in memory, and ends with the service"])
    ] = None
    timestamp: datetime


class ChatAnswer(TurnAnswer):
    response: Annotated[str, Field(examples=[_ANSWER])]


class QueryAnswer(TurnAnswer):
    success: Literal[True] = True
    query: Annotated[str, Field(examples=["Why is the sky blue?"])]
    content: Annotated[str, Field(examples=[_ANSWER])]
    agent_name: Annotated[str | None, Field(examples=["Researcher"])] = None
    agents_used: Annotated[list[str], Field(examples=[["Researcher", "Critic"]])]


class HistoryMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[str, Field(examples=[_ANSWER])]
    agent: Annotated[str | None, Field(examples=["Researcher"])] = None
    agent_id: Annotated[str | None, Field(examples=["researcher"])] = None
    confidence: Annotated[float | None, Field(examples=[0.67])] = None
    citations: list[Citation] | None = None
    """Sources of an answer: `[n]` in it names the n-th."""
    result: TurnSummary | None = None
    """Of an answer: what the turn came to."""
    timestamp: datetime


class History(Body):
    session_id: Annotated[str, Field(examples=[_SESSION])]
    messages: list[HistoryMessage]
    count: int


class ConversationMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[str, Field(examples=[_ANSWER])]
    timestamp: datetime
    agent: Annotated[str | None, Field(examples=["Researcher"])] = None
    citations: list[str] | None = None
    """The addresses of the sources of an answer: `[n]` in it names the n-th."""


class Conversation(Body):
    success: Literal[True] = True
    session_id: Annotated[str, Field(examples=[_SESSION])]
    messages: list[ConversationMessage]
    agents_used: Annotated[list[str], Field(examples=[["Researcher"]])]
    created_at: datetime
    message_count: int


class ListedConversation(Body):
    session_id: Annotated[str, Field(examples=[_SESSION])]
    query: Annotated[str, Field(examples=["Why is the sky blue?"])]
    """Its title: the beginning of its first question."""
    created_at: datetime
    last_activity: datetime
    message_count: int
    agents_used: Annotated[list[str], Field(examples=[["Researcher"]])]


class ConversationList(Body):
    success: Literal[True] = True
    sessions: list[ListedConversation]
    total_sessions: int
    limit: int
    offset: int


class MemoryMessage(Body):
    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(examples=[_ANSWER])]
    timestamp: Milliseconds


class Memory(Body):
    sessionId: Annotated[str, Field(examples=[_SESSION])]
    messages: list[MemoryMessage]
    createdAt: Milliseconds
    updatedAt: Milliseconds


class MemoryAnswer(Body):
    success: Literal[True] = True
    data: Memory


class MemoryList(Body):
    success: Literal[True] = True
    data: Annotated[list[str], Field(examples=[[_SESSION]])]


class Cleared(Body):
    success: Literal[True] = True
    message: Annotated[str, Field(examples=[f"Conversation {_SESSION} cleared"])]


class Stats(Body):
    activeConversations: int
    totalMessages: int
    averageMessagesPerConversation: int
    usingRedis: bool
    durable: bool


class StatsAnswer(Body):
    success: Literal[True] = True
    data: Stats


class Health(Body):
    status: Literal["ok"] = "ok"


class Readiness(Body):
    status: Literal["ready", "not ready"]
    checks: Annotated[dict[str, str], Field(examples=[{"store": "ok", "vectors": "ok", "provider": "ok"}])]
    """By name: ok, or what is missing."""
