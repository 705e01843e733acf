"""A Qdrant server for tests: the REST paths that QdrantIndex uses, answered by the official client's own local mode.

Every body is parsed by the official request models, so that a wrong request fails here as it would fail there.
"""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from qdrant_client import QdrantClient, models

SELECTOR: TypeAdapter[models.PointsSelector] = TypeAdapter(models.PointsSelector)


@dataclass
class Received:
    method: str
    path: str
    body: Any
    api_key: str | None


@dataclass
class QdrantStub:
    """url: to connect to. received: what came in. delay: seconds before each answer. status: of each, when not 0."""

    received: list[Received] = field(default_factory=list)
    delay: float = 0.0
    status: int = 0
    api_key: str | None = None

    def __enter__(self) -> "QdrantStub":
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._client = _open_local_client()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                data = self.rfile.read(int(self.headers.get("content-length") or 0))
                body = json.loads(data) if data else None
                stub._released.wait(stub.delay)
                status, answer = stub.answer(Received(self.command, self.path, body, self.headers.get("api-key")))
                payload = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for collection in self._client.get_collections().collections:
            self._client.delete_collection(collection.name)

    def answer(self, request: Received) -> tuple[int, Any]:
        self.received.append(request)
        if request.path == "/":
            return 200, {"title": "qdrant", "version": "1.20.0"}
        if self.status:
            return self.status, {"status": {"error": "as asked"}}
        if self.api_key is not None and request.api_key != self.api_key:
            return 401, {"status": {"error": "no"}}
        with self._lock:
            try:
                result = self._result(request)
            except (ValidationError, ValueError) as e:
                status = 404 if "not found" in str(e) else 409 if "already exists" in str(e) else 400
                return status, {"status": {"error": str(e)}}
        return 200, {"result": result, "status": "ok", "time": 0.0}

    def _result(self, request: Received) -> Any:
        if request.path == "/collections":
            return _plain(self._client.get_collections())
        found = re.fullmatch(r"/collections/([^/?]+)(/[^?]*)?(\?.*)?", request.path)
        assert found, request.path
        name, what = found[1], found[2] or ""
        route: Callable[[str, Any], Any] = getattr(self, f"_{request.method.lower()}{what.replace('/', '_')}")
        return _plain(route(name, request.body))

    def _get_exists(self, name: str, _: Any) -> Any:
        return {"exists": self._client.collection_exists(name)}

    def _get(self, name: str, _: Any) -> Any:
        return self._client.get_collection(name)

    def _put(self, name: str, body: Any) -> Any:
        asked = models.CreateCollection.model_validate(body)
        return self._client.create_collection(
            name, vectors_config=asked.vectors, sparse_vectors_config=asked.sparse_vectors
        )

    def _post_snapshots(self, name: str, _: Any) -> Any:
        return {"name": f"{name}.snapshot", "size": 1}  # local mode has no snapshots

    def _put_snapshots_recover(self, _: str, body: Any) -> Any:
        models.SnapshotRecover.model_validate(body)
        return True

    def _put_index(self, name: str, body: Any) -> Any:
        models.CreateFieldIndex.model_validate(body)  # local mode has no indexes
        return {"operation_id": 1, "status": "completed"}

    def _put_points(self, name: str, body: Any) -> Any:
        return self._client.upsert(name, models.PointsList.model_validate(body).points)

    def _post_points_query(self, name: str, body: Any) -> Any:
        asked = models.QueryRequest.model_validate(body)
        query: Any = asked.query.nearest if isinstance(asked.query, models.NearestQuery) else asked.query
        return self._client.query_points(
            name, query=query, using=asked.using, query_filter=asked.filter, limit=asked.limit or 10,
            with_payload=asked.with_payload,
        )  # fmt: skip

    def _post_points_scroll(self, name: str, body: Any) -> Any:
        asked = models.ScrollRequest.model_validate(body)
        points, offset = self._client.scroll(
            name, scroll_filter=asked.filter, limit=asked.limit or 10, order_by=asked.order_by, offset=asked.offset,
            with_payload=asked.with_payload,
        )  # fmt: skip
        return {"points": points, "next_page_offset": offset}

    def _post_points(self, name: str, body: Any) -> Any:
        asked = models.PointRequest.model_validate(body)
        return self._client.retrieve(name, asked.ids, with_payload=True)

    def _post_points_payload(self, name: str, body: Any) -> Any:
        asked = models.SetPayload.model_validate(body)
        return self._client.set_payload(name, asked.payload, points=asked.points or asked.filter)

    def _post_points_delete(self, name: str, body: Any) -> Any:
        return self._client.delete(name, SELECTOR.validate_python(body))

    def _post_points_count(self, name: str, body: Any) -> Any:
        asked = models.CountRequest.model_validate(body)
        return self._client.count(name, count_filter=asked.filter, exact=True)

    def _post_facet(self, name: str, body: Any) -> Any:
        asked = models.FacetRequest.model_validate(body)
        return self._client.facet(name, asked.key, limit=asked.limit or 10, exact=True)


@cache
def _open_local_client() -> QdrantClient:
    """One for all stubs, which run one after another: making it takes a fifth of a second."""
    return QdrantClient(":memory:")


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            return value.model_dump(mode="json", exclude_unset=False)
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case _:
            return value
