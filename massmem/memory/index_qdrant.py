"""The index on a Qdrant server or cluster, through the official client: the same methods as EdgeIndex.

A collection has the layout of mem0, so that a program with mem0 reads it: one dense vector without a name, a sparse one
called bm25, UUIDs as ids. What such a program writes has no `seen`: no search finds it here, and nothing changes it.
"""

import logging
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from massmem.config.addresses import find_key_problem, is_loopback
from massmem.core.errors import MemoryUnavailable
from massmem.core.redact import redact, redact_line
from massmem.memory.index import (
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
from massmem.providers.clients import choose_way

log = logging.getLogger(__name__)

TIMEOUT = 5
"""Seconds for one request. A turn waits for memory, and can go on without it."""

_WORDS = "bm25"
_COPIED = "massmem_copied"
"""Marks what another program wrote and was copied."""
_NO_READER = models.IsEmptyCondition(is_empty=models.PayloadField(key="seen"))
_NOT_COPIED = models.IsEmptyCondition(is_empty=models.PayloadField(key=_COPIED))

_WRITE_BATCH = 128
_READ_BATCH = 1_000
_MOST_AT_ONCE = 1_000_000
"""A larger limit is refused by the server."""
_RANGE = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
_INDEXES: dict[str, models.PayloadSchemaType | models.IntegerIndexParams] = {
    "seen": models.PayloadSchemaType.KEYWORD,
    "run_id": models.PayloadSchemaType.KEYWORD,
    "agent_id": models.PayloadSchemaType.KEYWORD,
    "kind": models.PayloadSchemaType.KEYWORD,
    "won": models.PayloadSchemaType.BOOL,
    "turn": _RANGE,
    "at": _RANGE,
    "topics": models.PayloadSchemaType.KEYWORD,
    "stated_in": models.PayloadSchemaType.KEYWORD,
    "origin": models.PayloadSchemaType.KEYWORD,
    "pin": models.PayloadSchemaType.KEYWORD,
}


class QdrantIndex(Index):
    """See Index. Points in a collection of a server, which is created when it is missing.

    Every write waits until the server has it. Safe to use from several processes.

    Raises (all methods): MemoryUnavailable: the server cannot be reached, took longer than TIMEOUT, refused the key,
    or has the collection for another size of vectors.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None,
        collection: str,
        dims: int,
        *,
        shards: int | None = None,
        replicas: int = 1,
    ) -> None:
        """dims: size of the vectors; 0: words only. shards, replicas: of a new collection, see QdrantConfig."""
        self._url = redact(url)
        self._collection = collection
        self._dims = dims
        self._shards = shards
        self._replicas = replicas
        # A majority of writes and a majority of reads share a machine: what was recorded or forgotten counts at once.
        self._consistency = models.ReadConsistencyType.MAJORITY if replicas > 1 else None
        with self._translate_errors():
            self._client = _client(url, api_key)
            self._open_collection()

    def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), _WRITE_BATCH):
            batch = [self._to_qdrant(point) for point in points[start : start + _WRITE_BATCH]]
            with self._translate_errors():
                self._client.upsert(self._collection, batch, wait=True)

    def set_payload(self, ids: Sequence[int], fields: Mapping[str, Any]) -> None:
        with self._translate_errors():
            self._client.set_payload(self._collection, dict(fields), points=[*map(_to_uuid, ids)], wait=True)

    def read_outside(self) -> list[tuple[str, dict[str, Any]]]:
        with self._translate_errors():
            records, _ = self._client.scroll(
                self._collection,
                scroll_filter=models.Filter(must=[_NO_READER, _NOT_COPIED]),
                limit=_READ_BATCH,
                with_payload=True,
                consistency=self._consistency,
            )
        return [(str(record.id), record.payload or {}) for record in records]

    def mark_copied(self, ids: Sequence[str]) -> None:
        with self._translate_errors():
            self._client.set_payload(self._collection, {_COPIED: True}, points=[*ids], wait=True)

    def search_words(self, terms: Mapping[int, float], condition: All, limit: int) -> list[tuple[int, float]]:
        if not terms or limit < 1:
            return []
        vector = models.SparseVector(indices=list(terms), values=list(terms.values()))
        return self._search(vector, _WORDS, condition, limit)

    def search_meaning(self, vector: Sequence[float], condition: All, limit: int) -> list[tuple[int, float]]:
        if not self._dims or limit < 1:
            return []
        return self._search(list(vector), None, condition, limit)

    def list_seconds(self, condition: All, limit: int, *, newest_first: bool) -> list[tuple[int, int]]:
        direction = models.Direction.DESC if newest_first else models.Direction.ASC
        with self._translate_errors():
            records, _ = self._client.scroll(
                self._collection,
                scroll_filter=_to_filter(condition),
                limit=min(limit, _MOST_AT_ONCE),
                order_by=models.OrderBy(key="at", direction=direction),
                with_payload=False,
                consistency=self._consistency,
            )
        return [(int(record.order_value or 0), _id(record.id)) for record in records]

    def read_payloads(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        numbers = list(valid_ids(ids).ids)
        if not numbers:
            return {}
        with self._translate_errors():
            records = self._client.retrieve(
                self._collection,
                [*map(_to_uuid, numbers)],
                with_payload=True,
                with_vectors=False,
                consistency=self._consistency,
            )
        return {_id(record.id): record.payload or {} for record in records}

    def read_page(self, condition: All, offset: Any) -> tuple[Payloads, Any]:
        with self._translate_errors():
            records, following = self._client.scroll(
                self._collection,
                scroll_filter=_to_own_filter(condition),
                limit=_READ_BATCH,
                offset=offset,
                with_payload=True,
                consistency=self._consistency,
            )
        return [(_id(record.id), record.payload or {}) for record in records], following

    def count(self, selection: Selection) -> int:
        with self._translate_errors():
            answer = self._client.count(self._collection, count_filter=_to_own_filter(matching(selection)), exact=True)
        return answer.count

    def count_values(self, key: str) -> dict[str, int]:
        with self._translate_errors():
            facets = self._client.facet(
                self._collection, key, limit=_MOST_AT_ONCE, exact=True, consistency=self._consistency
            )
        return {str(hit.value): hit.count for hit in facets.hits}

    def delete_matching(self, condition: All, *, erase: bool) -> None:
        """As Index.delete_matching; when the bytes leave its disk is up to the server, whatever `erase` says."""
        with self._translate_errors():
            self._client.delete(self._collection, models.FilterSelector(filter=_to_own_filter(condition)), wait=True)

    def sync(self) -> None:
        """Do nothing: the server has acknowledged every write."""

    def close(self) -> None:
        self._client.close()

    def _open_collection(self) -> None:
        if not self._client.collection_exists(self._collection):
            try:
                self._create()
            except UnexpectedResponse as e:
                if e.status_code != 409:  # another process was faster
                    raise
        if layout := _describe_other_layout(self._client.get_collection(self._collection).config.params, self._dims):
            raise MemoryUnavailable(
                f"the collection {self._collection} at {self._url} {layout}; nothing in it was changed",
                "give the embedder that it was made with; or delete the collection, then: massmem memory rebuild",
            )
        for key, schema in _INDEXES.items():
            self._client.create_payload_index(self._collection, key, schema, wait=True)

    def _create(self) -> None:
        dense = models.VectorParams(
            size=self._dims or 1, distance=models.Distance.COSINE, datatype=models.Datatype.FLOAT16
        )
        self._client.create_collection(
            self._collection,
            vectors_config=dense if self._dims else {},
            sparse_vectors_config={_WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            shard_number=self._shards,
            replication_factor=self._replicas if self._replicas > 1 else None,
            write_consistency_factor=self._replicas // 2 + 1 if self._replicas > 1 else None,
        )

    def _to_qdrant(self, point: Point) -> models.PointStruct:
        vectors: dict[str, Any] = {
            _WORDS: models.SparseVector(indices=list(point.sparse), values=list(point.sparse.values()))
        }
        if self._dims and point.dense is not None:
            vectors[""] = list(point.dense)
        return models.PointStruct(id=_to_uuid(point.id), vector=vectors, payload=add_keys(point.payload))

    def _search(self, query: Any, using: str | None, condition: All, limit: int) -> list[tuple[int, float]]:
        with self._translate_errors():
            answer = self._client.query_points(
                self._collection,
                query=query,
                using=using,
                query_filter=_to_filter(condition),
                limit=limit,
                with_payload=False,
                consistency=self._consistency,
            )
        return [(_id(point.id), point.score) for point in answer.points]

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        where = f"the Qdrant server at {self._url}"
        try:
            yield
        except UnexpectedResponse as e:
            raise _explain_refusal(where, e) from e
        except ResponseHandlingException as e:
            reason = str(e.source) or type(e.source).__name__
            raise MemoryUnavailable(
                f"{where} does not answer: {reason}", "start it, or set memory.persistent_memory.qdrant.mode: embedded"
            ) from e
        except (ApiException, ValidationError, ValueError) as e:
            raise MemoryUnavailable(f"{where} cannot be used: {redact_line(str(e).splitlines()[0], 200)}") from e


def _client(url: str, api_key: str | None) -> QdrantClient:
    parts = urlsplit(url)
    # The HTTP library would show the key in its error.
    if api_key and (problem := find_key_problem(api_key, required=not is_loopback(url))):
        hint = "copy it again into memory.persistent_memory.qdrant.api_key"
        raise MemoryUnavailable(f"the Qdrant key {problem}", hint)
    if api_key and parts.scheme == "http" and not is_loopback(url):
        log.warning("the Qdrant key is sent unencrypted: use an https address")
    with warnings.catch_warnings():  # the client says the same as a Python warning, loopback or not
        warnings.simplefilter("ignore")
        return QdrantClient(
            url=url,
            port=parts.port or (443 if parts.scheme == "https" else 6333),
            api_key=api_key,
            timeout=TIMEOUT,
            check_compatibility=False,
            **choose_way(url),
        )


def _describe_other_layout(params: models.CollectionParams, dims: int) -> str:
    """Return what a collection has instead of what massmem needs, "" when it fits. dims: 0 for no vectors but words."""
    vectors = params.vectors
    if isinstance(vectors, models.VectorParams):
        size, names = vectors.size, ""
    else:
        size = next((vector.size for vector in (vectors or {}).values()), 0)
        names = ", ".join(vectors or {})
    if size != dims:
        return f"is for vectors of {size} numbers{f' ({names})' if names else ''}, not {dims}"
    if names:
        return f"has vectors with a name ({names})"
    return "" if _WORDS in (params.sparse_vectors or {}) else f"has no sparse vectors called {_WORDS}"


def _explain_refusal(where: str, error: UnexpectedResponse) -> MemoryUnavailable:
    if error.status_code in (401, 403):
        return MemoryUnavailable(f"{where} refuses the key", "check memory.persistent_memory.qdrant.api_key")
    text = redact_line(error.content.decode("utf-8", "replace"), 200)
    return MemoryUnavailable(f"{where} answered {error.status_code}: {text}")


def _id(point_id: Any) -> int:
    """Return our number of a point; that of another program's is larger than any of ours."""
    return UUID(str(point_id)).int


def _to_uuid(number: int) -> str:
    return str(UUID(int=number))


def _to_own_filter(condition: All) -> models.Filter:
    """Return the condition without what other programs wrote."""
    return models.Filter(must=[_to_filter(condition)], must_not=[_NO_READER])


def _to_filter(condition: All) -> models.Filter:
    return models.Filter(
        must=[_to_qdrant_condition(part) for part in condition.must],
        must_not=[_to_qdrant_condition(part) for part in condition.must_not],
    )


def _to_qdrant_condition(condition: Condition) -> models.Condition:
    match condition:
        case OneOf(key, values):
            return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))
        case Span(key, first, last):
            return models.FieldCondition(key=key, range=models.Range(gte=first, lte=last))
        case Ids(ids):
            return models.HasIdCondition(has_id=[*map(_to_uuid, ids)])
        case All():
            return _to_filter(condition)
