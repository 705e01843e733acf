"""The index on a Qdrant server or cluster, through the official client: the same methods as EmbeddedIndex."""

import logging
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from massmem.core.errors import InputError, MemoryUnavailable
from massmem.core.redact import redact
from massmem.memory.index.payload import is_private
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

log = logging.getLogger(__name__)

TIMEOUT = 5
"""Seconds for one request. A turn waits for memory, and can go on without it."""

MEANING, WORDS = "meaning", "words"
_BATCH = 128
_ALL = 1_000_000
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_RANGE = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
_INDEXES: dict[str, models.PayloadSchemaType | models.IntegerIndexParams] = {
    "seen": models.PayloadSchemaType.KEYWORD,
    "run_id": models.PayloadSchemaType.KEYWORD,
    "agent_id": models.PayloadSchemaType.KEYWORD,
    "kind": models.PayloadSchemaType.KEYWORD,
    "won": models.PayloadSchemaType.BOOL,
    "turn": _RANGE,
    "at": _RANGE,
}


class ServerIndex:
    """Points in `collection` at `url`, which is made when it is missing. dims: size of the vectors, 0 or None: words.

    Every write waits until the server has it. Safe to use from several threads and processes.

    Raises (all methods): MemoryUnavailable: the server cannot be reached, took longer than TIMEOUT, refused the key,
    or has the collection for another size of vectors.
    """

    rows_file = None
    """See EmbeddedIndex: others write to the server, too."""

    def __init__(self, url: str, api_key: str | None, collection: str, dims: int | None) -> None:
        self._url = redact(url)
        self._collection = collection
        self._dims = dims or 0
        with self._failures():
            self._client = _client(url, api_key)
            self._make()

    def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), _BATCH):
            batch = [self._point(point) for point in points[start : start + _BATCH]]
            with self._failures():
                self._client.upsert(self._collection, batch, wait=True)

    def lexical(self, terms: Mapping[int, float], visible: Visible, limit: int) -> list[tuple[int, float]]:
        if not terms or limit < 1:
            return []
        vector = models.SparseVector(indices=list(terms), values=list(terms.values()))
        return self._query(vector, WORDS, visible.condition(), limit)

    def semantic(
        self, vector: Sequence[float], visible: Visible | None, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        if not self._dims or limit < 1 or (among is not None and not among):
            return []
        return self._query(list(vector), MEANING, nearest_among(visible, among), limit)

    def told_between(self, day_from: int, day_to: int, visible: Visible, limit: int) -> list[int]:
        return self._ordered(visible.condition(told(day_from, day_to)), limit, newest_first=False)

    def payloads(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        wanted = list(possible(ids).ids)
        if not wanted:
            return {}
        with self._failures():
            records = self._client.retrieve(self._collection, wanted, with_payload=True, with_vectors=False)
        return {_id(record.id): record.payload or {} for record in records}

    def set_won(self, session_id: str, turn: int, agent_id: str) -> list[int]:
        ids_of: dict[str, list[int]] = {}
        for record in chain.from_iterable(self._scrolled(unseen(session_id, turn, agent_id), ["group", "f"])):
            payload = record.payload or {}
            if not is_private(payload):
                ids_of.setdefault(payload.get("group", ""), []).append(_id(record.id))
        for group, ids in ids_of.items():
            seen = seen_by({"run_id": session_id, "agent_id": agent_id, "group": group, "won": True})
            with self._failures():
                self._client.set_payload(self._collection, {"won": True, "seen": seen}, points=[*ids], wait=True)
        return [point_id for ids in ids_of.values() for point_id in ids]

    def page(self, selection: Selection, limit: int, offset: int = 0) -> list[tuple[int, dict[str, Any]]]:
        ids = self._ordered(selected(selection), offset + limit, newest_first=True)[offset:]
        payloads = self.payloads(ids)
        return [(point_id, payloads[point_id]) for point_id in ids if point_id in payloads]

    def everything(self) -> Iterator[list[tuple[int, dict[str, Any]]]]:
        for records in self._scrolled(All(), True):
            yield [(_id(record.id), record.payload or {}) for record in records]

    def count(self, selection: Selection) -> int:
        with self._failures():
            found = self._client.count(self._collection, count_filter=_filter(selected(selection)), exact=True)
        return found.count

    def values(self, key: str) -> dict[str, int]:
        with self._failures():
            facets = self._client.facet(self._collection, key, limit=_ALL, exact=True)
        return {str(hit.value): hit.count for hit in facets.hits}

    def delete(self, selection: Selection, *, erase: bool = True) -> int:
        """As EmbeddedIndex.delete; when the bytes leave its disk is the server's business, whatever `erase` says."""
        if selection == Selection():
            raise InputError("nothing was selected to delete", "name a session, an agent, a turn or memories")
        found = self.count(selection)
        if found:
            with self._failures():
                selector = models.FilterSelector(filter=_filter(selected(selection)))
                self._client.delete(self._collection, selector, wait=True)
        return found

    def sync(self) -> None:
        """Nothing to do: the server has acknowledged every write."""

    def flush(self) -> None:
        """Nothing to do, as `sync`."""

    def close(self) -> None:
        self._client.close()

    def _make(self) -> None:
        if not self._client.collection_exists(self._collection):
            _unless_there(self._create)
        has = self._client.get_collection(self._collection).config.params.vectors or {}
        meaning = has.get(MEANING) if isinstance(has, dict) else has
        size = meaning.size if meaning else 0
        if size != self._dims:
            raise MemoryUnavailable(
                f"the collection {self._collection} at {self._url} is for vectors of {size} numbers, not {self._dims}",
                "give the embedder that it was made with, or run `massmem memory rebuild`",
            )
        for key, schema in _INDEXES.items():
            self._client.create_payload_index(self._collection, key, schema, wait=True)

    def _create(self) -> None:
        vectors: dict[str, models.VectorParams] = {}
        if self._dims:
            vectors[MEANING] = models.VectorParams(
                size=self._dims, distance=models.Distance.COSINE, datatype=models.Datatype.FLOAT16
            )
        self._client.create_collection(
            self._collection,
            vectors_config=vectors,
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )

    def _point(self, point: Point) -> models.PointStruct:
        vectors: dict[str, Any] = {
            WORDS: models.SparseVector(indices=list(point.sparse), values=list(point.sparse.values()))
        }
        if self._dims and point.dense is not None:
            vectors[MEANING] = list(point.dense)
        return models.PointStruct(id=point.id, vector=vectors, payload=stored(point.payload))

    def _query(self, query: Any, using: str, condition: All, limit: int) -> list[tuple[int, float]]:
        with self._failures():
            found = self._client.query_points(
                self._collection,
                query=query,
                using=using,
                query_filter=_filter(condition),
                limit=limit,
                with_payload=False,
            )
        return [(_id(point.id), point.score) for point in found.points]

    def _ids(self, condition: All, limit: int) -> list[int]:
        return [_id(record.id) for record in self._scroll(condition, limit)]

    def _ordered(self, condition: All, limit: int, *, newest_first: bool) -> list[int]:
        direction = models.Direction.DESC if newest_first else models.Direction.ASC
        records = self._scroll(condition, max(limit, 1), models.OrderBy(key="at", direction=direction))
        found = [(int(record.order_value or 0), _id(record.id)) for record in records]
        if not found:
            return []
        last = found[-1][0]
        ties = self._ids(All((condition, Span("at", last, last))), _ALL)
        return settled(found, ties, newest_first=newest_first)[:limit]

    def _scroll(self, condition: All, limit: int, order: models.OrderBy | None = None) -> list[models.Record]:
        with self._failures():
            records, _ = self._client.scroll(
                self._collection, scroll_filter=_filter(condition), limit=limit, order_by=order, with_payload=False
            )
        return records

    def _scrolled(self, condition: All, keys: list[str] | bool) -> Iterator[list[models.Record]]:
        offset: Any = None
        while True:
            with self._failures():
                records, offset = self._client.scroll(
                    self._collection, scroll_filter=_filter(condition), limit=1_000, offset=offset, with_payload=keys
                )
            yield records
            if offset is None:
                return

    @contextmanager
    def _failures(self) -> Generator[None]:
        where = f"the Qdrant server at {self._url}"
        try:
            yield
        except UnexpectedResponse as e:
            raise _refused(where, e) from e
        except ResponseHandlingException as e:
            reason = str(e.source) or type(e.source).__name__
            raise MemoryUnavailable(
                f"{where} does not answer: {reason}", "start it, or set memory.persistent_memory.qdrant.mode: embedded"
            ) from e
        except (ApiException, ValidationError, ValueError) as e:
            raise MemoryUnavailable(f"{where} cannot be used: {redact(str(e).splitlines()[0][:200])}") from e


def _client(url: str, api_key: str | None) -> QdrantClient:
    parts = urlsplit(url)
    if api_key and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        log.warning("the Qdrant key is sent unencrypted: use an https address")
    with warnings.catch_warnings():  # the client says the same as a Python warning, loopback or not
        warnings.simplefilter("ignore")
        return QdrantClient(
            url=url,
            port=parts.port or (443 if parts.scheme == "https" else 6333),
            api_key=api_key,
            timeout=TIMEOUT,
            check_compatibility=False,
        )


def _unless_there(create: Callable[[], None]) -> None:
    try:
        create()
    except UnexpectedResponse as e:
        if e.status_code != 409:  # another process was faster
            raise


def _refused(where: str, error: UnexpectedResponse) -> MemoryUnavailable:
    if error.status_code in (401, 403):
        return MemoryUnavailable(f"{where} refuses the key", "check memory.persistent_memory.qdrant.api_key")
    said = redact(error.content.decode("utf-8", "replace")[:200])
    return MemoryUnavailable(f"{where} answered {error.status_code}: {said}")


def _id(point_id: Any) -> int:
    assert isinstance(point_id, int)  # none other is ever stored
    return point_id


def _filter(condition: All) -> models.Filter:
    return models.Filter(
        must=[_translated(part) for part in condition.of], must_not=[_translated(part) for part in condition.none_of]
    )


def _translated(condition: Condition) -> models.Condition:
    match condition:
        case OneOf(key, values):
            return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))
        case Span(key, first, last):
            return models.FieldCondition(key=key, range=models.Range(gte=first, lte=last))
        case Ids(ids):
            return models.HasIdCondition(has_id=list(ids))
        case All():
            return _filter(condition)
