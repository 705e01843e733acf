"""What goes into the memory and comes out of it, as values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["episode", "fact"]

USER = "user"
"""Who is named as the agent of what the user said; every agent heard it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One message, word for word, on its way into memory.

    position: its place among the recorded messages of the session, from 0 and without gaps, so that neighbours are
    known. turn: when it was said. agent_id: who said it, USER for the user. won: the turn had ended when this was
    recorded, and this agent had won it; `complete_turns` says so later otherwise. group: the configured session_name,
    under which other sessions find it, "" for none. private: nobody but its agent ever sees it, whoever wins.
    """

    session_id: str
    message_id: str
    position: int
    turn: int
    agent_id: str
    text: str
    created_at: datetime
    won: bool = False
    group: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One extracted statement, and the messages that it came from."""

    session_id: str
    turn: int
    agent_id: str
    text: str
    message_ids: tuple[str, ...]
    created_at: datetime
    won: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """A stored passage or fact as it is shown. id: of the point in the index, as text."""

    id: str
    kind: Kind
    session_id: str
    turn: int
    agent_id: str
    text: str
    message_ids: tuple[str, ...]
    created_at: datetime
    score: float = 0.0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which memories: all that match every field that is given. session_ids: those of any of these sessions."""

    session_id: str | None = None
    agent_id: str | None = None
    turn: int | None = None
    kind: Kind | None = None
    ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much to recall. tokens: budget of the recalled text; limit: most memories (messages), None for no limit.

    without: ids of messages that the conversation shows verbatim, left out of the result.
    """

    tokens: int
    limit: int | None = None
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Recalled:
    """text: what is shown to a model, a line per memory in time order; memories: what it is made of, best first.

    lexical_only: the vector index could not be used, words alone were searched.
    """

    text: str = ""
    memories: tuple[Memory, ...] = ()
    tokens: int = 0
    lexical_only: bool = False


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Counts of what the index holds."""

    episodes: int
    passages: int
    facts: int
    sessions: int
    embedder: str
    location: str
