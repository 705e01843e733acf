"""Who sees what over whole turns: three agents, drafts and revisions, turns that nobody wins and one that crashes.

Every record carries a random mark; a mark that is shown to who may not see it is a leak, one that is not shown to who
may is a miss. The same protocol is put to memories with classic mistakes: it must find those.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Protocol

from massmem.config.models import MemoryConfig, PersistentMemoryConfig
from massmem.memory import open_memory
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Episode, RecallOptions, Scope

AGENTS = ("a1", "a2", "a3")
TURNS = 10
CRASHED = 7
"""Never completed."""
NOBODY = 5
"""Every fifth turn has no winner."""
TOPICS = ("billing", "search", "login", "export", "import", "backup", "quota", "theme", "locale", "audit")
SESSION = "s"
_START = datetime(2026, 1, 1, tzinfo=UTC)
_ROOM = RecallOptions(4_000)


@dataclass(frozen=True, slots=True)
class Record:
    agent: str
    turn: int
    part: int
    topic: str
    mark: str

    @property
    def text(self) -> str:
        return (
            f"{self.agent} on {self.topic} number {self.turn}, part {self.part}: we decided {self.mark} "
            f"after a look at {self.topic}."
        )


@dataclass
class Found:
    """forbidden, allowed: how often it was looked whether a mark is shown."""

    forbidden: int = 0
    allowed: int = 0
    leaks: int = 0
    misses: int = 0


class Target(Protocol):
    """What is put to the protocol."""

    async def say(self, record: Record) -> None: ...
    async def complete(self, turn: int, winner: str) -> None: ...
    async def shown(self, agent: str, turn: int, query: str) -> str: ...


class Massmem:
    """massmem's memory, recording and recall, as the agents of a session use it."""

    def __init__(self, memory: IndexedMemory) -> None:
        self._memory = memory
        self._said = 0

    async def say(self, record: Record) -> None:
        when = _START + timedelta(minutes=self._said)
        episode = Episode(SESSION, f"m{self._said}", self._said, record.turn, record.agent, record.text, when)
        self._said += 1
        await self._memory.record([episode])

    async def complete(self, turn: int, winner: str) -> None:
        await self._memory.complete_turns([(SESSION, turn, winner)])

    async def shown(self, agent: str, turn: int, query: str) -> str:
        return (await self._memory.recall(query, Scope(SESSION, agent, turn), _ROOM)).text


Rule = Callable[[Record, str, int, dict[int, str]], bool]
"""record, who asks, in which turn, winners: may it be shown?"""

MISTAKES: dict[str, Rule] = {
    "no filter": lambda r, agent, turn, won: True,
    "who won once is seen always": lambda r, agent, turn, won: r.agent == agent or r.agent in won.values(),
    "a crashed turn counts as won": lambda r, agent, turn, won: r.agent == agent or won.get(r.turn, r.agent) == r.agent,
}


@dataclass
class Mistaken:
    """A plain memory with a wrong rule. most: of the best are looked at before the rule is applied, None for all."""

    rule: Rule
    most: int | None = None
    said: list[Record] = field(default_factory=list[Record])
    won: dict[int, str] = field(default_factory=dict[int, str])

    async def say(self, record: Record) -> None:
        self.said.append(record)

    async def complete(self, turn: int, winner: str) -> None:
        self.won[turn] = winner

    async def shown(self, agent: str, turn: int, query: str) -> str:
        asked = set(query.lower().replace("?", "").split())
        best = sorted(self.said, key=lambda r: -len(asked & set(r.text.lower().replace(",", "").split())))[: self.most]
        return "\n".join(r.text for r in best if self.rule(r, agent, turn, self.won))


def right(record: Record, agent: str, turn: int, won: dict[int, str]) -> bool:
    """The rule of the design."""
    return record.agent == agent or (record.turn < turn and won.get(record.turn) == record.agent)


async def walk(target: Target, seed: int) -> Found:
    """Play TURNS turns, and look in their middle and after them."""
    random = Random(seed)
    found, said, won = Found(), list[Record](), dict[int, str]()
    for turn in range(1, TURNS + 1):
        for part in (1, 2):
            for agent in random.sample(AGENTS, len(AGENTS)):
                said.append(Record(agent, turn, part, TOPICS[turn % len(TOPICS)], f"MK{secrets.token_hex(6)}"))
                await target.say(said[-1])
        if turn <= 4 or turn == TURNS:
            await _look(target, said, won, turn, found)
        if turn != CRASHED and turn % NOBODY:
            won[turn] = random.choice(AGENTS)
            await target.complete(turn, won[turn])
        if turn <= 4 or turn in (NOBODY, CRASHED, TURNS):
            await _look(target, said, won, turn + 1, found)
    return found


async def _look(target: Target, said: Sequence[Record], won: dict[int, str], turn: int, found: Found) -> None:
    for agent in AGENTS:
        for record in said:
            allowed = right(record, agent, turn, won)
            for query in (
                f"What did we decide about {record.topic} number {record.turn}?",
                f"{record.mark} {record.topic}",
            ):
                seen = record.mark in await target.shown(agent, turn, query)
                found.allowed += allowed
                found.forbidden += not allowed
                found.misses += allowed and not seen
                found.leaks += seen and not allowed


def of_massmem(folder: Path, seeds: Sequence[int] = (1, 2, 3)) -> Found:
    """All seeds together, each with a memory of its own, as it is installed with everything."""

    async def one(seed: int) -> Found:
        memory = await open_memory(MemoryConfig(persistent_memory=PersistentMemoryConfig()), folder / str(seed), {})
        try:
            return await walk(Massmem(memory), seed)
        finally:
            await memory.close()

    parts = [asyncio.run(one(seed)) for seed in seeds]
    return Found(*(sum(getattr(part, name) for part in parts) for name in ("forbidden", "allowed", "leaks", "misses")))


def mistakes_found() -> dict[str, bool]:
    """Whether the protocol finds each of the classic mistakes."""
    targets = {name: Mistaken(rule) for name, rule in MISTAKES.items()} | {
        "filtered after the top 3": Mistaken(right, 3)
    }
    found = {name: asyncio.run(walk(target, 1)) for name, target in targets.items()}
    return {name: bool(one.leaks or one.misses) for name, one in found.items()}
