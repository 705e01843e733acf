"""PersistentMemory as plainly as it can be said: a list that is searched by substring. The model for tests of others.

With a file every write is on disk when it returns, so that it outlives a kill.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.core.errors import InputError, MemoryUnavailable
from massmem.core.messages import Usage
from massmem.memory.access import may_see
from massmem.memory.persistent import (
    CompletedTurn,
    Episode,
    Fact,
    Kind,
    Memory,
    MemoryChange,
    MemoryStats,
    PersistentMemory,
    RecallOptions,
    RecallResult,
    Scope,
    Selection,
)


@dataclass
class PlainMemory:
    """away: raise MemoryUnavailable instead of doing anything; full: only for facts.

    bad: texts that cannot be recorded, with this error; lost: sessions whose turns cannot be completed. synced: how
    often `sync` was called, and `unsynced` what was stored since.
    """

    file: Path | None = None
    away: bool = False
    bad: frozenset[str] = frozenset()
    error: type[Exception] = ValueError
    lost: frozenset[str] = frozenset()
    full: bool = False
    temporary: bool = False
    synced: int = 0
    unsynced: set[str] = field(default_factory=set[str])
    found: dict[str, Memory] = field(default_factory=dict[str, Memory])
    won: set[tuple[str, int, str]] = field(default_factory=set[tuple[str, int, str]])
    positions: dict[str, int] = field(default_factory=dict[str, int])
    batches: list[int] = field(default_factory=list[int])

    def take_usage(self) -> Usage:
        return Usage()

    async def change(self, memory_id: str, change: MemoryChange) -> None:
        self._check()
        self.found[memory_id] = replace(self.found[memory_id], text=change.text)

    async def record(self, episodes: Sequence[Episode]) -> None:
        self._check()
        self.batches.append(len(episodes))
        if any(e.text in self.bad for e in episodes):
            raise self.error("the text cannot be embedded")
        for e in episodes:
            self.positions[e.message_id] = e.position
            self._add("episode", e.message_id, e, (e.message_id,))

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        if self.full:
            raise MemoryUnavailable("the disk is full")
        self._check()
        before = len(self.found)
        for f in facts:
            self._add("fact", f"{f.session_id}/{f.agent_id}/{f.text}", f, f.message_ids)
        return len(self.found) - before

    async def complete_turns(self, turns: Sequence[CompletedTurn]) -> None:
        self._check()
        if any(session_id in self.lost for session_id, _, _ in turns):
            raise self.error("the turn cannot be found")
        for session_id, turn, winner in turns:
            self.won.add((session_id, turn, winner))
            self._keep(f"won {session_id} {turn} {winner}")

    async def sync(self) -> None:
        self._check()
        self.synced += 1
        self.unsynced.clear()

    async def recall(self, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
        self._check()
        hits = [
            m
            for m in self.found.values()
            if query.lower() in m.text.lower()
            and may_see(scope, m, won=(m.session_id, m.turn, m.agent_id) in self.won)
            and not options.exclude & set(m.message_ids)
        ][: options.limit]
        return RecallResult("\n".join(m.text for m in hits), tuple(hits), sum(len(m.text) // 4 for m in hits))

    async def list(self, selection: Selection, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        self._check()
        newest = sorted(self.found.values(), key=lambda m: m.created_at, reverse=True)
        return [m for m in newest if _selects(selection, m)][offset : offset + limit]

    async def forget(self, selection: Selection) -> int:
        self._check()
        if selection == Selection():
            raise InputError("everything would be forgotten")
        gone = [m.id for m in self.found.values() if _selects(selection, m)]
        for id_ in gone:
            del self.found[id_]
        return len(gone)

    async def list_sessions(self) -> frozenset[str]:
        self._check()
        return frozenset(memory.session_id for memory in self.found.values())

    async def stats(self) -> MemoryStats:
        kinds = [m.kind for m in self.found.values()]
        sessions = len({m.session_id for m in self.found.values()})
        episodes = kinds.count("episode")
        return MemoryStats(episodes, episodes, kinds.count("fact"), sessions, "none", str(self.file))

    async def close(self) -> None:
        return

    def _check(self) -> None:
        if self.away:
            raise MemoryUnavailable("the memory is away")

    def _add(self, kind: Kind, id_: str, of: Episode | Fact, message_ids: tuple[str, ...]) -> None:
        created: datetime = of.created_at
        memory = Memory(id_, kind, of.session_id, of.turn, of.agent_id, of.text, message_ids, created, group=of.group)
        self.found[id_] = memory
        self.unsynced.add(id_)
        if of.won:
            self.won.add((of.session_id, of.turn, of.agent_id))
        self._keep(f"{kind} {id_}")

    def _keep(self, line: str) -> None:
        if self.file is None:
            return
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


def _selects(selection: Selection, memory: Memory) -> bool:
    wanted = (selection.session_id, selection.agent_id, selection.turn, selection.kind)
    has = (memory.session_id, memory.agent_id, memory.turn, memory.kind)
    return (
        all(w is None or w == h for w, h in zip(wanted, has, strict=True))
        and (not selection.ids or memory.id in selection.ids)
        and (not selection.session_ids or memory.session_id in selection.session_ids)
    )


if TYPE_CHECKING:
    _: type[PersistentMemory] = PlainMemory
