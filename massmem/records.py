"""Rows of the session store as values. No SQL here."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SessionStatus = Literal["active", "completed", "interrupted", "failed", "waiting", "deleting"]
TurnStatus = Literal["running", "completed", "failed", "interrupted", "waiting", "abandoned", "undone"]
RecordingKind = Literal["episode", "complete", "extract"]
RecordingStatus = Literal["pending", "done", "failed", "forgotten"]
MessageKind = Literal["user", "assistant", "tool_call", "tool_result", "reasoning", "injection", "system"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SessionRecord(_Record):
    """One row of chat_sessions (columns of seed 003), with what the registry also shows.

    memory_group: the configured session_name, under which other sessions find what is said here; "" for none.
    status deleting: its deletion was begun; what is left of it is of no use.
    """

    session_id: str
    user_id: str | None = None
    title: str = ""
    last_message: str = ""
    message_count: int = 0
    active: bool = True
    status: SessionStatus = "active"
    model: str = ""
    config_path: str = ""
    description: str = ""
    memory_group: str = ""
    created_at: datetime
    updated_at: datetime


class SessionFilter(_Record):
    """Which sessions: all that match every field that is given.

    text: stands in the id, the title or the last message, in any case. title: is the whole title, in any case.
    prefix: the id begins so. since, before: last used at or after the one, and before the other.
    owner: whose; None: everybody's.
    cut_off: of any owner, the last turn may have been cut off (status active or interrupted).
    """

    status: SessionStatus | None = None
    text: str = ""
    title: str | None = None
    prefix: str = ""
    since: datetime | None = None
    before: datetime | None = None
    owner: str | None = None
    cut_off: bool = False


class ListedSession(_Record):
    """A session with what a list shows beside it. confidence, escalated: of its last answer.

    said: how many messages the conversation has: what the user said, and final answers.
    """

    session: SessionRecord
    turns: int
    said: int = 0
    confidence: float | None = None
    escalated: bool = False


class SessionCounts(_Record):
    """active: those whose `active` is true. messages: everything in the logs."""

    sessions: int = 0
    active: int = 0
    messages: int = 0
    by_status: dict[str, int] = Field(default_factory=dict[str, int])


class MessageRecord(_Record):
    """One row of chat_messages. seq orders messages within a session; final marks the answer of a turn."""

    id: str
    session_id: str
    seq: int
    turn: int
    round: int
    kind: MessageKind
    role: str
    agent_id: str | None = None
    content: str
    final: bool = False
    tokens: int | None = None
    confidence: float | None = None
    escalated: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    created_at: datetime


class MessageToRecord(_Record):
    """A message with what its session says about remembering it.

    group: see SessionRecord.memory_group. params: values that stay in the session, by name. winner: of the message's
    turn, None while that is not complete.
    """

    message: MessageRecord
    group: str = ""
    params: dict[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    winner: str | None = None


class TurnRecord(_Record):
    """One row of turns. answer is the final answer once status is completed."""

    session_id: str
    turn: int
    question: str
    status: TurnStatus
    winner: str | None = None
    answer: str | None = None
    seed: int
    started_at: datetime
    ended_at: datetime | None = None


class RecordingRecord(_Record):
    """One row of recordings: something of the log that is to become memories.

    kind: episode, the message with this seq word for word; complete, the turn ended and agent_id won it; extract,
    facts from what agent_id did in the turn after `since` and up to seq. agent_id None: the user. position: number of
    the episode in its session, from 0. forgotten: of each fact that must not come of it again, its words as numbers.
    """

    session_id: str
    seq: int
    message_id: str
    kind: RecordingKind
    agent_id: str | None
    turn: int
    position: int | None = None
    since: int | None = None
    status: RecordingStatus
    attempts: int
    reason: str | None = None
    created_at: datetime
    next_attempt_at: datetime | None = None
    forgotten: tuple[tuple[int, ...], ...] = ()


class RecordingCounts(_Record):
    """How much of the queue is where. reason: why the newest one that did not succeed did not."""

    pending: int = 0
    done: int = 0
    failed: int = 0
    reason: str | None = None


class SessionState(_Record):
    """One row of session_state: what the agents know of the user's wishes. Values never reach a log.

    waiting_for_param: the name of the value that is asked for. updated_at None: nothing was saved yet.
    """

    params: dict[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    waiting_for_param: str | None = None
    last_intent_id: str | None = None
    plan_execution: dict[str, Any] | None = Field(default=None, repr=False)
    last_result: dict[str, Any] | None = Field(default=None, repr=False)
    updated_at: datetime | None = None


class LogEntry(_Record):
    """One event of a session's log as it is stored, for moving it to another store.

    payload: the event as JSON. recordings: the rows of the queue that it led to, as they are now.
    """

    seq: int
    turn: int
    payload: str = Field(repr=False)
    recordings: tuple[RecordingRecord, ...] = ()


class SessionCopy(_Record):
    """What a store holds of a session beside its log, for moving it to another store.

    abandoned: the turns that were given up, which no event tells.
    """

    session: SessionRecord
    state: SessionState
    abandoned: tuple[int, ...] = ()
