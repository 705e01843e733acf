"""Changes of the derived tables as values, and the rows of messages and of the queue that they bring. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from massmem.memory.recording.recorded import worth_recording
from massmem.messages import Usage
from massmem.records import MessageKind, RecordingKind, SessionStatus

Table = Literal["chat_messages", "turns", "answers", "ballots", "recordings", "requests"]


@dataclass(frozen=True, slots=True)
class Insert:
    table: Table
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SetTurn:
    """Columns of the turn's row that get a new value."""

    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VoidBallots:
    """The turn's ballots of these agents with a smaller seq no longer count."""

    agents: tuple[str, ...]
    before: int


@dataclass(frozen=True, slots=True)
class SetSession:
    """None leaves a column as it is; the title is only set while there is none."""

    title: str | None = None
    last_message: str | None = None
    status: SessionStatus | None = None


@dataclass(frozen=True, slots=True)
class QueueExtraction:
    """Facts are to be extracted from what each agent did in the turn up to `seq`, since this was last queued."""

    seq: int
    at: datetime


RowOp = Insert | SetTurn | VoidBallots | SetSession | QueueExtraction


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event stands in the log."""

    session_id: str
    turn: int
    seq: int
    at: datetime


def message_id(session_id: str, seq: int) -> str:
    """32 hex digits, unique over all sessions.

    Derived and not random, so that tables rebuilt from the log keep the ids that memories refer to; and rising
    within a session, so that the index over ids grows at one place instead of touching a random page per message.
    """
    return f"{sha256(session_id.encode()).hexdigest()[:16]}{seq:016x}"


def message(
    place: Place,
    kind: MessageKind,
    content: str,
    *,
    agent: tuple[str, int] | None = None,
    final: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> Insert:
    """agent: its id and the round, None for the user."""
    seq = place.seq - 1 if kind == "reasoning" else place.seq
    agent_id, round_ = agent or (None, 0)
    row = {
        "id": message_id(place.session_id, seq),
        "session_id": place.session_id,
        "seq": seq,
        "turn": place.turn,
        "round": round_,
        "kind": kind,
        "role": kind if kind in ("user", "system") else "assistant",
        "agent_id": agent_id,
        "content": content,
        "final": final,
        "tokens": None,
        "confidence": None,
        "escalated": False,
        "metadata": dict(metadata or {}),
        "created_at": place.at,
    }
    return Insert("chat_messages", row)


def recording(place: Place, kind: RecordingKind, agent_id: str | None) -> Insert:
    """An episode's position is left to whoever knows how many there are already."""
    row = {
        "session_id": place.session_id,
        "seq": place.seq,
        "kind": kind,
        "agent_id": agent_id or "",
        "turn": place.turn,
        "position": None,
        "created_at": place.at,
    }
    return Insert("recordings", row)


def episode(place: Place, agent_id: str | None, text: str) -> list[RowOp]:
    """A row of the queue for the text word for word, none when it is not worth it."""
    return [recording(place, "episode", agent_id)] if worth_recording(text) else []


def reasoning(place: Place, agent: tuple[str, int], text: str) -> list[RowOp]:
    """The message before the event's own; none without a text."""
    return [message(place, "reasoning", text, agent=agent)] if text else []


def used(usage: Usage) -> dict[str, Any]:
    """Of a message's metadata: what it cost."""
    return {"usage": tokens(usage)}


def tokens(usage: Usage) -> dict[str, Any]:
    return {
        "prompt": usage.prompt,
        "completion": usage.completion,
        "reported": usage.reported,
        "cost": usage.cost,
    }
