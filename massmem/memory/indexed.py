"""IndexedMemory: PersistentMemory over a Qdrant index, an embedder and the pure functions beside this module."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from massmem.core.errors import EmbeddingError, InputError, MemoryUnavailable
from massmem.memory.extraction.task import Known
from massmem.memory.finding import Finder, Vector
from massmem.memory.index.payload import to_memory
from massmem.memory.index.point_ids import message_number
from massmem.memory.persistent import (
    CompletedTurn,
    Episode,
    Fact,
    Memory,
    MemoryStats,
    RecallOptions,
    RecallResult,
    Scope,
    Selection,
)
from massmem.memory.rows import MOST_ROWS, Rows
from massmem.memory.writing import Vectors, Writer

if TYPE_CHECKING:
    from massmem.memory.embedders.embedder import Embedder
    from massmem.memory.persistent import PersistentMemory
    from massmem.memory.places import Index

log = logging.getLogger(__name__)

_PLAIN = "memory"
"""A text that any embedder can embed: when this fails, it is not the text's fault."""


class IndexedMemory:
    """See PersistentMemory.

    embedder None: words alone are searched. count: tokens of a text. location: of the index, for people to read.
    note: what the user should know about this memory, may be empty. scratch: removed with the memory when it is closed.
    """

    def __init__(
        self,
        index: "Index",
        embedder: "Embedder | None",
        count: Callable[[str], int],
        location: str,
        note: str = "",
        scratch: "TemporaryDirectory[str] | None" = None,
    ) -> None:
        self.note = note
        self._scratch = scratch
        self._index = index
        self._embedder = embedder
        self._location = location
        self._closed = False
        self._rows = Rows(count)
        if index.rows_file is not None:
            self._rows.take(index.rows_file)
        self._writer = Writer(index, self._rows, self._embed, count)
        self._finder = Finder(index, self._rows, count)

    async def record(self, episodes: Sequence[Episode]) -> None:
        await asyncio.to_thread(self._writer.record, episodes)

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        return await asyncio.to_thread(self._writer.add_facts, facts)

    async def sync(self) -> None:
        await asyncio.to_thread(self._writer.sync)

    def known(self) -> Known:
        """For an extractor: what need not be found again. Safe to use from any thread until the memory is closed."""
        return Known(self._index, self._query_vector)

    async def complete_turns(self, turns: Sequence[CompletedTurn]) -> None:
        await asyncio.to_thread(self._writer.complete_turns, turns)

    async def recall(self, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
        return await asyncio.to_thread(self._recall, query, scope, options)

    async def list(self, selection: Selection, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        found = await asyncio.to_thread(self._index.page, selection, limit, offset)
        return [to_memory(point_id, stored) for point_id, stored in found]

    @property
    def folder(self) -> Path | None:
        """Of the index, which this memory has locked; None: it is on a server."""
        kept = self._index.rows_file
        return kept and kept.parents[1]

    @property
    def temporary(self) -> bool:
        return self._scratch is not None

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
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if not self._closed and self._index.rows_file is not None:
            self._rows.save(self._index.rows_file)
        self._closed = True
        self._index.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _recall(self, query: str, scope: Scope, wanted: RecallOptions) -> RecallResult:
        return self._finder.find(query, self._query_vector(query), scope, wanted)

    def _query_vector(self, query: str) -> Vector | None:
        if self._embedder is None or not query.strip():
            return None
        try:
            return self._embedder.embed_query(query)
        except EmbeddingError as e:
            log.info("searching by words alone: %s", e.message)
            return None

    def _embed(self, texts: Sequence[str]) -> Vectors:
        """Raises EmbeddingError when the embedder does not work now; a text that it cannot embed is found by words."""
        if self._embedder is None:
            return [None] * len(texts)
        try:
            return self._embedder.embed(texts)
        except EmbeddingError as e:
            self._embedder.embed([_PLAIN])
            log.warning("some memories will be found by words alone: %s", e.message)
            return [self._vector_or_none(self._embedder, text) for text in texts]

    @staticmethod
    def _vector_or_none(embedder: "Embedder", text: str) -> Vector | None:
        try:
            return embedder.embed([text])[0]
        except EmbeddingError:
            return None

    def _stats(self) -> MemoryStats:
        stored = (payload for page in self._index.everything() for _, payload in page)
        kinds = self._index.values("kind")
        return MemoryStats(
            episodes=len({message_number(p["message_ids"][0]) for p in stored if p["kind"] == "episode"}),
            passages=kinds.get("episode", 0),
            facts=kinds.get("fact", 0),
            sessions=len(self._index.values("run_id")),
            embedder=self._embedder.name if self._embedder else "none",
            location=self._location,
        )

    def _warm(self) -> None:
        try:
            if len(self._rows) >= min(self._index.count(Selection()), MOST_ROWS):
                return
            for page in self._index.everything():
                if self._closed or len(self._rows) >= MOST_ROWS:
                    return
                self._rows.add(page)
        except MemoryUnavailable as e:
            log.info("memories were not read ahead: %s", e.message)


if TYPE_CHECKING:
    _: type[PersistentMemory] = IndexedMemory
