"""The index in this process: qdrant-edge, one folder, one process at a time, any number of threads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from massmem.memory.edge_shard import Shard
from massmem.memory.index import (
    ALL_POINTS,
    EVERYTHING,
    MEANING,
    WORDS,
    All,
    Condition,
    Ids,
    Index,
    OneOf,
    Payloads,
    Point,
    Span,
    matching,
    valid_ids,
)
from massmem.memory.persistent import Selection
from massmem.memory.points import add_keys

_WRITE_BATCH = 32
"""Points in one write: no other thread of the process goes on meanwhile, for 4 ms."""

_READ_BATCH = 256
"""Points in one read: others wait for one part, not for all."""

_FLUSH_EVERY = 10_000
"""Points between flushes: bounds what has to be read again after the process was killed."""


class EdgeIndex(Index):
    """See Index. What a method stored survives SIGKILL when it has returned, and a loss of power after `sync`.

    Raises (all methods): MemoryUnavailable: another process has the folder open, the disk is full, the index is
    damaged or closed.
    """

    def __init__(self, folder: Path, dims: int, wait: float = 1.0) -> None:
        """dims: size of the vectors; 0: words only. wait: seconds for another process that has the folder open."""
        self.folder = folder
        self._dims = dims
        self._shard = Shard(folder, dims, wait)
        self._unflushed = 0

    def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), _WRITE_BATCH):
            batch = [self._to_edge(point) for point in points[start : start + _WRITE_BATCH]]
            with self._shard.writing(point.id for point in points[start : start + _WRITE_BATCH]) as shard:
                shard.update(edge.UpdateOperation.upsert_points(batch))
        self._unflushed += len(points)
        if self._unflushed >= _FLUSH_EVERY:
            self.flush()

    def set_payload(self, ids: Sequence[int], fields: Mapping[str, Any]) -> None:
        with self._shard.writing(ids) as shard:
            shard.update(edge.UpdateOperation.set_payload([*ids], dict(fields)))

    def search_words(self, terms: Mapping[int, float], condition: All, limit: int) -> list[tuple[int, float]]:
        if not terms or limit < 1:
            return []
        query = edge.Query.Nearest(edge.SparseVector(list(terms), list(terms.values())), using=WORDS)
        return self._search(query, condition, limit)

    def search_meaning(self, vector: Sequence[float], condition: All, limit: int) -> list[tuple[int, float]]:
        if not self._dims or limit < 1:
            return []
        return self._search(edge.Query.Nearest(list(vector), using=MEANING), condition, limit)

    def list_seconds(self, condition: All, limit: int, *, newest_first: bool) -> list[tuple[int, int]]:
        order = edge.OrderBy("at", edge.Direction.Desc if newest_first else edge.Direction.Asc)
        request = edge.ScrollRequest(limit=limit, filter=_to_filter(condition), with_payload=False, order_by=order)
        with self._shard.reading() as shard:
            return [(int(record.order_value or 0), _id(record)) for record in shard.scroll(request)[0]]

    def read_payloads(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        payloads: dict[int, dict[str, Any]] = {}
        numbers = [*valid_ids(ids).ids]
        for start in range(0, len(numbers), _READ_BATCH):
            with self._shard.reading() as shard:
                records = shard.retrieve([*numbers[start : start + _READ_BATCH]], True, False)
                payloads |= {_id(record): record.payload or {} for record in records}
        return payloads

    def read_pages(self, condition: All = EVERYTHING) -> Iterator[Payloads]:
        where = _to_filter(condition)
        offset: edge.PointId | None = None
        while True:
            request = edge.ScrollRequest(offset=offset, limit=_READ_BATCH, filter=where, with_payload=True)
            with self._shard.reading() as shard:
                records, offset = shard.scroll(request)
                page = [(_id(record), record.payload or {}) for record in records]
            yield page
            if offset is None:
                return

    def count(self, selection: Selection) -> int:
        with self._shard.reading() as shard:
            return shard.count(edge.CountRequest(exact=True, filter=_to_filter(matching(selection))))

    def count_values(self, key: str) -> dict[str, int]:
        with self._shard.reading() as shard:
            facets = shard.facet(edge.FacetRequest(key, limit=ALL_POINTS, exact=True))
            return {str(hit.value): hit.count for hit in facets.hits}

    def delete_matching(self, condition: All, *, erase: bool) -> None:
        """As Index.delete_matching. With `erase` the whole index is written anew: half a minute for 100,000 points."""
        self._shard.delete(_to_filter(condition), erase=erase)

    def sync(self) -> None:
        """As Index.sync: a few milliseconds, unlike `flush`."""
        self._shard.sync()

    def flush(self) -> None:
        self._unflushed = 0
        self._shard.flush()

    def close(self) -> None:
        self._shard.close()

    def _to_edge(self, point: Point) -> edge.Point:
        vectors: dict[str, edge.NamedVector] = {
            WORDS: edge.SparseVector(list(point.sparse), list(point.sparse.values()))
        }
        if self._dims and point.dense is not None:
            vectors[MEANING] = list(point.dense)
        return edge.Point(point.id, vectors, add_keys(point.payload))

    def _search(self, query: edge.Query, condition: All, limit: int) -> list[tuple[int, float]]:
        with self._shard.reading() as shard:
            hits = shard.query(edge.QueryRequest(limit=limit, query=query, filter=_to_filter(condition)))
            return [(_id(hit), hit.score) for hit in hits]


def _id(point: edge.Record | edge.ScoredPoint) -> int:
    assert isinstance(point.id, int)  # no other id is ever stored
    return point.id


def _to_filter(condition: All) -> edge.Filter:
    return edge.Filter(
        must=[_to_edge_condition(part) for part in condition.must],
        must_not=[_to_edge_condition(part) for part in condition.must_not],
    )


def _to_edge_condition(condition: Condition) -> "edge.ConditionType":
    match condition:
        case OneOf(key, values):
            return edge.FieldCondition(key, match=edge.MatchAny(list(values)))
        case Span(key, first, last):
            return edge.FieldCondition(key, range=edge.RangeFloat(gte=first, lte=last))
        case Ids(ids):
            return edge.HasIdCondition(set(ids))
        case All():
            return _to_filter(condition)
