"""The receipt of a forgetting: what was deleted, where, and how that was checked. It has no content."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from massmem.session.traces import TraceCounts


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands."""

    session_id: str
    turn: int
    memory_id: str | None = None
    """None: it is in the log alone."""


@dataclass(slots=True)
class Deletions:
    """What was deleted."""

    memories: int = 0
    """Passages and facts of the index that is in use; what else was said in a passage is recorded again."""
    other_indexes: int = 0
    """The same in indexes of other embedders, and damaged indexes that had been set aside."""
    sessions: list[str] = field(default_factory=list[str])
    """Whose log was changed."""
    events: int = 0
    """Events of these logs in which a mark took the place of a sentence."""
    values: int = 0
    """Parts of a session's state: values that the user gave, results."""
    names: int = 0
    """Names of sessions."""
    files: int = 0
    """Files that questions came with."""
    traces: TraceCounts = field(default_factory=TraceCounts)
    """Files of this machine beside store and index."""


@dataclass(slots=True)
class Checks:
    """What was looked at afterwards, and how often the statement was there."""

    messages: int = 0
    """Of the owner's sessions, read again."""
    sessions_found: int = 0
    """Sessions in which a statement is left."""
    memories_found: int = 0
    """Listed in an index."""
    questions: int = 0
    """Asked as every agent recalls, without the rule of winners, and of the log by words."""
    questions_found: int = 0
    files: int = 0
    """Files of store, index and home that were read byte by byte."""
    files_found: list[str] = field(default_factory=list[str])
    elsewhere: bool = False
    """The bytes that were found belong to a conversation of somebody else."""
    bytes_erased: bool = True
    """False: the store could not be rewritten now; parts may stay in its free space."""

    @property
    def is_clean(self) -> bool:
        count = self.sessions_found + self.memories_found + self.questions_found
        return count == 0 and self.bytes_erased and (self.elsewhere or not self.files_found)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was forgotten, and how that was checked."""

    forgotten_at: datetime
    memory_ids: Sequence[str]
    """Those that were named."""
    statements: int
    """Sentences that were looked for."""
    deleted: Deletions
    checks: Checks
    near: Sequence[Place] = ()
    """What may say the same in other words, and stays."""

    def to_dict(self) -> dict[str, Any]:
        return {"complete": self.checks.is_clean, **asdict(self), "forgotten_at": self.forgotten_at.isoformat()}
