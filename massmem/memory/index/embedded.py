"""The index in this process: qdrant-edge, one folder, one process at a time, any number of threads."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from massmem.core.errors import InputError
from massmem.memory.index.payload import is_private
from massmem.memory.index.shard import MEANING, WORDS, Shard
from massmem.memory.index.visible import (
    All,
    Condition,
    Ids,
    OneOf,
    Point,
    Span,
    Visible,
    nearest_among,
    possible,
    seen_by,
    selected,
    settled,
    stored,
    told,
    unseen,
)
from massmem.memory.persistent import Selection

_WRITTEN = 32
"""Points in one write: no other thread of the process goes on meanwhile, for 4 ms."""

_READ = 256
"""Points in one read: others wait for one part, not for all."""

_FLUSH_EVERY = 10_000
"""Points between flushes: bounds what has to be read again after the process was killed."""

_ALL = 1_000_000_000


class EmbeddedIndex:
    """Points on disk in `folder`. dims: size of the vectors; 0 or None: words only, `semantic` finds nothing.

    wait: seconds for another process that has the folder open. What a method stored survives SIGKILL when it has
    returned, and a loss of power after `sync`.

    Raises (all methods): MemoryUnavailable: another process has the folder open, the disk is full, the index is
    damaged or closed.
    """

    def __init__(self, folder: Path, dims: int | None, wait: float = 1.0) -> None:
        self._dims = dims or 0
        self._shard = Shard(folder, self._dims, wait)
        self.rows_file = folder / "shard" / "rows.npz"
        """Where the table of rows is kept: a shard that is made anew or set aside takes it along."""
        self._unflushed = 0

    def upsert(self, points: Sequence[Point]) -> None:
        """Store, or replace those with the same ids; found when this returns."""
        for start in range(0, len(points), _WRITTEN):
            batch = [self._point(point) for point in points[start : start + _WRITTEN]]
            with self._shard.writing() as shard:
                shard.update(edge.UpdateOperation.upsert_points(batch))
        self._unflushed += len(points)
        if self._unflushed >= _FLUSH_EVERY:
            self.flush()

    def lexical(self, terms: Mapping[int, float], visible: Visible, limit: int) -> list[tuple[int, float]]:
        """Points that share a word with the terms: id and sum of weight times weight times IDF, best first."""
        if not terms or limit < 1:
            return []
        query = edge.Query.Nearest(edge.SparseVector(list(terms), list(terms.values())), using=WORDS)
        return self._query(query, _condition(visible), limit)

    def semantic(
        self, vector: Sequence[float], visible: Visible | None, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """Points nearest in meaning: id and cosine, best first. among: of these ids only.

        visible None: of `among` whoever may see them, for one who has asked that already.
        """
        if not self._dims or limit < 1 or (among is not None and not among):
            return []
        query = edge.Query.Nearest(list(vector), using=MEANING)
        return self._query(query, nearest_among(visible, among), limit)

    def told_between(self, day_from: int, day_to: int, visible: Visible, limit: int) -> list[int]:
        """Ids of what was said on these days (ordinals, both included), oldest first."""
        return self._ordered(visible.condition(told(day_from, day_to)), limit, newest_first=False)

    def payloads(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Payloads by id, of those that there are."""
        with self._shard.reading() as shard:
            records = shard.retrieve(list(possible(ids).ids), True, False)
            return {record.id: record.payload or {} for record in records if isinstance(record.id, int)}

    def set_won(self, session_id: str, turn: int, agent_id: str) -> list[int]:
        """What this agent said in this turn may be seen by the others from now on; returns the ids of what changed."""
        with self._shard.writing() as shard:
            request = edge.ScrollRequest(
                limit=_ALL, filter=_filter(unseen(session_id, turn, agent_id)), with_payload=["group", "f"]
            )
            ids_of: dict[str, list[int]] = {}
            for record in shard.scroll(request)[0]:
                payload = record.payload or {}
                if not is_private(payload):
                    ids_of.setdefault(payload.get("group", ""), []).append(_id(record))
            for group, ids in ids_of.items():
                seen = seen_by({"run_id": session_id, "agent_id": agent_id, "group": group, "won": True})
                shard.update(edge.UpdateOperation.set_payload([*ids], {"won": True, "seen": seen}))
            return [point_id for ids in ids_of.values() for point_id in ids]

    def page(self, selection: Selection, limit: int, offset: int = 0) -> list[tuple[int, dict[str, Any]]]:
        """Id and payload, newest first."""
        ids = self._ordered(selected(selection), offset + limit, newest_first=True)[offset:]
        payloads = self.payloads(ids)
        return [(point_id, payloads[point_id]) for point_id in ids if point_id in payloads]

    def everything(self) -> Iterator[list[tuple[int, dict[str, Any]]]]:
        """Id and payload of all points, in parts small enough that nobody waits for one."""
        offset: edge.PointId | None = None
        while True:
            with self._shard.reading() as shard:
                records, offset = shard.scroll(edge.ScrollRequest(offset=offset, limit=_READ, with_payload=True))
            yield [(_id(record), record.payload or {}) for record in records]
            if offset is None:
                return

    def count(self, selection: Selection) -> int:
        with self._shard.reading() as shard:
            return shard.count(edge.CountRequest(exact=True, filter=_filter(selected(selection))))

    def values(self, key: str) -> dict[str, int]:
        """Every value of run_id, agent_id or kind, and how many points have it."""
        with self._shard.reading() as shard:
            facets = shard.facet(edge.FacetRequest(key, limit=_ALL, exact=True))
            return {str(hit.value): hit.count for hit in facets.hits}

    def delete(self, selection: Selection, *, erase: bool = True) -> int:
        """Delete, and return how many that were.

        erase: leave nothing of them on the disk, either. It writes the whole index anew: about 10 s for 100,000.

        Raises:
            InputError: nothing is selected.
        """
        if selection == Selection():
            raise InputError("nothing was selected to delete", "name a session, an agent, a turn or memories")
        found = self.count(selection)
        if found:
            with self._shard.removing(erase=erase) as shard:
                shard.update(edge.UpdateOperation.delete_points_by_filter(_filter(selected(selection))))
        return found

    def sync(self) -> None:
        """What was stored survives a loss of power when this returns. A few milliseconds, unlike `flush`."""
        self._shard.sync()

    def flush(self) -> None:
        self._unflushed = 0
        self._shard.flush()

    def close(self) -> None:
        self._shard.close()

    def _point(self, point: Point) -> edge.Point:
        vectors: dict[str, edge.NamedVector] = {
            WORDS: edge.SparseVector(list(point.sparse), list(point.sparse.values()))
        }
        if self._dims and point.dense is not None:
            vectors[MEANING] = list(point.dense)
        return edge.Point(point.id, vectors, stored(point.payload))

    def _query(self, query: edge.Query, condition: All, limit: int) -> list[tuple[int, float]]:
        with self._shard.reading() as shard:
            hits = shard.query(edge.QueryRequest(limit=limit, query=query, filter=_filter(condition)))
            return [(hit.id, hit.score) for hit in hits if isinstance(hit.id, int)]  # none other is ever stored

    def _ids(self, condition: All, limit: int) -> list[int]:
        request = edge.ScrollRequest(limit=limit, filter=_filter(condition), with_payload=False)
        with self._shard.reading() as shard:
            return [_id(record) for record in shard.scroll(request)[0]]

    def _ordered(self, condition: All, limit: int, *, newest_first: bool) -> list[int]:
        order = edge.OrderBy("at", edge.Direction.Desc if newest_first else edge.Direction.Asc)
        request = edge.ScrollRequest(limit=max(limit, 1), filter=_filter(condition), with_payload=False, order_by=order)
        with self._shard.reading() as shard:
            found = [(int(record.order_value or 0), _id(record)) for record in shard.scroll(request)[0]]
        if not found:
            return []
        last = found[-1][0]
        ties = self._ids(All((condition, Span("at", last, last))), _ALL)
        return settled(found, ties, newest_first=newest_first)[:limit]


