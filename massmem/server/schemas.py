"""Bodies of requests and responses, as clients know them. Times are ISO 8601 in UTC unless a name says otherwise."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from massmem.core.ids import SESSION_ID

MAX_SESSION_ID_LENGTH = 100
MAX_MESSAGE_LENGTH = 1_000_000
MAX_LIST_LENGTH = 200
MAX_HISTORY_LENGTH = 1_000
MAX_OFFSET = 1_000_000

SessionId = Annotated[
    str,
    Field(
        max_length=MAX_SESSION_ID_LENGTH,
        # The rule of SESSION_ID in terms of JSON Schema: no dot follows another.
        pattern=r"^[A-Za-z0-9_](?:\.?[A-Za-z0-9_-])*\.?$",
        description="Letters, digits, '_', '-' and single dots.",
        examples=["user-123-support-chat"],
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE_LENGTH, pattern=r"\S")]
Team = Annotated[str, Field(max_length=100, description="One of the configured teams; left out: the session's own.")]
Milliseconds = Annotated[int, Field(description="Milliseconds since 1970.")]
Status = Literal["completed", "waiting", "abandoned"]


def is_session_id(text: str) -> bool:
    return len(text) <= MAX_SESSION_ID_LENGTH and SESSION_ID.fullmatch(text) is not None


class Body(BaseModel):
    model_config = ConfigDict(frozen=True)


class Problem(Body):
    """The body of every response that is not a success."""

    success: Literal[False] = False
    error: str


class ChatRequest(Body):
    message: Text
    session_id: SessionId | None = None
    user_id: Annotated[
        str | None,
        Field(max_length=255, description="For older clients; ignored: the token names the owner."),
    ] = None
    team: Team | None = None


class QueryRequest(Body):
    query: Text
    session_id: SessionId | None = None
    team: Team | None = None


class Answer(Body):
    session_id: str
    status: Status
    waiting_for_param: Annotated[str | None, Field(description="The name of the value that the user is asked for.")]
    agent: str | None = None
    confidence: float | None = None
    escalated: bool = False
    truncated: Annotated[bool, Field(description="The end of the answer is missing.")] = False
    warning: Annotated[str | None, Field(description="What to know about where the conversation is stored.")] = None
    timestamp: datetime


class ChatAnswer(Answer):
    response: Annotated[str, Field(description="The final answer, or what the user is asked for.")]
    turn: int


class QueryAnswer(Answer):
    success: Literal[True] = True
    query: str
    content: Annotated[str, Field(description="The final answer, or what the user is asked for.")]
    agent_name: str | None = None
    agents_used: list[str]


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
    role: Literal["system", "user", "assistant"]
    content: str
    timestamp: Milliseconds


class Memory(Body):
    sessionId: str
    messages: list[MemoryMessage]
    createdAt: Milliseconds
    updatedAt: Milliseconds


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
    activeConversations: int
    totalMessages: int
    averageMessagesPerConversation: int
    usingRedis: bool
    durable: Annotated[bool, Field(description="False: the conversations end with the process.")]


class StatsAnswer(Body):
    success: Literal[True] = True
    data: Stats


class Health(Body):
    status: Literal["ok"] = "ok"


class Readiness(Body):
    status: Literal["ready", "not ready"]
    checks: Annotated[dict[str, str], Field(description="By name: ok, or what is missing.")]
