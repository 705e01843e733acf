import logging
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from qdrant_client import QdrantClient, models

from massmem.core.errors import MemoryUnavailable
from massmem.memory.access import visible_to
from massmem.memory.index import All, Point, valid_ids
from massmem.memory.index_qdrant import TIMEOUT, QdrantIndex
from massmem.memory.persistent import Scope, Selection
from tests.support.qdrant_stub import QdrantStub

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 21, tzinfo=UTC)
AT = NOW.toordinal() * 86_400
ME = visible_to(Scope("s1", "me", 4))
PAYLOAD = {
    "data": "text", "run_id": "s1", "agent_id": "a", "turn": 1, "won": False, "kind": "episode", "group": "team",
    "created_at": NOW.isoformat(), "f": [0, 0, 0, 1, 1, NOW.toordinal()],
}  # fmt: skip
UUID_5 = "00000000-0000-0000-0000-000000000005"
VISIBLE = {
    "must": [{"key": "seen", "match": {"any": ["me|s1", "*|s1"]}}],
    "must_not": [
        {"must": [{"key": "turn", "range": {"gte": 5.0}}], "must_not": []},
        {
            "must": [{"key": "turn", "range": {"gte": 4.0, "lte": 4.0}}],
            "must_not": [{"key": "agent_id", "match": {"any": ["me"]}}],
        },
    ],
}


@pytest.fixture
def stub() -> Iterator[QdrantStub]:
    with QdrantStub() as running:
        yield running


@pytest.fixture
def index(stub: QdrantStub) -> Iterator[QdrantIndex]:
    opened = QdrantIndex(stub.url, None, "memories", 3)
    stub.received.clear()
    yield opened
    opened.close()


def list_sent(stub: QdrantStub) -> list[tuple[str, str, Any]]:
    return [(r.method, r.path.removeprefix("/collections/memories"), given(r.body)) for r in stub.received]


def given(body: Any) -> Any:
    """Without the fields that were left empty."""
    match body:
        case dict():
            return {key: given(value) for key, value in body.items() if value is not None}
        case list():
            return [given(value) for value in body]
        case _:
            return body


def test_the_collection_is_made_with_its_indexes(stub: QdrantStub) -> None:
    QdrantIndex(stub.url, None, "memories", 3).close()
    asked = list_sent(stub)
    assert asked[0][:2] == ("GET", "/exists")
    assert asked[1] == (
        "PUT",
        "",
        {
            "vectors": {"size": 3, "distance": "Cosine", "datatype": "float16"},
            "sparse_vectors": {"bm25": {"modifier": "idf"}},
        },
    )
    indexes = {body["field_name"]: body["field_schema"] for _, path, body in asked if path.startswith("/index")}
    number = {"type": "integer", "lookup": False, "range": True}
    assert indexes == {
        "seen": "keyword", "run_id": "keyword", "agent_id": "keyword", "kind": "keyword", "won": "bool",
        "turn": number, "at": number, "stated_in": "keyword", "topics": "keyword", "origin": "keyword",
        "pin": "keyword",
    }  # fmt: skip
    assert all("wait=true" in path for _, path, _ in asked if path.startswith("/index"))


def test_a_collection_that_is_there_stays(stub: QdrantStub) -> None:
    for _ in range(2):
        index = QdrantIndex(stub.url, None, "memories", 3)
        index.upsert([Point(1, None, {}, PAYLOAD)])
        index.close()
    assert [path for method, path, _ in list_sent(stub) if method == "PUT" and not path] == [""]


def test_a_cluster_is_asked_for_majorities(stub: QdrantStub) -> None:
    index = QdrantIndex(stub.url, None, "memories", 0, shards=6, replicas=3)
    definition = next(body for method, path, body in list_sent(stub) if method == "PUT" and not path)
    assert (definition["shard_number"], definition["replication_factor"], definition["write_consistency_factor"]) == (
        6,
        3,
        2,
    )
    index.upsert([Point(1, None, {7: 0.5}, PAYLOAD)])
    stub.received.clear()
    index.search_words({7: 0.5}, ME, 5)
    index.list_seconds(ME, 5, newest_first=True)
    index.read_payloads([1])
    next(index.read_pages())
    index.count_values("run_id")
    index.close()
    paths = [path for _, path, _ in list_sent(stub)]
    assert paths == [
        f"{path}?consistency=majority"
        for path in ("/points/query", "/points/scroll", "/points", "/points/scroll", "/facet")
    ]


