"""IndexedMemory: PersistentMemory over a Qdrant index, an embedder and the pure functions beside this module."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from massmem.errors import InputError
from massmem.memory.finding import Finder
from massmem.memory.payload import is_fact, to_memory
from massmem.memory.persistent import Episode, Fact, Memory, MemoryStats, Recalled, Scope, Selection, Wanted
from massmem.memory.places import pages
from massmem.memory.rows import MOST_ROWS, Rows
from massmem.memory.writing import Vectors, Writer

if TYPE_CHECKING:
    from massmem.memory.embedder import Embedder
    from massmem.memory.persistent import PersistentMemory
    from massmem.memory.places import Index


class IndexedMemory:
    """See PersistentMemory. embedder None: words alone are searched. count: tokens of a text."""

    def __init__(self, index: "Index", embedder: "Embedder | None", count: Callable[[str], int]) -> None:
        self._index = index
        self._embedder = embedder
        self._rows = Rows(count)
        self._writer = Writer(index, self._rows, self._embed, count)
        self._finder = Finder(index, self._rows)

    async def record(self, episodes: Sequence[Episode]) -> None:
        await asyncio.to_thread(self._writer.record, episodes)

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        return await asyncio.to_thread(self._writer.add_facts, facts)

    async def complete_turn(self, session_id: str, turn: int, winner: str) -> None:
        await asyncio.to_thread(self._writer.complete_turn, session_id, turn, winner)

    async def recall(self, query: str, scope: Scope, wanted: Wanted) -> Recalled:
        return await asyncio.to_thread(self._recall, query, scope, wanted)

    async def list(self, selection: Selection, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        found = await asyncio.to_thread(self._index.page, selection, limit, offset)
        return [to_memory(point_id, stored) for point_id, stored in found]

    async def forget(self, selection: Selection) -> int:
        if selection == Selection():
            raise InputError("nothing was selected to forget", "name a session, an agent, a turn or memories")
        return await asyncio.to_thread(self._writer.forget, selection)

    async def stats(self) -> MemoryStats:
        return await asyncio.to_thread(self._stats)

    async def warm(self) -> None:
        """Read ahead what ranking needs, so that the first search is as fast as the later ones."""
        await asyncio.to_thread(self._warm)

    async def close(self) -> None:
        await asyncio.to_thread(self._index.close)

    def _recall(self, query: str, scope: Scope, wanted: Wanted) -> Recalled:
        vector = self._embed([query])[0] if query.strip() else None
        return self._finder.find(query, vector, scope, wanted)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return [None] * len(texts) if self._embedder is None else self._embedder.embed(texts)

    def _stats(self) -> MemoryStats:
        messages: set[str] = set()
        sessions: set[str] = set()
        counts = {"episode": 0, "fact": 0}
        for page in pages(self._index, Selection()):
            for _, stored in page:
                sessions.add(stored["run_id"])
                counts[stored["kind"]] += 1
                if not is_fact(stored):
                    messages.add(stored["message_ids"][0])
        return MemoryStats(
            episodes=len(messages),
            passages=counts["episode"],
            facts=counts["fact"],
            sessions=len(sessions),
            embedder=self._embedder.name if self._embedder else "none",
            location=self._index.location,
        )

    def _warm(self) -> None:
        read = 0
        for page in pages(self._index, Selection()):
            self._rows.add(page)
            read += len(page)
            if read >= MOST_ROWS:
                return


if TYPE_CHECKING:

    def _conforms(memory: IndexedMemory) -> PersistentMemory:
        return memory
