"""A report of a council: what all say, what is disputed, what only one says, and what nobody covered."""

from dataclasses import dataclass
from typing import Literal

from massmem.core.messages import Citation


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    agents: tuple[str, ...]
    """Ids of those who say it."""
    sources: tuple[int, ...] = ()
    """Numbers of its sources in the report's list, from 1."""


@dataclass(frozen=True, slots=True)
class Dispute:
    text: str
    """What is disputed."""
    positions: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Preference:
    """A ballot with its reason."""

    agent_id: str
    choice: str
    """Id of the agent whose answer it is for."""
    reason: str


@dataclass(frozen=True, slots=True)
class VerdictCandidate:
    """An answer that an unsure council does not choose."""

    answer: str
    agents: tuple[str, ...]
    """Those that gave it, or voted for it."""


@dataclass(frozen=True, slots=True)
class MeasuredConfidence:
    """How often answers of a team were right in its calibration, with agreement as that of an answer."""

    right: int
    asked: int
    """Questions."""
    low: float
    high: float
    """In low to high lies the true share of right answers, with 95 % (Wilson)."""
    group: str
    """Kind of the answers that are counted: `number`, `choice` (a letter, yes or no) or `text`."""


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """What an agent program did in the folder that the user allowed it to change."""

    folder: str
    agent_id: str = ""
    """Empty: nobody began."""
    text: str = ""
    """What it says that it did."""
    changes: dict[str, str] | None = None
    """`new`, `changed` or `deleted` by the path of each file that differs from before; null: not compared."""
    error: str = ""
    """Why it was not done, or not to its end."""


@dataclass(frozen=True, slots=True)
class Report:
    made_from: Literal["answers", "votes"]
    """answers: the winner wrote it, and code checked whom and what it names; votes: code made it from equal answers and
    ballots, without a request: texts are not compared."""
    agreed: tuple[Statement, ...] = ()
    """What several say, or all."""
    disputed: tuple[Dispute, ...] = ()
    single: tuple[Statement, ...] = ()
    """What only one says."""
    missing: tuple[str, ...] = ()
    """What nobody covered."""
    verdict: str = ""
    """The conclusion, as the winner wrote it."""
    depends_on: tuple[str, ...] = ()
    """What would change it."""
    votes: tuple[Preference, ...] = ()
    """Of a report made from votes."""
    sources: tuple[Citation, ...] = ()
    dropped: int = 0
    """Claims and sources that were left out, since they named an answer or a source that does not exist."""
