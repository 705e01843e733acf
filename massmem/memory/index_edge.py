"""The index in this process: qdrant-edge, one folder, one process at a time, any number of threads.

lock, lock.pid    held while the folder is open, and by whom
shard/            qdrant-edge's files
shard.json        what must be in there at least
shard.new/ .old/  while the shard is written anew
"""

import json
import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import qdrant_edge as qdrant
from filelock import FileLock, Timeout

from massmem.config.home import make_folder, make_private, measure_disk_usage, replace_file, sync_to_disk
from massmem.core.errors import IndexDamaged, MassmemError, MemoryUnavailable
from massmem.memory.index import (
    ALL_POINTS,
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
from massmem.memory.points import add_keys, renew

_WRITE_BATCH = 32
"""Points in one write: no other thread of the process goes on meanwhile, for 4 ms."""

READ_BATCH = 256
"""Points in one read: others wait for one part, not for all."""

_FLUSH_EVERY = 10_000
"""Points between flushes: bounds what has to be read again after the process was killed."""


class FolderInUse(MemoryUnavailable):
    """Another process has the folder locked."""


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
        lacks_index = False
        for start in range(0, len(points), _WRITE_BATCH):
            batch = [self._to_edge(point) for point in points[start : start + _WRITE_BATCH]]
            with self._shard.writing() as shard:
                shard.update(qdrant.UpdateOperation.upsert_points(batch))
                lacks_index = bool(_list_unindexed(shard))
        self._unflushed += len(points)
        if self._unflushed >= _FLUSH_EVERY or lacks_index:
            self.flush()

    def set_payload(self, ids: Sequence[int], fields: Mapping[str, Any]) -> None:
        with self._shard.writing() as shard:
            shard.update(qdrant.UpdateOperation.set_payload([*ids], dict(fields)))

    def search_words(self, terms: Mapping[int, float], condition: All, limit: int) -> list[tuple[int, float]]:
        if not terms or limit < 1:
            return []
        query = qdrant.Query.Nearest(qdrant.SparseVector(list(terms), list(terms.values())), using=WORDS)
        return self._search(query, condition, limit)

    def search_meaning(self, vector: Sequence[float], condition: All, limit: int) -> list[tuple[int, float]]:
        if not self._dims or limit < 1:
            return []
        return self._search(qdrant.Query.Nearest(list(vector), using=MEANING), condition, limit)

    def list_seconds(self, condition: All, limit: int, *, newest_first: bool) -> list[tuple[int, int]]:
        order = qdrant.OrderBy("at", qdrant.Direction.Desc if newest_first else qdrant.Direction.Asc)
        request = qdrant.ScrollRequest(limit=limit, filter=_to_filter(condition), with_payload=False, order_by=order)
        with self._shard.reading() as shard:
            return [(int(record.order_value or 0), _id(record)) for record in shard.scroll(request)[0]]

    def read_payloads(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        payloads: dict[int, dict[str, Any]] = {}
        numbers = [*valid_ids(ids).ids]
        for start in range(0, len(numbers), READ_BATCH):
            with self._shard.reading() as shard:
                records = shard.retrieve([*numbers[start : start + READ_BATCH]], True, False)
                payloads |= {_id(record): record.payload or {} for record in records}
        return payloads

    def read_page(self, condition: All, offset: Any) -> tuple[Payloads, Any]:
        where = _to_filter(condition)
        request = qdrant.ScrollRequest(offset=offset, limit=READ_BATCH, filter=where, with_payload=True)
        with self._shard.reading() as shard:
            records, following = shard.scroll(request)
            return [(_id(record), record.payload or {}) for record in records], following

    def count(self, selection: Selection) -> int:
        with self._shard.reading() as shard:
            return shard.count(qdrant.CountRequest(exact=True, filter=_to_filter(matching(selection))))

    def count_values(self, key: str) -> dict[str, int]:
        with self._shard.reading() as shard:
            facets = shard.facet(qdrant.FacetRequest(key, limit=ALL_POINTS, exact=True))
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

    def _to_edge(self, point: Point) -> qdrant.Point:
        vectors: dict[str, qdrant.NamedVector] = {
            WORDS: qdrant.SparseVector(list(point.sparse), list(point.sparse.values()))
        }
        if self._dims and point.dense is not None:
            vectors[MEANING] = list(point.dense)
        return qdrant.Point(point.id, vectors, add_keys(point.payload))

    def _search(self, query: qdrant.Query, condition: All, limit: int) -> list[tuple[int, float]]:
        with self._shard.reading() as shard:
            hits = shard.query(qdrant.QueryRequest(limit=limit, query=query, filter=_to_filter(condition)))
            return [(_id(hit), hit.score) for hit in hits]


def _id(point: qdrant.Record | qdrant.ScoredPoint) -> int:
    assert isinstance(point.id, int)  # no other id is ever stored
    return point.id


def _to_filter(condition: All) -> qdrant.Filter:
    return qdrant.Filter(
        must=[_to_edge_condition(part) for part in condition.must],
        must_not=[_to_edge_condition(part) for part in condition.must_not],
    )


def _to_edge_condition(condition: Condition) -> "qdrant.ConditionType":
    match condition:
        case OneOf(key, values):
            return qdrant.FieldCondition(key, match=qdrant.MatchAny(list(values)))
        case Span(key, first, last):
            return qdrant.FieldCondition(key, range=qdrant.RangeFloat(gte=first, lte=last))
        case Ids(ids):
            return qdrant.HasIdCondition(set(ids))
        case All():
            return _to_filter(condition)


ROOM = 64 * 2**20
"""Free bytes that a write needs. qdrant-edge writes through memory maps: on a full disk it would be killed (SIGBUS)."""

SLICE = 50_000
"""New points that are brought into their final form at once: 80 MB less memory. Every thread of the process waits for
3 s, therefore no larger; each slice makes a search 1 ms slower, therefore no smaller."""

FORM = 1
"""Of the payloads, noted in shard.json: builds before the first release noted none."""

SOME = 100
"""Points from which on the field that says who sees a point is indexed: each search asks for it. A recall among 800 of
64 users takes a fifth of the time; a start 2 ms and 5 MB more."""

MANY = 1_000
"""Points from which on all fields are indexed. The other seven indexes cost each start 40 ms and 35 MB; without them a
search among so many takes 10 ms longer."""
_REBUILD = "`massmem memory rebuild` makes it again from the log; the damaged one is kept aside"
# Cold, all of it: read from the files where it is needed. Kept in memory it is searched no faster, and loading 100,000
# memories takes 0.14 s and 32 MB more.
_COLD = qdrant.Memory.Cold
_WORD = qdrant.KeywordIndexParams(memory=_COLD)
_RANGE = qdrant.IntegerIndexParams(lookup=False, range=True, memory=_COLD)
_Field = qdrant.BoolIndexParams | qdrant.IntegerIndexParams | qdrant.KeywordIndexParams
_SORTED: Mapping[str, _Field] = {"at": _RANGE, "kind": _WORD, "run_id": _WORD}
"""Fields that are sorted by or counted, which needs an index."""
_FILTERED: Mapping[str, _Field] = {
    "seen": _WORD,
    "agent_id": _WORD,
    "won": qdrant.BoolIndexParams(memory=_COLD),
    "turn": _RANGE,
    "topics": _WORD,
    "stated_in": _WORD,
    "origin": _WORD,
    "pin": _WORD,
}
_SETTINGS: dict[str, Any] = {
    # Two files of the log of writes are read at every start: by default they have 32 MB each.
    "wal_options": {"segment_capacity": 4 * 2**20, "segment_queue_len": 0, "retain_closed": 1},
    # In memory, 50 bytes a point: each part of the index is asked for every point that is read.
    "id_tracker_memory": "pinned",
    # Bring what is new into its final form, whatever its size (KB), and never again with older parts: a million points
    # take two minutes and 4 GB of mapped files.
    "optimizers": {"indexing_threshold": 1, "default_segment_number": 10_000},
}
"""Of qdrant-edge, written to its file: EdgeConfig has no field for some of them."""


class Shard:
    """An open shard, for this process alone. Threads that use it at once take turns."""

    def __init__(self, folder: Path, dims: int, wait: float) -> None:
        """Open the shard, or create it.

        dims: size of the vectors, 0 for words only. wait: seconds for another process that has the folder open.

        Raises MemoryUnavailable: see EdgeIndex.
        """
        self._folder = folder
        self._dims = dims
        self._mutex = Lock()
        self._writing = Lock()
        self._is_closing = False
        self._edge: qdrant.EdgeShard | None = None
        self._tidied = 0
        self._lock = _lock_folder(folder, wait)
        try:
            self._edge = self._open()
            if self._read_notes().get("form", 0) < FORM:
                self._write_anew(is_earlier=True)
        except BaseException:
            self._release()
            raise

    @contextmanager
    def reading(self) -> Generator[qdrant.EdgeShard]:
        with self._mutex:
            if self._edge is None:
                raise MemoryUnavailable(f"the memory index in {self._folder} is closed")
            with _translate_errors(f"the memory index in {self._folder} failed"):
                yield self._edge

    @contextmanager
    def writing(self) -> Generator[qdrant.EdgeShard]:
        _check_room(self._folder, ROOM)
        with self._writing, self.reading() as edge:
            yield edge

    def delete(self, where: qdrant.Filter, *, erase: bool) -> None:
        """Delete what the filter selects. erase: leave nothing on the disk of it, or of what was deleted before.

        Others read while the shard is written anew; who writes waits.
        """
        _check_room(self._folder, ROOM + (2 * measure_disk_usage(self._folder / "shard") if erase else 0))
        with self._writing:
            with self.reading() as edge:
                self._write_notes(0)
                edge.update(qdrant.UpdateOperation.delete_points_by_filter(where))
                edge.flush()
                self._write_notes(_count_points(edge))
            if erase:
                with _translate_errors(f"the memory index in {self._folder} was not written anew"):
                    self._write_anew()

    def _write_anew(self, *, is_earlier: bool = False) -> None:
        """Write all points to a new shard, and use that one. is_earlier: an earlier build wrote them."""
        shutil.rmtree(self._folder / "shard.new", ignore_errors=True)
        new = _create(self._folder, self._dims)
        tidied = written = 0
        for points in self._read_pages(is_earlier=is_earlier):
            new.update(qdrant.UpdateOperation.upsert_points(points))
            written += len(points)
            if written - tidied >= SLICE:
                new.optimize()
                tidied = written
        _index_fields(new, _list_unindexed(new))
        new.flush()
        new.close()
        with self.reading() as edge:
            self._edge = None
            edge.close()
            self._edge = self._replace_shard()

    def _read_pages(self, *, is_earlier: bool) -> Iterator[list[qdrant.Point]]:
        offset = None
        while not self._is_closing:
            request = qdrant.ScrollRequest(offset=offset, limit=READ_BATCH, with_payload=True, with_vector=True)
            with self.reading() as edge:
                records, offset = edge.scroll(request)
            payloads = [renew(record.payload or {}) if is_earlier else record.payload for record in records]
            yield [
                qdrant.Point(record.id, record.vector or {}, payload)
                for record, payload in zip(records, payloads, strict=True)
                if payload is not None
            ]
            if offset is None:
                return
        raise MemoryUnavailable(f"the memory index in {self._folder} is closed", "run the command again")

    def sync(self) -> None:
        """Bring the log of writes to the disk: qdrant-edge reads it again when it opens a shard.

        Unlike its flush, which brings all files there and stops every thread of the process meanwhile (up to half a
        second on a slow disk), this takes milliseconds, and nobody waits.
        """
        wal = self._folder / "shard" / "wal"
        try:
            for path in (*wal.iterdir(), wal, wal.parent, self._folder):
                sync_to_disk(path)
        except FileNotFoundError:  # rewritten, or flushed and begun anew, just now: both end on the disk
            self.flush()
        except OSError as e:
            raise MemoryUnavailable(f"the memory index in {self._folder} cannot be written: {e.strerror}") from e

    def flush(self) -> None:
        """Bring everything to the disk, and begin the log of writes anew; tidy a slice once that many are new."""
        with self._writing, self.reading() as edge:
            edge.flush()
            points = _count_points(edge)
            self._write_notes(points)
            if fields := _list_unindexed(edge):
                _index_fields(edge, fields)
                edge.flush()  # else a loss of power could leave a part of it
            if points - self._tidied >= SLICE and self._has_room():
                edge.optimize()
                edge.flush()
                self._tidied = points
                self._write_notes(points)
        make_private(self._folder)

    def close(self) -> None:
        """Flush, and let others open the folder. Closing twice does no harm."""
        self._is_closing = True
        try:
            if self._edge is not None:
                self.flush()
                with self.reading() as edge:
                    self._edge = None
                    edge.close()
                make_private(self._folder)
        finally:
            self._release()

    def _has_room(self) -> bool:
        """Return whether a slice can be written once more."""
        return shutil.disk_usage(self._folder).free > ROOM + measure_disk_usage(self._folder / "shard")

    def _open(self) -> qdrant.EdgeShard:
        self._clear_up()
        with _translate_errors(f"the memory index in {self._folder} cannot be opened: it is damaged", damage=True):
            notes = self._read_notes()
            self._tidied = notes.get("tidied", 0)
            if notes.get("dims", self._dims) != self._dims:
                raise MemoryUnavailable(
                    f"the memory index in {self._folder} is for vectors of {notes['dims']} numbers, not {self._dims}",
                    "give the embedder that it was made with, or run `massmem memory rebuild`",
                )
            if notes.get("form", FORM) > FORM:
                raise MemoryUnavailable(
                    f"the memory index in {self._folder} was written by a newer massmem", "use that massmem"
                )
            shutil.rmtree(self._folder / "shard" / "temp_segments", ignore_errors=True)  # of a tidying that was killed
            _check_room(self._folder, _measure_holes(self._folder / "shard"))
            edge = qdrant.EdgeShard.load(str(self._folder / "shard"))
            count = edge.info().points_count
            if count < notes.get("points", 0):
                edge.close()
                raise IndexDamaged(
                    f"the memory index in {self._folder} is damaged: {notes['points'] - count} memories are missing",
                    _REBUILD,
                )
            make_private(self._folder)
            return edge

    def _clear_up(self) -> None:
        """Finish or undo what a process was doing in the folder when it was killed: see `_replace_shard`."""
        shard, new, old = (self._folder / name for name in ("shard", "shard.new", "shard.old"))
        try:
            if not shard.exists() and old.exists():
                new.rename(shard)
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            if not shard.exists():
                _check_room(self._folder, ROOM)
                (self._folder / "shard.json").unlink(missing_ok=True)
                with _translate_errors(f"the memory index in {self._folder} cannot be made"):
                    _create(self._folder, self._dims).close()
                new.rename(shard)
                self._write_notes(0)
        except OSError as e:
            raise MemoryUnavailable(f"the memory index in {self._folder} cannot be opened: {e}") from e

    def _replace_shard(self) -> qdrant.EdgeShard:
        """Use shard.new from now on. shard.old only exists while shard.new is complete: `_clear_up` relies on it."""
        shard, new, old = (self._folder / name for name in ("shard", "shard.new", "shard.old"))
        shard.rename(old)
        new.rename(shard)
        shutil.rmtree(old)
        edge = qdrant.EdgeShard.load(str(shard))
        points = _count_points(edge)
        self._tidied = points // SLICE * SLICE
        self._write_notes(points)
        return edge

    def _read_notes(self) -> dict[str, int]:
        try:
            return json.loads((self._folder / "shard.json").read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as e:
            raise IndexDamaged(f"{self._folder / 'shard.json'} cannot be read: {e}", _REBUILD) from e

    def _write_notes(self, points: int) -> None:
        """Note how many points there are at least: qdrant-edge opens a shard that has lost some without an error."""
        path = self._folder / "shard.json"
        try:
            replace_file(path, json.dumps({"dims": self._dims, "points": points, "tidied": self._tidied, "form": FORM}))
        except OSError as e:
            raise MemoryUnavailable(f"{path} cannot be written: {e.strerror}") from e

    def _release(self) -> None:
        if self._lock.is_locked:
            _unlock_folder(self._folder, self._lock)


def _count_points(edge: qdrant.EdgeShard) -> int:
    """Return how many points there are; a kill may have left some twice, which `info` counts twice."""
    return edge.count(qdrant.CountRequest(exact=True))


def _create(folder: Path, dims: int) -> qdrant.EdgeShard:
    """Make an empty shard.new in the folder."""
    meaning = qdrant.EdgeVectorParams(
        size=dims,
        distance=qdrant.Distance.Cosine,
        datatype=qdrant.VectorStorageDatatype.Float16,  # half the memory; scores change in the fourth digit
        memory=_COLD,
    )
    config = qdrant.EdgeConfig(
        vectors={MEANING: meaning} if dims else None,
        sparse_vectors={WORDS: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf, memory=_COLD)},
        payload_memory=_COLD,
        # Vectors are compared among few candidates only: no graph.
        hnsw_config=qdrant.HnswIndexConfig(m=0, ef_construct=4, full_scan_threshold=10_000_000),
        max_search_threads=1,
    )
    new = folder / "shard.new"
    new.mkdir(mode=0o700)  # nobody else gets to what qdrant-edge makes in it
    (new / "edge_config.json").write_text(json.dumps(_SETTINGS))
    edge = qdrant.EdgeShard.load(str(new), config)
    _index_fields(edge, _SORTED)
    edge.flush()
    return edge


def _list_unindexed(edge: qdrant.EdgeShard) -> Mapping[str, _Field]:
    """Return the fields that searches filter by and that are to be indexed, as far as it is worth it for the points."""
    info = edge.info()
    due = {} if info.points_count < SOME else _FILTERED if info.points_count >= MANY else {"seen": _FILTERED["seen"]}
    return {key: field for key, field in due.items() if key not in info.payload_schema}


def _index_fields(edge: qdrant.EdgeShard, fields: Mapping[str, _Field]) -> None:
    existing = edge.info().payload_schema
    for key in fields.keys() - existing.keys():
        edge.update(qdrant.UpdateOperation.create_field_index(key, fields[key]))


def set_aside(folder: Path, wait: float) -> Path | None:
    """Move a shard away, whole or damaged, so that the next one to open the folder finds it empty.

    Returns its new path, None when there was no shard.

    Raises FolderInUse, MemoryUnavailable.
    """
    lock = _lock_folder(folder, wait)
    try:
        (folder / "shard.json").unlink(missing_ok=True)
        if not (folder / "shard").exists():
            return None
        copy = folder / f"shard.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        (folder / "shard").rename(copy)
        return copy
    except OSError as e:
        raise MemoryUnavailable(f"the memory index in {folder} cannot be moved: {e}") from e
    finally:
        _unlock_folder(folder, lock)


def remove_set_aside(folder: Path) -> list[Path]:
    """Delete the copies that `set_aside` has made of this folder; return their paths."""
    copies = sorted(folder.glob("shard.damaged-*"))
    try:
        for copy in copies:
            shutil.rmtree(copy)
    except OSError as e:
        raise MemoryUnavailable(f"the copies of a damaged index in {folder} cannot be removed: {e}") from e
    return copies


def _lock_folder(folder: Path, wait: float) -> FileLock:
    """Lock the folder before qdrant-edge opens it: a second opening would break the first one's flush."""
    try:
        make_folder(folder)
        # thread_local: it is taken in one thread and released in another.
        lock = FileLock(folder / "lock", timeout=wait, mode=0o600, thread_local=False)
        lock.acquire()
        (folder / "lock.pid").write_text(str(os.getpid()))
        return lock
    except Timeout as e:
        raise FolderInUse(
            f"the memory index in {folder} is in use by another process{holder_of(folder)}",
            "it is free when that one ends, or has opened or cleared it",
        ) from e
    except MassmemError as e:
        raise MemoryUnavailable(e.message, e.hint) from e
    except OSError as e:
        raise MemoryUnavailable(f"the memory index in {folder} cannot be locked: {e}") from e


def _unlock_folder(folder: Path, lock: FileLock) -> None:
    (folder / "lock.pid").unlink(missing_ok=True)
    lock.release()


def holder_of(folder: Path) -> str:
    with suppress(OSError):
        return f" (pid {(folder / 'lock.pid').read_text()})"
    return ""


def _measure_holes(shard: Path) -> int:
    """Return the bytes that opening a shard may take: a file system in memory fills the holes of files that are read.

    qdrant-edge reads the indexes of fields as a whole.
    """
    files = [path.stat() for path in shard.glob("segments/*/payload_index/**/*.dat")]
    return 4 * 2**20 + sum(max(0, file.st_size - file.st_blocks * 512) for file in files)


def _check_room(folder: Path, size: int) -> None:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as e:
        raise MemoryUnavailable(f"the memory index in {folder} is gone: {e.strerror}") from e
    if free < size:
        raise MemoryUnavailable(
            f"the disk is full: the memory index in {folder} needs {size >> 20} MB of room",
            "free some space; what was stored before is untouched",
        )


@contextmanager
def _translate_errors(what: str, *, damage: bool = False) -> Generator[None]:
    """Turn failures of qdrant-edge into errors of massmem.

    It raises nothing but bare Exceptions; a panic in it is a BaseException of a class that cannot be imported.

    damage: a failure means that the index is damaged, unless the machine is out of memory.
    """
    try:
        yield
    except BaseException as e:
        if type(e) is not Exception and type(e).__name__ != "PanicException":
            raise
        is_damaged = damage and "Cannot allocate memory" not in str(e)
        kind, hint = (IndexDamaged, _REBUILD) if is_damaged else (MemoryUnavailable, "run the command again")
        raise kind(f"{what}: {str(e).splitlines()[0][:300]}", hint) from e