def test_a_single_server_is_asked_for_nothing_of_a_cluster(stub: QdrantStub) -> None:
    index = QdrantIndex(stub.url, None, "memories", 0)
    index.search_words({7: 0.5}, ME, 5)
    index.close()
    sent = list_sent(stub)
    definition = next(body for method, path, body in sent if method == "PUT" and not path)
    assert definition.keys().isdisjoint({"shard_number", "replication_factor", "write_consistency_factor"})
    assert not any("consistency" in path for _, path, _ in sent)


def test_a_write_waits_for_the_server(index: QdrantIndex, stub: QdrantStub) -> None:
    index.upsert([Point(5, [1.0, 0.0, 0.0], {7: 0.5}, PAYLOAD)])
    kept = {**PAYLOAD, "seen": ["a", "a|s1", "a|@team"], "at": AT}
    vector = {"bm25": {"indices": [7], "values": [0.5]}, "": [1.0, 0.0, 0.0]}
    points = [{"id": UUID_5, "vector": vector, "payload": kept}]
    assert list_sent(stub) == [("PUT", "/points?wait=true", {"points": points})]


def test_searches(index: QdrantIndex, stub: QdrantStub) -> None:
    index.search_words({7: 0.5}, ME, 200)
    index.search_meaning([1.0, 0.0, 0.0], All((*ME.must, valid_ids([3])), ME.must_not), 20)
    words, meaning = list_sent(stub)
    assert words[:2] == ("POST", "/points/query")
    assert words[2]["query"] in ({"indices": [7], "values": [0.5]}, {"nearest": {"indices": [7], "values": [0.5]}})
    assert (words[2]["using"], words[2]["limit"], words[2]["with_payload"]) == ("bm25", 200, False)
    assert words[2]["filter"] == VISIBLE
    assert meaning[2]["filter"]["must"] == [*VISIBLE["must"], {"has_id": [UUID_5[:-1] + "3"]}]
    assert (meaning[2].get("using"), meaning[2]["limit"]) == (None, 20)


def test_a_changed_payload_waits_for_the_server(index: QdrantIndex, stub: QdrantStub) -> None:
    index.upsert([Point(5, None, {7: 0.5}, PAYLOAD)])
    stub.received.clear()
    index.set_payload([5], {"won": True, "seen": ["*", "*|s1", "*|@team"]})
    assert list_sent(stub)[-1] == (
        "POST",
        "/points/payload?wait=true",
        {"payload": {"won": True, "seen": ["*", "*|s1", "*|@team"]}, "points": [UUID_5]},
    )


def test_a_deletion_waits_for_the_server(index: QdrantIndex, stub: QdrantStub) -> None:
    index.upsert([Point(5, None, {7: 0.5}, PAYLOAD)])
    stub.received.clear()
    assert index.delete(Selection(session_id="s1")) == 1
    of_session = {"must": [{"key": "run_id", "match": {"any": ["s1"]}}], "must_not": []}
    condition = {"must": [of_session], "must_not": [{"is_empty": {"key": "seen"}}]}
    assert list_sent(stub)[-1] == ("POST", "/points/delete?wait=true", {"filter": condition})


def test_the_key_is_sent_and_refused(stub: QdrantStub, caplog: pytest.LogCaptureFixture) -> None:
    stub.api_key = "right-key-123"
    with caplog.at_level(logging.WARNING):
        QdrantIndex(stub.url, "right-key-123", "memories", 3).close()
    assert caplog.messages == []  # loopback needs no encryption
    with pytest.raises(MemoryUnavailable, match="refuses the key") as caught:
        QdrantIndex(stub.url, "wrong-key-456", "memories", 3)
    assert "wrong-key" not in f"{caught.value.message}{caught.value.hint}"


def test_vectors_of_another_size_are_refused(index: QdrantIndex, stub: QdrantStub) -> None:
    with pytest.raises(MemoryUnavailable, match="vectors of 3 numbers, not 4"):
        QdrantIndex(stub.url, None, "memories", 4)