def _id(point: edge.Record | edge.ScoredPoint) -> int:
    assert isinstance(point.id, int)  # none other is ever stored
    return point.id


@lru_cache(256)
def _condition(visible: Visible) -> All:
    return visible.condition()


def _filter(condition: All) -> edge.Filter:
    """Who may see what is asked several times in each search, and is as long to translate as to answer."""
    ids = [part for part in condition.of if isinstance(part, Ids)]
    if not ids:
        return _kept_filter(condition)
    rest = All(tuple(part for part in condition.of if not isinstance(part, Ids)), condition.none_of)
    return edge.Filter(must=[*map(_translated, ids), _kept_filter(rest)])


@lru_cache(256)
def _kept_filter(condition: All) -> edge.Filter:
    return edge.Filter(
        must=[_translated(part) for part in condition.of], must_not=[_translated(part) for part in condition.none_of]
    )


def _translated(condition: Condition) -> "edge.ConditionType":
    match condition:
        case OneOf(key, values):
            return edge.FieldCondition(key, match=edge.MatchAny(list(values)))
        case Span(key, first, last):
            return edge.FieldCondition(key, range=edge.RangeFloat(gte=first, lte=last))
        case Ids(ids):
            return edge.HasIdCondition(set(ids))
        case All():
            return _filter(condition)
