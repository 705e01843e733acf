"""PersistentMemory: the port to what is remembered beyond the conversation's window, and who may see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from massmem.memory.memories import USER, Episode, Fact, Memory, MemoryStats, Recalled, Selection, Wanted


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


Won = tuple[str, int, str]
"""A turn that is complete: its session, its number and the agent that won it."""


class PersistentMemory(Protocol):
    """Searchable memories. Writing the same thing twice stores it once: ids are derived from what is stored.

    Raises (all methods): MemoryUnavailable when the index cannot be used now; nothing was written then.
    """

    @property
    def temporary(self) -> bool:
        """What is stored here ends with this process."""
        ...

    async def record(self, episodes: Sequence[Episode]) -> None:
        """Store messages verbatim, as passages; searchable when this returns."""
        ...

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        """Store facts that are not there yet; returns how many were new.

        One that its agent finds again keeps its id and gains the messages that it came from now; found again in a turn
        that its agent won, it becomes visible to the others after that turn.
        """
        ...

    async def complete_turns(self, won: Sequence[Won]) -> None:
        """The turns are over: what each winner said in its turn becomes visible to the other agents."""
        ...

    async def sync(self) -> None:
        """What was stored before this call survives a loss of power when it returns; a kill it survives at once."""
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
