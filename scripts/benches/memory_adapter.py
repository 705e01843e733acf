"""massmem's memory for harnesses that are not asynchronous: add messages, fill a context.

It goes the way of massmem itself: `open_memory`, `record`, `recall`, with the default configuration. Whoever is named
as the agent of a message has won its turn, and "assistant" asks, so that its own words and the user's are labelled
as such and everybody else's as another agent's.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from massmem.config.models import EmbeddingConfig, MemoryConfig, PersistentMemoryConfig
from massmem.memory import open_memory
from massmem.memory.persistent import Episode, RecallOptions, RecallResult, Scope

T = TypeVar("T")

ASKER = "assistant"


def massmem(workdir: str) -> "Adapter":
    """As it is installed with everything."""
    return Adapter(Path(workdir))


def massmem_words(workdir: str) -> "Adapter":
    """Without an embedder."""
    return Adapter(Path(workdir), EmbeddingConfig(provider="none"))


class Adapter:
    """A memory of conversations, every speaker of which has won, and the thread in which its event loop runs."""

    def __init__(self, workdir: Path, embedding: EmbeddingConfig | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        persistent = PersistentMemoryConfig(embedding=embedding or EmbeddingConfig())
        config = MemoryConfig(persistent_memory=persistent)
        self._retrieval = config.retrieval
        self._memory = self._run(open_memory(config, workdir, {}))
        self._positions: dict[str, int] = {}
        self._scope = Scope("session_now", ASKER, 1, all_sessions=True)

    def add(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Messages in time order, each with id, session, turn, agent, ts and text."""
        self._run(self._memory.record([self._episode(message) for message in messages]))

    def context(self, query: str, budget: int) -> tuple[str, set[str]]:
        """What massmem shows a model within a budget of tokens, and the ids of the messages in it."""
        result = self.recall(query, budget)
        return result.text, {i for memory in (*result.pinned, *result.memories) for i in memory.message_ids}

    def recall(self, query: str, budget: int, *, abstain: bool = True) -> RecallResult:
        """As `context`; abstain: see RecallOptions."""
        options = RecallOptions(budget, self._retrieval.limit, abstain=abstain)
        return self._run(self._memory.recall(query, self._scope, options))

    def count(self) -> int:
        """Passages and facts."""
        stats = self._run(self._memory.stats())
        return stats.passages + stats.facts

    def close(self) -> None:
        self._run(self._memory.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _episode(self, message: Mapping[str, Any]) -> Episode:
        session = f"session_{message['session']}"
        position = self._positions[session] = self._positions.get(session, -1) + 1
        return Episode(
            session_id=session,
            message_id=message["id"],
            position=position,
            turn=message["turn"] + 1,
            agent_id=message["agent"],
            text=message["text"],
            created_at=datetime.fromisoformat(message["ts"]).replace(tzinfo=UTC),
            won=True,
        )
