"""Names of the keys of a Redis store and the form of what stands under them.

Of each session (massmem:KIND:SESSION), all but the last expiring together:

session     hash      version, head (JSON, see log.py), state (JSON), hash (how its message ids begin)
log         sorted    the events but for deltas, by seq; everything that was said stands here and nowhere else
deltas      sorted    the deltas, by seq
turns       hash      turn -> its row (JSON), small, also of turns that are no longer kept
words       hash      word -> in which messages and how often: "seq:times;" each; "" -> how many words each has
summaries   hash      agent -> its newest summary (JSON)
aside       hash      seq -> a message that is no longer kept and not yet recorded (JSON)
lease       hash      owner, until (milliseconds)
writers     hash      process -> the version that its last change made, and when
recordings  hash      field (see `field_of`) -> row of the queue (JSON); nothing that was said stands here

And of all sessions: massmem:id:HASH -> session id; massmem:all:created, used and expiry, the session ids by time;
massmem:all:ready:KIND and later:KIND, the pending rows of the queue in order, and those that are due later by time;
massmem:all:trouble, the rows that did not succeed, by the time of their message.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

from massmem.records import RecordingKind, RecordingRecord

PREFIX = "massmem:"

Command = tuple[str | int | float, ...]
"""A command of Redis with its arguments, or ADDWORDS or CUTWORDS of `scripts`."""

_AT_ONCE = 500
"""Arguments of one command: a program in Redis takes a few thousand."""

OfSession = Literal[
    "session", "log", "deltas", "turns", "words", "summaries", "aside", "lease", "writers", "recordings"
]  # fmt: skip
OfAll = Literal["created", "used", "expiry", "trouble"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key(kind: OfSession, session_id: str, prefix: str = PREFIX) -> str:
    return f"{prefix}{kind}:{session_id}"


def all_key(kind: OfAll) -> str:
    return f"{PREFIX}all:{kind}"


def ready_key(kind: RecordingKind) -> str:
    return f"{PREFIX}all:ready:{kind}"


def later_key(kind: RecordingKind) -> str:
    return f"{PREFIX}all:later:{kind}"


def hash_of(session_id: str) -> str:
    """How the ids of the session's messages begin, see changes.message_id."""
    return sha256(session_id.encode()).hexdigest()[:16]


def id_key(hash_: str) -> str:
    return f"{PREFIX}id:{hash_}"


def microseconds(moment: datetime) -> int:
    """Since 1970; a sorted set keeps it exactly."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def member_of(row: RecordingRecord) -> str:
    """The row's name in the queue of its kind; names in order of characters are rows in order of the queue."""
    return f"{microseconds(row.created_at):020d}\0{row.session_id}\0{row.seq:012d}\0{row.agent_id or ''}"


def session_of(member: str) -> str:
    return member.split("\0")[1]


def field_of(row: RecordingRecord) -> str:
    """The row's name among those of its session."""
    return f"{row.kind}\0{member_of(row)}"


def chunked(start: tuple[str, ...], parts: Sequence[str | int | float]) -> list[Command]:
    """The same command over all parts, which come in pairs, some at a time."""
    return [(*start, *parts[i : i + _AT_ONCE]) for i in range(0, len(parts), _AT_ONCE)]


def arguments(commands: Iterable[Command]) -> list[str | int | float]:
    """Commands as `scripts` takes them: each after the number of its parts."""
    return [part for command in commands for part in (len(command), *command)]
