"""Rows of the session store as values; no SQL here.

Of an API key of a user of the HTTP service only the SHA-256 is stored. That is enough: a key is 256 random bits, which
nobody can guess from a hash, however fast it is. Slow hashes protect passwords, which people choose.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from hashlib import sha256
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from massmem.core.errors import InputError
from massmem.core.messages import cut_title
from massmem.core.redact import mask, redact

SessionStatus = Literal["active", "completed", "interrupted", "failed", "waiting", "deleting"]
TurnStatus = Literal["running", "completed", "failed", "interrupted", "waiting", "abandoned", "undone"]
RecordingKind = Literal["episode", "complete", "extract"]
RecordingStatus = Literal["pending", "done", "failed", "forgotten"]
MessageKind = Literal["user", "assistant", "tool_call", "tool_result", "reasoning", "injection", "system"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a session is."""

    user_id: str | None
    """A user of the HTTP service, as tokens name them; None: the user of the command line."""


class Everybody(Enum):
    """Whose sessions are meant: those of all owners."""

    EVERYBODY = "everybody"


COMMAND_LINE_USER: Final = Owner(None)
EVERYBODY: Final = Everybody.EVERYBODY


def count_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class SessionRecord(_Record):
    """One row of chat_sessions."""

    session_id: str
    user_id: str | None = None
    """As `Owner.user_id`."""
    title: str = ""
    last_message: str = ""
    message_count: int = 0
    """Every message of the log."""
    active: bool = True
    status: SessionStatus = "active"
    """deleting: a deletion has started; only the rest of it may touch the session."""
    model: str = ""
    config_path: str = ""
    description: str = ""
    memory_group: str = ""
    """The configured session_name, under which other sessions recall this one; empty: none."""
    project: str = ""
    """The root of its project on this machine, or the name that a user of the HTTP service gives it; empty: none."""
    origins: tuple[tuple[str, int], ...] = ()
    """Sessions that it was forked from, each with the last message that they share: its memories are theirs."""
    history_hash: str = ""
    """Of the conversation as a client of the HTTP service resends it (see routes/openai.py); empty: none does."""
    created_at: datetime
    updated_at: datetime
    used: int = Field(default_factory=lambda fields: count_microseconds(fields["updated_at"]))
    """Orders the sessions of a store by their last use: by the clock, and greater than all before it at every use."""

    @property
    def display_title(self) -> str:
        """The title without texts of files, of which earlier releases made it, too; what people are shown."""
        return cut_title(self.title)

    @property
    def owner(self) -> Owner:
        return Owner(self.user_id)

    @field_validator("title", "last_message")
    @classmethod
    def _hide_secrets(cls, text: str) -> str:
        """Programs read them in lists, which people paste into reports; earlier releases stored some as they were."""
        return redact(text)


class SessionFilter(_Record):
    """Selects the sessions that match every field that is set."""

    status: SessionStatus | None = None
    text: str = ""
    """Part of the id, the title or the last message, in any case."""
    title: str | None = None
    """The whole title, in any case."""
    session_id: str = ""
    """The whole id."""
    prefix: str = ""
    """Beginning of the id."""
    since: datetime | None = None
    """Last used at this time or later."""
    before: datetime | None = None
    """Last used before this time."""
    owner: Owner | Everybody
    has_messages: bool = False
    """Leave out sessions without a message: their first question could not be stored."""
    history_hash: str = ""
    fork_of: str = ""
    """Share messages with the session that has this id."""
    cut_off: bool = False
    """The last turn may have been cut off: the session has an owner and its status is active or interrupted."""


class ListedSession(_Record):
    """A session with what a list shows beside it."""

    session: SessionRecord
    turns: int
    conversation_length: int = 0
    """Messages of the conversation: the user's, and final answers."""
    confidence: float | None = None
    """Of the last answer."""
    escalated: bool = False
    """Of the last answer."""


class PublicSession(BaseModel, frozen=True):
    """A session as every front end shows it; one may leave parts out, and none has others."""

    session_id: str
    """As its user knows it."""
    title: str
    """Without the texts of files, of which earlier releases made it, too."""
    status: SessionStatus
    """interrupted: a turn was cut off; deleting: a deletion has begun."""
    turns: int
    message_count: int = 0
    """Every message of the log."""
    last_message: str = ""
    """The beginning of the last question or answer, of the versions that are shown."""
    confidence: float | None
    """Of the last answer."""
    escalated: bool
    """Of the last answer."""
    model: str = ""
    config_path: str = ""
    """The configuration that it began with; empty for users of a service."""
    description: str = ""
    project: str
    """Empty: none."""
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, listed: ListedSession) -> "PublicSession":
        title = {"title": listed.session.display_title}
        return cls.model_validate(listed.session.model_dump() | listed.model_dump(exclude={"session"}) | title)


