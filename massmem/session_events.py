"""Events of a session that stand outside of its turns, or anywhere, and what all events have."""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


def now() -> datetime:
    return datetime.now(UTC)


class EventBase(BaseModel):
    """at: when it happened."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    at: datetime = Field(default_factory=now)


class MessageAdded(EventBase):
    """A message that a program put into the conversation, outside of any turn."""

    type: Literal["message_added"] = "message_added"
    role: Literal["user", "agent", "tool", "system"]
    text: str
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])


class NoteAdded(EventBase):
    """Something that the user wants to have remembered, said outside of any turn."""

    type: Literal["note_added"] = "note_added"
    text: str


class HistoryCleared(EventBase):
    """The agents are shown nothing of what was said before. The log keeps it, and what was remembered of it stays."""

    type: Literal["history_cleared"] = "history_cleared"


class TurnUndone(EventBase):
    """The user took the turn back: it is shown to no agent and recalled by none. The log keeps it."""

    type: Literal["turn_undone"] = "turn_undone"
    session_id: str
    turn: int


class Notice(EventBase):
    """Something that the user should know and that stops nothing."""

    type: Literal["notice"] = "notice"
    message: str
