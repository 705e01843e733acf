"""The index as mem0 sees it. Imports mem0: only massmem.memory.extraction.mem0_pipeline may import this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

# mem0 has no type stubs.
from mem0.vector_stores.base import VectorStoreBase  # pyright: ignore[reportMissingTypeStubs]

from massmem.core.errors import MemoryUnavailable
from massmem.memory.access import visible_to
from massmem.memory.extraction.task import Known, Origin
from massmem.memory.index import valid_ids
from massmem.memory.persistent import Scope, Selection

_MOST_KNOWN = 500
"""Facts of an agent in a session among which those that bear on a conversation are looked for, newest first."""

_Store: Any = VectorStoreBase  # its methods say that they return nothing


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory as mem0 reads it from a store."""

    id: str
    score: float
    payload: dict[str, Any]


class IndexStore(_Store):
    """mem0's `vector_store`: the facts of one agent in one session, as they stand in the index.

    What mem0 inserts is only acknowledged: the statements go on as Facts, and PersistentMemory.add_facts writes them,
    with the ids, words and vectors that the index needs, all in one batch.
    """

    def __init__(self, known: Known | None, origin: Origin, learn: Callable[[str], None]) -> None:
        self._known = known
        self._origin = origin
        self._learn = learn
        self._facts = Selection(session_id=origin.session_id, agent_id=origin.agent_id, kind="fact")

    def insert(self, vectors: Any, payloads: Any = None, ids: Any = None) -> None:
        """Accepts everything, see above."""

    def search(
        self, query: str, vectors: Sequence[float], top_k: int = 5, filters: Any = None
    ) -> Sequence[StoredMemory]:
        """What bears on the conversation of what the agent knows; the model is shown it, so as not to say it again."""
        rows = {memory.id: memory for memory in self.list()}
        best = list(rows)[:top_k]
        if self._known is not None and vectors and len(rows) > top_k:
            scope = Scope(self._origin.session_id, self._origin.agent_id, self._origin.turn)
            condition = visible_to(scope, valid_ids(int(key) for key in rows))
            ranked = self._known.index.search_meaning(vectors, condition, top_k)
            best = [str(key) for key, _ in ranked] or best
        for key in best:
            self._learn(rows[key].payload["data"])
        return [rows[key] for key in best]

    def list(self, filters: Any = None, top_k: int | None = None) -> Sequence[StoredMemory]:
        """The agent's facts, newest first, that make finding them again pointless.

        What an agent found in a turn that it lost stays hidden from the others. Found again in one that it won, or may
        still win, it is new to them: it does not count as known then.
        """
        if self._known is None:
            return []
        page = self._known.index.page(self._facts, top_k or _MOST_KNOWN, 0)
        rows = [StoredMemory(str(key), 0.0, payload) for key, payload in page]
        return [row for row in rows if self._is_known(row.payload)]

    def _is_known(self, fact: Mapping[str, Any]) -> bool:
        if not (self._origin.won or self._origin.undecided):
            return True
        # What the turn itself gave is shown to the others as soon as the turn is won.
        return fact["turn"] == self._origin.turn or (fact["won"] and fact["turn"] < self._origin.turn)

    def get(self, vector_id: str) -> StoredMemory | None:
        found = self._known.index.read_payloads([int(vector_id)]) if self._known is not None else {}
        return next((StoredMemory(vector_id, 0.0, payload) for payload in found.values()), None)

    def list_cols(self) -> Sequence[str]:
        return ("massmem",)

    def col_info(self) -> dict[str, int]:
        return {"points_count": self._known.index.count(self._facts) if self._known is not None else 0}

    def create_col(self, name: str, vector_size: int, distance: str) -> NoReturn:
        _refuse("create a collection")

    def update(self, vector_id: str, vector: Any = None, payload: Any = None) -> NoReturn:
        _refuse("change a memory")

    def delete(self, vector_id: str) -> NoReturn:
        _refuse("delete a memory")

    def delete_col(self) -> NoReturn:
        _refuse("drop the collection")

    def reset(self) -> NoReturn:
        _refuse("drop the collection")


def _refuse(what: str) -> NoReturn:
    """Episodes stand in the same collection; mem0 only finds facts, and may not touch anything."""
    raise MemoryUnavailable(f"mem0 may not {what}")
