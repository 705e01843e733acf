"""PersistentMemory: what is remembered beyond the conversation's window, who may see it, and the port to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Kind = Literal["episode", "fact"]

USER = "user"
"""Who is named as the agent of what the user said; every agent heard it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One message, word for word, on its way into memory.

    position: its place among the recorded messages of the session, from 0 and without gaps, so that neighbours are
    known. turn: when it was said. agent_id: who said it, USER for the user. won: the turn had ended when this was
    recorded, and this agent had won it; `complete_turn` says so later otherwise. group: the configured session_name,
    under which other sessions find it, "" for none.
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
class Scope:
    """Who asks, and when: what may be seen follows from it.

    session_id: the session that the agent is in. turn: the turn under way there. everywhere: other sessions too.
    named: besides this session, all sessions of the group of this name (session_name of the configuration).
    """

    session_id: str
    agent_id: str
    turn: int
    everywhere: bool = False
    named: str | None = None

    def allows(self, memory: "Memory", *, won: bool) -> bool:
        """The rule that every hit is checked against again.

        An agent sees its own memories, what the user said, and what the winner of a complete turn said in it; never
        another agent's work in progress, nor anything of the turn under way but its own.

        won: the store says that this turn is complete and that memory.agent_id won it.
        """
        here = memory.session_id == self.session_id
        if not (here or self.everywhere or (self.named is not None and memory.group == self.named)):
            return False
        if memory.agent_id == self.agent_id:
            return not here or memory.turn <= self.turn
        under_way = here and memory.turn >= self.turn
        return not under_way and (memory.agent_id == USER or won)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which memories: all that match every field that is given."""

    session_id: str | None = None
    agent_id: str | None = None
    turn: int | None = None
    kind: Kind | None = None
    ids: tuple[str, ...] = ()


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


class PersistentMemory(Protocol):
    """Searchable memories. Writing the same thing twice stores it once: ids are derived from what is stored.

    Raises (all methods): MemoryUnavailable when the index cannot be used now; nothing was written then.
    """

    async def record(self, episodes: Sequence[Episode]) -> None:
        """Store messages verbatim, as passages; searchable when this returns."""
        ...

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        """Store facts that are not there yet; returns how many were new."""
        ...

    async def complete_turn(self, session_id: str, turn: int, winner: str) -> None:
        """The turn is over and `winner` won it: what it said in that turn becomes visible to the other agents."""
        ...

    async def recall(self, query: str, scope: Scope, wanted: Wanted) -> Recalled:
        """What bears on the query among what the scope allows, packed into the budget."""
        ...

    async def list(self, selection: Selection, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        """Stored memories, newest first."""
        ...

    async def forget(self, selection: Selection) -> int:
        """Delete for good; returns how many passages and facts that were. An empty selection is refused."""
        ...

    async def stats(self) -> MemoryStats: ...

    async def close(self) -> None: ...
