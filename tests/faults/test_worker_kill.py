"""`massmem worker` beside `massmem serve --no-record`, each killed at any moment: every message becomes one memory."""

import asyncio
import os
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from massmem.core.records import RecordingCounts
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.extraction_stub import extraction_server, memory
from tests.support.forked import ForkedServer
from tests.support.qdrant_stub import QdrantStub
from tests.support.service import Service, StartService, make_agent, make_config, wait_until

pytestmark = pytest.mark.slow


class Worker:
    """A `massmem worker` on the configuration of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.log = service.log.with_suffix(".worker")
        self.process: ForkedServer | None = None

    def start(self) -> None:
        environment = os.environ | {"HOME": str(self._service.home)}
        arguments = ("worker", "--config", str(self._service.config_file))
        self.log.touch()
        self.process = ForkedServer(arguments, environment, self.log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
def qdrant() -> Iterator[QdrantStub]:
    with QdrantStub() as stub:
        yield stub


@pytest.fixture
def facts_url() -> Iterator[str]:
    with extraction_server(memory("The user likes lighthouses.")) as url:
        yield url


def build_config(qdrant: QdrantStub, facts_url: str, **agent: Any) -> dict[str, Any]:
    llm = {"provider": "openai", "model": "stub", "api_key": "none", "base_url": f"{facts_url}/v1"}
    persistent = {"llm": llm, "embedding": {"model": "none"}, "qdrant": {"mode": "server", "url": qdrant.url}}
    team = [make_agent("ann", "It is blue.", **agent)]
    return make_config(*team, memory={"persistent_memory": persistent}, server={"record": False})


def read_store(service: Service, read: Any) -> Any:
    async def run() -> Any:
        home = service.home / ".massmem"
        store: SessionStore = await open_store(f"sqlite:///{home}/massmem.db", home)
        try:
            return await read(store)
        finally:
            await store.close()

    return asyncio.run(run())


def count_queue(service: Service) -> RecordingCounts:
    return read_store(service, lambda store: store.count_recordings())


def has_recorded(service: Service, count: int) -> bool:
    return count_queue(service).done >= count


def has_due_rows(service: Service) -> bool:
    kinds = ("episode", "complete", "extract")
    return any(read_store(service, lambda store, kind=kind: store.list_due_recordings(kind, 1)) for kind in kinds)


def read_gauges(service: Service) -> dict[str, float]:
    """Return the gauges of the queue."""
    text = service.client("prometheus", scope="metrics").get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(massmem_recordings\S*) (\S+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.full)])
def test_kill_of_worker_or_service_loses_nothing(
    start_service: StartService, qdrant: QdrantStub, facts_url: str, kills: int
) -> None:
    service = start_service(build_config(qdrant, facts_url))
    chance, worker = random.Random(kills), Worker(service)
    assert service.client("alice").chat("Why is the sky blue, number 0?", "s0").status_code == 200
    gauges = read_gauges(service)
    assert gauges['massmem_recordings{status="pending"}'] > 0, "the service leaves the queue alone"
    assert gauges["massmem_recordings_oldest_seconds"] > 0
    worker.start()
    try:
        for number in range(1, kills + 1):
            question = f"Why is the sky blue, number {number}?"
            assert service.client("alice").chat(question, f"s{number}").status_code == 200
            wait_until(partial(has_recorded, service, chance.randrange(3 * number)))
            worker.kill()
            if chance.random() < 0.5:
                service.kill()
                service.start()
            worker.start()
        wait_until(lambda: not has_due_rows(service), 60)
        # What a killed worker was paying a model for is left alone for a minute: that is over now.
        read_store(service, lambda store: store.requeue_recordings(done=False))
        wait_until(lambda: count_queue(service).pending == 0, 60)
    finally:
        worker.kill()
    counts = count_queue(service)
    assert (counts.failed, counts.oldest) == (0, None)
    assert counts.done >= 4 * (kills + 1), "question, answer, end and facts of each turn"
    assert read_gauges(service)['massmem_recordings{status="pending"}'] == 0
    texts = [point.payload["data"] for point in list_points(qdrant) if point.payload["kind"] == "episode"]
    for number in range(kills + 1):
        assert sum(f"number {number}?" in text for text in texts) == 1


def list_points(qdrant: QdrantStub) -> list[Any]:
    client = qdrant._client
    (name,) = [collection.name for collection in client.get_collections().collections]
    points, _ = client.scroll(name, limit=10_000)
    return list(points)


def test_worker_compresses_before_the_next_question(
    start_service: StartService, qdrant: QdrantStub, facts_url: str
) -> None:
    long = " ".join(f"Fact {i} of the sky is that it is blue and wide." for i in range(24))
    config = build_config(qdrant, facts_url, answer=[long], present=long)
    config["agents"][0]["backend"]["context_window"] = 4_000
    service = start_service(config)
    for number in range(9):
        assert service.client("alice").chat(f"Why, number {number}?", "long").status_code == 200
    worker = Worker(service)
    worker.start()

    def has_summary() -> bool:
        (session,) = read_store(service, lambda store: store.list_sessions())
        return read_store(service, lambda store: store.get_latest_summary(session.session_id, "ann")) is not None

    try:
        wait_until(lambda: "a history was compressed" in worker.log.read_text() and has_summary(), 60)
    finally:
        worker.kill()
    assert service.client("alice").chat("And now?", "long").status_code == 200


def test_service_without_shared_index_refuses_to_leave_recording_to_workers(
    start_service: StartService, tmp_path: Path
) -> None:
    service = start_service(make_config(), "--no-record", wait=False)
    assert service.wait_for_exit() == 2
    assert "needs a Qdrant server" in service.log.read_text()
