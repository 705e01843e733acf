"""What the routes take and give, as their clients know it. Times in ISO 8601 and UTC unless a name says otherwise."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from massmem.session_ids import SESSION_ID
from massmem.store.base import Said

LONGEST_SESSION_ID = 100
LONGEST_MESSAGE = 1_000_000
MOST_LISTED = 200
MOST_HISTORY = 1_000
LARGEST_OFFSET = 1_000_000


SessionId = Annotated[
    str,
    Field(
        max_length=LONGEST_SESSION_ID,
        # The rule of SESSION_ID, as JSON Schema can say it: no dot follows another.
        pattern=r"^[A-Za-z0-9_](?:\.?[A-Za-z0-9_-])*\.?$",
        description="Letters, digits, '_', '-' and single dots.",
        examples=["user-123-support-chat"],
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=LONGEST_MESSAGE, pattern=r"\S")]
Team = Annotated[str, Field(max_length=100, description="One of the configured teams; left out: the session's own.")]
Status = Literal["completed", "waiting", "abandoned"]


def is_session_id(text: str) -> bool:
    return len(text) <= LONGEST_SESSION_ID and SESSION_ID.fullmatch(text) is not None


class Body(BaseModel):
    model_config = ConfigDict(frozen=True)


def as_json(body: Body, *, nulls: bool = False) -> Response:
    """The body as it is sent. It was checked when it was made; FastAPI would do so a second time.

    nulls: fields without a value are null; else they are left out.
    """
    return _json(body.model_dump_json(exclude_none=not nulls))


def _json(text: str | bytes) -> Response:
    return Response(text, media_type="application/json")


class Problem(Body):
    """Every answer that is not a success."""

    success: Literal[False] = False
    error: str


class ChatRequest(Body):
    """user_id is accepted for the sake of older clients; whose the session is, is what the token says."""

    message: Text
    session_id: SessionId | None = None
    user_id: str | None = Field(default=None, max_length=255)
    team: Team | None = None


class QueryRequest(Body):
    query: Text
    session_id: SessionId | None = None
    team: Team | None = None


class ChatAnswer(Body):
    """response: the final answer, or what the user is asked for. waiting_for_param: the name of what is asked for.

    warning: what to know of the place that the conversation is kept in, null: nothing.
    """

    session_id: str
    response: str
    status: Status
    waiting_for_param: str | None
    turn: int
    agent: str | None = None
    confidence: float | None = None
    escalated: bool = False
    warning: str | None = None
    timestamp: datetime


class QueryAnswer(Body):
    success: Literal[True] = True
    session_id: str
    query: str
    content: str
    agent_name: str | None = None
    agent: str | None = None
    agents_used: list[str]
    waiting_for_param: str | None
    status: Status
    confidence: float | None = None
    escalated: bool = False
    warning: str | None = None
    timestamp: datetime


class HistoryMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: str
    confidence: float | None = None
    agent: str | None = None
    timestamp: datetime


class History(Body):
    session_id: str
    messages: list[HistoryMessage]
    count: int


def history_as_json(session_id: str, messages: Sequence[Said]) -> Response:
    """A `History` as it is sent. It is read more often than all else: no object is made for each message."""
    told = [_told(message) for message in messages]
    return _json(to_json({"session_id": session_id, "messages": told, "count": len(told)}))


def _told(message: Said) -> dict[str, object]:
    _, kind, content, agent, confidence, at = message
    told: dict[str, object] = {"role": "user" if kind == "user" else "assistant", "content": content}
    if confidence is not None:
        told["confidence"] = confidence
    if agent:
        told["agent"] = agent
    told["timestamp"] = at
    return told


class ConversationMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: str
    timestamp: datetime
    agent: str | None = None
    citations: list[str] | None = None


class Conversation(Body):
    success: Literal[True] = True
    session_id: str
    messages: list[ConversationMessage]
    agents_used: list[str]
    created_at: datetime
    message_count: int


class ListedConversation(Body):
    session_id: str
    query: str
    created_at: datetime
    last_activity: datetime
    message_count: int
    agents_used: list[str]


class ConversationList(Body):
    success: Literal[True] = True
    sessions: list[ListedConversation]
    total_sessions: int
    limit: int
    offset: int


class MemoryMessage(Body):
    """timestamp: milliseconds since 1970."""

    role: Literal["system", "user", "assistant"]
    content: str
    timestamp: int


class Memory(Body):
    """Times: milliseconds since 1970."""

    sessionId: str
    messages: list[MemoryMessage]
    createdAt: int
    updatedAt: int


class MemoryAnswer(Body):
    success: Literal[True] = True
    data: Memory


class MemoryList(Body):
    success: Literal[True] = True
    data: list[str]


class Cleared(Body):
    success: Literal[True] = True
    message: str


class Stats(Body):
    """durable False: the conversations end with the process that answers."""

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
    """checks: ok, or what is missing."""

    status: Literal["ready", "not ready"]
    checks: dict[str, str]