@pytest.mark.parametrize(
    ("vectors", "sparse", "message"),
    [
        ({"dense": {"size": 1536, "distance": "Cosine"}}, {}, r"vectors of 1536 numbers \(dense\), not 3"),
        ({"dense": {"size": 3, "distance": "Cosine"}}, {}, r"vectors with a name \(dense\)"),
        ({"size": 3, "distance": "Cosine"}, {}, "no sparse vectors called bm25"),
    ],
)
def test_a_collection_of_another_program_is_not_touched(
    stub: QdrantStub, vectors: Any, sparse: Any, message: str
) -> None:
    layout = {"vectors": vectors, "sparse_vectors": sparse}
    assert httpx2.put(f"{stub.url}/collections/memories", json=layout).status_code == 200
    before = len(stub.received)
    with pytest.raises(MemoryUnavailable, match=message):
        QdrantIndex(stub.url, None, "memories", 3)
    assert [request.method for request in stub.received[before:]] == ["GET", "GET"]


@pytest.mark.parametrize("key", ["right-key\n123", "right key", "right-kéy"])
def test_a_key_that_no_header_may_hold_is_not_shown(stub: QdrantStub, key: str) -> None:
    with pytest.raises(MemoryUnavailable, match="characters that no key has") as caught:
        QdrantIndex(stub.url, key, "memories", 3)
    assert "right" not in f"{caught.value.message}{caught.value.hint}{caught.value.__cause__}"


def test_a_server_that_is_not_there() -> None:
    start = time.monotonic()
    with pytest.raises(MemoryUnavailable, match="does not answer") as caught:
        QdrantIndex("http://127.0.0.1:9", None, "memories", 3)
    assert time.monotonic() - start < TIMEOUT
    assert "embedded" in caught.value.hint


def test_a_server_that_goes_away(index: QdrantIndex, stub: QdrantStub) -> None:
    index.upsert([Point(5, None, {7: 0.5}, PAYLOAD)])
    stub.stop()
    start = time.monotonic()
    for use in (
        lambda: index.upsert([Point(6, None, {7: 0.5}, PAYLOAD)]),
        lambda: index.search_words({7: 1.0}, ME, 5),
        lambda: index.count(Selection()),
        lambda: index.set_payload([5], {"won": True}),
        lambda: index.delete(Selection(session_id="s1")),
    ):
        with pytest.raises(MemoryUnavailable, match="does not answer"):
            use()
    assert time.monotonic() - start < 4 * TIMEOUT, "nothing waits for as long as a server that says nothing"


def test_a_server_that_says_nothing(index: QdrantIndex, stub: QdrantStub) -> None:
    stub.delay = 60
    start = time.monotonic()
    with pytest.raises(MemoryUnavailable, match="does not answer: timed out"):
        index.search_words({7: 1.0}, ME, 5)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_a_server_in_trouble(index: QdrantIndex, stub: QdrantStub, status: int) -> None:
    stub.status = status
    with pytest.raises(MemoryUnavailable, match=f"answered {status}: .*as asked"):
        index.search_words({7: 1.0}, ME, 5)


def test_no_file_is_made(stub: QdrantStub, home: Path) -> None:
    QdrantIndex(stub.url, None, "memories", 3).close()
    assert list(home.iterdir()) == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_for_snapshots_in_the_docs_are_what_the_official_client_sends(stub: QdrantStub) -> None:
    collection, name = "massmem_words", "NAME"
    commands = re.findall(r"^curl .*/snapshots.*$", (ROOT / "docs" / "server.md").read_text(), re.MULTILINE)
    for command in commands:
        command = command.replace("http://qdrant.internal:6333", stub.url)
        subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=30)
    by_hand = list_sent(stub)
    stub.received.clear()
    client = QdrantClient(url=stub.url, check_compatibility=False)
    client.create_snapshot(collection)
    location = f"file:///qdrant/snapshots/{collection}/{name}"
    client.recover_snapshot(collection, location, priority=models.SnapshotPriority.SNAPSHOT)
    client.close()
    assert len(commands) == 2
    assert by_hand == list_sent(stub)