class SessionCounts(_Record):
    sessions: int = 0
    active: int = 0
    messages: int = 0
    bytes: int = 0
    """Of their events, and of the files that came with questions."""
    by_status: dict[str, int] = Field(default_factory=dict[str, int])


class MessageRecord(_Record):
    """One row of chat_messages."""

    id: str
    session_id: str
    seq: int
    """Orders the messages of a session."""
    turn: int
    round: int
    kind: MessageKind
    role: str
    agent_id: str | None = None
    content: str
    final: bool = False
    """This is the final answer of its turn."""
    tokens: int | None = None
    confidence: float | None = None
    escalated: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    created_at: datetime

    @property
    def agent_name(self) -> str:
        """The name of its agent for people, as far as the message says it, or the id; "" for the user."""
        return str(self.metadata.get("agent_type") or self.agent_id or "")

    @property
    def public_text(self) -> str:
        """The text; of a reply to the agents the name of what they asked for, because it may hold a secret value."""
        param = self.metadata.get("param")
        is_value = isinstance(param, str) and self.metadata.get("is_value", True)
        return f"[{param}]" if is_value else self.content

    @property
    def speaker(self) -> Literal["user", "assistant"]:
        """Of a message of the conversation."""
        return "user" if self.kind == "user" else "assistant"

    def hide_values(self, text: str, values: Mapping[str, object]) -> str:
        """Return the text with names for values, but of the one that the message asks for: it was not given yet."""
        asked = self.metadata.get("waiting_for") or self.metadata.get("asks_for")
        return mask(text, {name: value for name, value in values.items() if name != asked})


