"""Conversations that nothing stores: they end with their process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from massmem.core.errors import InputError
from massmem.core.events import now
from massmem.core.ids import check_session_id

Role = Literal["user", "agent", "tool"]

CONTEXT_MESSAGES = 6
_CONTEXT_ANSWER_CHARACTERS = 200
_MESSAGES = 10
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "agent", "tool": "tool"}


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str
    timestamp: datetime = field(default_factory=now)
    """An appended message gets the time at which it is stored."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class InMemoryConversationMemory:
    """What `massmem.ConversationMemory()` is. Its methods are not async."""

    def __init__(self) -> None:
        self.conversations: dict[str, list[dict[str, Any]]] = {}
        """The newest 10 messages of each session: role, content, timestamp (ISO 8601, UTC) and agent_type."""
        self.known: dict[str, dict[str, Any]] = {}
        """Values of each session by name."""
        self.awaited: dict[str, str] = {}
        """Name of the value that each session waits for."""

    def for_session(self, session_id: str) -> "InMemorySession":
        """Return a handle to the session. Raises InputError: `session_id` cannot be the id of a session."""
        return InMemorySession(self, check_session_id(session_id))

    def add_message(
        self, session_id: str, role: Literal["user", "assistant"], message: str, agent_type: str | None = None
    ) -> None:
        """See ConversationMemory.add_message."""
        check_role(role)
        self.add(session_id, role, message, agent_type)

    def get_conversation_context(self, session_id: str) -> str:
        """See ConversationMemory.get_conversation_context."""
        newest = self.conversations.get(session_id, [])[-CONTEXT_MESSAGES:]
        return "\n".join(format_line(entry["role"], entry["content"], entry["agent_type"]) for entry in newest)

    def get_conversation_summary(self, session_id: str) -> dict[str, Any]:
        """See ConversationMemory.get_conversation_summary; of the messages that are still there."""
        messages = self.conversations.get(session_id)
        if not messages:
            return {}
        first, last = messages[0]["timestamp"], messages[-1]["timestamp"]
        return {"message_count": len(messages), "last_activity": last, "session_started": first}

    def add(self, session_id: str, role: str, text: str, agent_type: str | None) -> None:
        """As add_message, with any role."""
        # Without a time zone, so that programs can compare it with datetime.utcnow().
        time = now().replace(tzinfo=None).isoformat(timespec="microseconds")
        entry = {"role": role, "content": text, "timestamp": time, "agent_type": agent_type}
        self.conversations[session_id] = [*self.conversations.get(session_id, ()), entry][-_MESSAGES:]


@dataclass(frozen=True, slots=True)
class InMemorySession:
    """One session, as `massmem.SessionHandle` without await. Holds nothing: several handles see the same."""

    _memory: InMemoryConversationMemory
    _id: str

    def history(self) -> list[Message]:
        return [
            Message(
                _ROLES[entry["role"]],
                entry["content"],
                datetime.fromisoformat(entry["timestamp"]).replace(tzinfo=UTC),
                {} if entry["agent_type"] is None else {"agent_type": entry["agent_type"]},
            )
            for entry in self._memory.conversations.get(self._id, ())
        ]

    def append(self, message: Message) -> None:
        role = "assistant" if message.role == "agent" else message.role
        self._memory.add(self._id, role, message.text, message.metadata.get("agent_type"))

    def params(self) -> dict[str, Any]:
        return dict(self._memory.known.get(self._id, {}))

    def merge(self, params: Mapping[str, Any]) -> None:
        self._memory.known[self._id] = {**self.params(), **params}
        if self.waiting() in params:
            self.set_waiting(None)

    def waiting(self) -> str | None:
        return self._memory.awaited.get(self._id)

    def set_waiting(self, name: str | None) -> None:
        self._memory.awaited.pop(self._id, None)
        if name is not None:
            self._memory.awaited[self._id] = name

    def clear(self) -> None:
        """Forget the session."""
        for place in (self._memory.conversations, self._memory.known, self._memory.awaited):
            place.pop(self._id, None)

    def prune(self, max_messages: int = 10) -> None:
        """Keep the newest messages."""
        messages = self._memory.conversations.get(self._id, [])
        del messages[: max(len(messages) - max(max_messages, 0), 0)]


def check_role(role: str) -> None:
    """Raise InputError: this is no role of a message of a conversation."""
    if role not in ("user", "assistant"):
        raise InputError(f"the role of a message cannot be {role!r}", "use user or assistant")


def format_line(role: str, text: str, name: str | None) -> str:
    """Return the message on a line; an answer is cut at 200 characters."""
    if role == "user":
        return f"User: {text}"
    return f"Assistant{f' ({name})' if name else ''}: {text[:_CONTEXT_ANSWER_CHARACTERS]}..."
