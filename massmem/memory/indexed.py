"""IndexedMemory: PersistentMemory over an index, an embedder, a writer and a retriever."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from massmem.core.errors import EmbeddingError, InputError
from massmem.core.messages import Usage
from massmem.memory.claims import Chain, build_chains
from massmem.memory.extraction.prompts import KnownFacts
from massmem.memory.index import ALL_POINTS, Index, matching
from massmem.memory.index_writer import IndexWriter, Vectors
from massmem.memory.persistent import (
    CompletedTurn,
    Episode,
    Fact,
    Memory,
    MemoryChange,
    MemoryStats,
    RecallOptions,
    RecallResult,
    Scope,
    Selection,
    explain_missing_library,
)
from massmem.memory.points import (
    CountTokens,
    StatementQuery,
    find_by_words,
    find_statements,
    message_number,
    to_memory,
)
from massmem.memory.quoting import HOLDS, PASSAGES

if TYPE_CHECKING:
    from massmem.memory.embedders import Embedder
    from massmem.memory.persistent import PersistentMemory
    from massmem.memory.retrieval.retriever import Retriever, Vector

log = logging.getLogger(__name__)

_TEST_TEXT = "memory"
"""A text that any embedder can embed: when this fails, it is not the text's fault."""


class IndexedMemory:
    """See PersistentMemory."""

    def __init__(
        self,
        index: Index,
        embedder: "Embedder | None",
        count: CountTokens,
        location: str,
        note: str = "",
        scratch: "TemporaryDirectory[str] | None" = None,
    ) -> None:
        """embedder: None: words alone are searched. count: tokens of a text.

        location: of the index, for people to read. note: what the user should know about this memory, may be empty.
        scratch: removed with the memory when it is closed.
        """
        self.note = note
        self.is_compared = False
        """Whether the store was asked for what it should hold since it was opened."""
        self.mark_file = Path()  # see massmem.recording.comparison
        self._scratch = scratch
        self._index = index
        self._count = count
        self._embedder = embedder
        self._used = [embedder.take_usage()] if embedder else []
        self.report_usage: Callable[[Usage], None] = lambda _: None
        """Is told what writing has used."""
        self._location = location
        self._writer = IndexWriter(index, self._embed, count)

    @cached_property
    def _retriever(self) -> "Retriever":
        """Made for the first search: a list needs no numpy. Raises MemoryUnavailable: it cannot be loaded."""
        try:
            from massmem.memory.retrieval.retriever import Retriever
        except (ImportError, MemoryError) as e:
            raise explain_missing_library(e) from e
        return Retriever(self._index, self._count, self._embed_queries, self._embedder)

    def leave_claims_to_model(self) -> None:
        """Read no claims in the user's statements from now on: a model that extracts facts names them."""
        self._writer.reads_claims = False

    async def record(self, episodes: Sequence[Episode]) -> None:
        await asyncio.to_thread(self._write, self._writer.record, episodes)

    async def add_facts(self, facts: Sequence[Fact]) -> int:
        return await asyncio.to_thread(self._write, self._writer.add_facts, facts)

    async def change(self, memory_id: str, change: MemoryChange) -> None:
        await asyncio.to_thread(self._write, self._writer.change, int(memory_id), change)

    async def sync(self) -> None:
        await asyncio.to_thread(self._writer.sync)

    def get_known_facts(self) -> KnownFacts:
        """Return what an extractor need not extract again. Safe to use from any thread until the memory is closed."""
        return KnownFacts(self._index, partial(self._write, self._embed_query))

    async def complete_turns(self, turns: Sequence[CompletedTurn]) -> None:
        await asyncio.to_thread(self._writer.complete_turns, turns)

    async def recall(self, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
        return await asyncio.to_thread(self._recall, query, scope, options)

    def take_usage(self) -> Usage:
        used, self._used = self._used, []
        return sum(used, Usage())

    def _write(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do work that may embed texts, and count what that took."""
        try:
            return work(*arguments)
        finally:
            if self._embedder is not None and (usage := self._embedder.take_usage()).requests:
                self._used.append(usage)
                self.report_usage(usage)

    async def note_use(self, memories: Sequence[Memory]) -> None:
        """Note which facts an agent was shown."""
        if ids := [int(memory.id) for memory in memories if memory.kind == "fact"]:
            await asyncio.to_thread(self._index.set_payload, ids, {"used": True})

    async def read_history(self, query: str, scope: Scope) -> "Sequence[Chain]":
        """Return what was claimed on what the query names, among what the scope may see: best topic first."""
        return await asyncio.to_thread(self._retriever.read_history, query, scope)

    async def list(self, selection: Selection, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        page = await asyncio.to_thread(self._index.page, selection, limit, offset)
        return [to_memory(point_id, payload) for point_id, payload in page]

    async def list_ids(self, selection: Selection) -> Sequence[int]:
        """Return the ids of all memories that are selected, in any order."""
        points = await asyncio.to_thread(self._index.list_seconds, matching(selection), ALL_POINTS, newest_first=True)
        return [point_id for _, point_id in points]

    async def list_sessions(self) -> frozenset[str]:
        return frozenset(await asyncio.to_thread(self._index.count_values, "run_id"))

    async def erase_deleted(self) -> None:
        """Leave nothing on the disk of what was forgotten before, when that was cut off."""
        await asyncio.to_thread(self._index.erase_deleted)

    async def find_statements(self, query: StatementQuery) -> "Sequence[Memory]":
        """Return the memories that say a statement. See massmem.memory.points."""
        return await asyncio.to_thread(find_statements, self._index, query)

    async def find_near(self, text: str, selection: Selection, limit: int) -> "Sequence[Memory]":
        """Return what shares words with a text, or is near in meaning, with the cosine as its score; 0 by words."""
        return await asyncio.to_thread(self._find_near, text, selection, limit)

    @property
    def folder(self) -> Path | None:
        """The folder of the index, which this memory has locked; None: it is on a server."""
        return self._index.folder

    @property
    def temporary(self) -> bool:
        return self._scratch is not None

    async def forget(self, selection: Selection) -> int:
        if selection == Selection():
            raise InputError("nothing was selected to forget", "name a session, an agent, a turn or memories")
        return await asyncio.to_thread(self._writer.forget, selection)

    async def stats(self) -> MemoryStats:
        return await asyncio.to_thread(self._stats)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._index.close()
        if self._embedder is not None:
            self._embedder.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _recall(self, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
        with suppress(EmbeddingError):
            self._writer.copy_outside()
        pins = self._retriever.read_pins(scope, options)
        exclude = options.exclude.union(memory.id for memory in pins.pinned)
        rest = replace(options, max_tokens=options.max_tokens - pins.tokens, exclude=exclude, pinned=pins.pinned)
        result = self._retriever.recall(query, scope, rest)
        heading = PASSAGES if pins.text and result.text and not (options.plain or result.text.startswith(HOLDS)) else ""
        return replace(
            result,
            text="\n".join(filter(None, (pins.text, heading, result.text))),
            tokens=pins.tokens + result.tokens,
            pinned=pins.pinned,
            pins_left_out=pins.pins_left_out,
            usage=self._embedder.take_usage() if self._embedder else Usage(),
        )

    def _find_near(self, text: str, selection: Selection, limit: int) -> "Sequence[Memory]":
        near = {point_id: (payload, 0.0) for point_id, payload in find_by_words(self._index, text, selection, limit)}
        if (vector := self._embed_query(text)) is not None:
            cosines = dict(self._index.search_meaning(vector, matching(selection), limit))
            payloads = self._index.read_payloads(cosines)
            near |= {point_id: (payload, cosines[point_id]) for point_id, payload in payloads.items()}
        return [to_memory(point_id, payload, cosine) for point_id, (payload, cosine) in near.items()]

    def _embed_query(self, query: str) -> "Vector | None":
        return self._embed_queries([query])[0]

    def _embed_queries(self, queries: Sequence[str]) -> "Sequence[Vector | None]":
        """Return the vectors of questions; None: words alone decide."""
        asked = [query for query in queries if query.strip()]
        if self._embedder is None or not asked:
            return [None] * len(queries)
        try:
            vectors = dict(zip(asked, self._embedder.embed_queries(asked), strict=True))
        except EmbeddingError as e:
            log.info("searching by words alone: %s", e)
            vectors = {}
        return [vectors.get(query) for query in queries]

    def _embed(self, texts: Sequence[str]) -> Vectors:
        """Return a vector for each text, None for a text that cannot be embedded: it is found by its words.

        Raises EmbeddingError: the embedder does not work now.
        """
        if self._embedder is None:
            return [None] * len(texts)
        try:
            return self._embedder.embed(texts)
        except EmbeddingError as e:
            self._embedder.embed([_TEST_TEXT])
            log.warning("some memories will be found by words alone: %s", e)
            return [self._embed_or_skip(self._embedder, text) for text in texts]

    @staticmethod
    def _embed_or_skip(embedder: "Embedder", text: str) -> "Vector | None":
        try:
            return embedder.embed([text])[0]
        except EmbeddingError:
            return None

    def _stats(self) -> MemoryStats:
        messages: set[int] = set()
        facts: list[Memory] = []
        used = 0
        for point_id, payload in (point for page in self._index.read_pages() for point in page):
            if payload["kind"] == "episode":
                messages.add(message_number(payload["message_ids"][0]))
            else:
                used += payload.get("used", False)
                facts.append(to_memory(point_id, payload))
        entries = [entry for chain in build_chains(facts).values() for entry in chain.entries]
        kinds = self._index.count_values("kind")
        return MemoryStats(
            episodes=len(messages),
            passages=kinds.get("episode", 0),
            facts=kinds.get("fact", 0),
            sessions=len(self._index.count_values("run_id")),
            embedder=self._embedder.name if self._embedder else "none",
            location=self._location,
            facts_used=used,
            facts_contradicted=len({m.id for e in entries if e.until or e.disputed_by for m in e.memories}),
        )


if TYPE_CHECKING:
    _: type[PersistentMemory] = IndexedMemory