class MessageToRecord(_Record):
    """A message that is to become a memory, with what its session knows."""

    message: MessageRecord
    group: str = ""
    """As `SessionRecord.memory_group`."""
    project: str = ""
    """As `SessionRecord.project`."""
    params: dict[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    """Values that must not leave the session, by name."""
    winner: str | None = None
    """Winner of the message's turn; None until that turn is complete."""
    is_forgotten: bool = False
    """It is not to be a memory, in this process or another: the user has forgotten one of it."""


class TurnPlace(_Record):
    """Where a turn stands among the turns of its session."""

    turn: int
    status: TurnStatus
    parent: int | None = None
    """As in `TurnStarted`."""
    withdrawn: bool = False
    """Another version is shown in its place, or in that of a turn before it."""

    @property
    def stands(self) -> bool:
        """Whether it is part of the conversation."""
        return not self.withdrawn and self.status != "undone"


class TurnRecord(TurnPlace):
    """One row of turns."""

    session_id: str
    question: str
    winner: str | None = None
    answer: str | None = None
    """The final answer, once status is completed."""
    seed: int
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether the turn has no final answer and was not given up."""
        return self.status in ("running", "interrupted", "failed", "waiting")


class RecordingJob(_Record):
    """One row of recordings: a part of the log that is to become memories."""

    session_id: str
    seq: int
    """The last message that the job covers."""
    message_id: str
    kind: RecordingKind
    """episode: the message, word for word; complete: the turn ended, and agent_id won it, or it was undone; extract:
    facts from what agent_id did in the turn after `since` and up to `seq`."""
    agent_id: str | None
    """None: the user."""
    turn: int
    position: int | None = None
    """Number of the episode in its session, from 0."""
    since: int | None = None
    status: RecordingStatus
    attempts: int
    reason: str | None = None
    """Why the last attempt failed."""
    created_at: datetime
    next_attempt_at: datetime | None = None
    forgotten: tuple[tuple[int, ...], ...] = ()
    """Facts that must not come of it again, each as the numbers of its words."""


class RecordingCounts(_Record):
    """Jobs of the recording queue by status."""

    pending: int = 0
    done: int = 0
    failed: int = 0
    """Given up."""
    reason: str | None = None
    """Why the newest job that did not succeed failed."""
    messages: int = 0
    """Messages among the pending jobs."""
    retrying: int = 0
    """Pending jobs that have failed before."""
    oldest: datetime | None = None
    """When the oldest pending job was queued."""
    forgotten_facts: int = 0
    """Facts that are not to be found again in the messages of jobs."""

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(exclude={"forgotten_facts"})


class SessionState(_Record):
    """One row of session_state: what the agents know of the user's wishes. Its values are never logged."""

    params: dict[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    waiting_for_param: str | None = None
    """Name of the value that the user is asked for."""
    last_intent_id: str | None = None
    plan_execution: dict[str, Any] | None = Field(default=None, repr=False)
    last_result: dict[str, Any] | None = Field(default=None, repr=False)
    updated_at: datetime | None = None
    """None: nothing was saved yet."""


class LogEntry(_Record):
    """One event of a session's log as it is stored, for a move to another store."""

    seq: int
    turn: int
    payload: str = Field(repr=False)
    """The event as JSON."""
    recordings: tuple[RecordingJob, ...] = ()
    """The recording jobs of the event, in their present state."""


class SessionCopy(_Record):
    """A session as a store holds it beside its log, for a move to another store."""

    session: SessionRecord
    state: SessionState
    abandoned: tuple[int, ...] = ()
    """Turns that were given up without an event that says so."""
    files: tuple[str, ...] = ()
    """Hashes of its files, in order."""


MIN_RECORDED_LENGTH = 10
"""Characters."""


def is_remembered(message: MessageRecord) -> bool:
    """Return whether the message may become a memory: false when memory was off for its author."""
    return message.metadata.get("remember", True) is not False


def is_worth_recording(text: str) -> bool:
    """Return whether a text is long enough to become a memory."""
    return len(text.strip()) >= MIN_RECORDED_LENGTH


KEY_PREFIX = "sk-massmem-"
"""How keys begin. Programs that look for leaked keys, and `massmem.core.redact`, know `sk-`."""

MAX_KEY_NAME_LENGTH = 80
"""Characters."""

MAX_SUBJECT_LENGTH = 255
"""Characters (RFC 7519, OpenID Connect)."""


class ApiKey(BaseModel, frozen=True):
    """A key as it is stored."""

    key_hash: str = Field(repr=False)
    """SHA-256 of the key, in hex."""
    id: str
    """For operators."""
    sub: str
    """The user whom it stands for."""
    name: str = ""
    """Its purpose, for people."""
    scope: str = ""
    """Further rights, as the scopes of a token."""
    last_four: str
    """The last characters of the key, by which its owner knows it again."""
    created_at: datetime
    expires_at: datetime | None = None
    """None: it is valid until it is revoked."""


class PageSession(BaseModel, frozen=True):
    """A browser, as it is stored, in which a user has entered with a key or a token.

    It holds neither of them: only what tells whether they still count.
    """

    cookie_hash: str = Field(repr=False)
    """SHA-256 of the cookie, in hex."""
    sub: str
    scope: str = ""
    key_hash: str = Field(default="", repr=False)
    """Of the API key; "": it was a token."""
    token_id: str = ""
    """The token's `jti`."""
    signed_with: str = ""
    """A mark of the secret or public key that the token was checked with."""
    used_at: datetime
    """Of the last request, to a few minutes."""
    expires_at: datetime


def make_api_key(
    sub: str, now: datetime, *, name: str = "", scope: str = "", expires_at: datetime | None = None
) -> tuple[str, ApiKey]:
    """Return a new key, and what is to be stored of it. Raise InputError: the subject or the name cannot be used."""
    if not is_subject(sub):
        raise InputError(f"a subject has 1 to {MAX_SUBJECT_LENGTH} printable characters", "give a user's name or id")
    if len(name) > MAX_KEY_NAME_LENGTH or not name.isprintable():
        raise InputError(f"the name of a key has {MAX_KEY_NAME_LENGTH} printable characters at most", "shorten --name")
    text = KEY_PREFIX + secrets.token_hex(32)
    key = ApiKey(
        key_hash=hash_api_key(text),
        id=f"key_{secrets.token_hex(4)}",
        sub=sub,
        name=name,
        scope=scope,
        last_four=text[-4:],
        created_at=now,
        expires_at=expires_at,
    )
    return text, key


def is_api_key(token: str) -> bool:
    """Whether a bearer token is one of our keys; else it is a JSON Web Token."""
    return token.startswith(KEY_PREFIX)


def hash_api_key(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def is_subject(sub: object) -> bool:
    return isinstance(sub, str) and 0 < len(sub) <= MAX_SUBJECT_LENGTH and sub.isprintable() and bool(sub.strip())
