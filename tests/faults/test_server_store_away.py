"""The service while its store is away: it lives, says that it is not ready, refuses with Retry-After, and recovers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tests.support.postgres_server import PostgresServer, binary
from tests.support.redis_server import RedisServer, redis_binary
from tests.support.service import Service, agent, free_port, team

pytestmark = pytest.mark.slow

WITHOUT_MEMORY = {"persistent_memory": {"enabled": False}}


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    if binary("initdb") is None:
        pytest.skip("there is no PostgreSQL on this machine")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    if redis_binary() is None:
        pytest.skip("there is no Redis on this machine")
    server = RedisServer()
    yield server
    server.remove()


def until(true: Callable[[], bool], seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def status(service: Service, path: str) -> int:
    try:
        return requests.get(service.url + path, timeout=30).status_code
    except requests.ConnectionError:
        return 0


def refuses(service: Service) -> None:
    """Alive, not ready, and whoever asks is told when to come again."""
    assert status(service, "/healthz") == 200
    assert status(service, "/readyz") == 503
    assert requests.get(service.url + "/readyz", timeout=30).json()["status"] == "not ready"
    client = service.as_("alice")
    for answer in (
        client.chat("Why?", "s", "while it is away"),
        client.post("/api/v1/chat/stream", {"message": "Why?", "session_id": "s"}),
        client.get("/api/v1/chat/history/s"),
        client.get("/api/ai-memory/stats"),
    ):
        assert (answer.status_code, answer.json()["success"]) == (503, False), answer.text
        assert int(answer.headers["Retry-After"]) >= 1
        assert "postgresql" not in answer.text


def test_a_database_that_is_away_at_the_start_and_later(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.url(postgres.new_database())
    postgres.stop()
    service = Service(tmp_path, team(agent("ann", "It is blue."), store={"url": url}, memory=WITHOUT_MEMORY))
    service.start(wait=False)
    until(lambda: status(service, "/healthz") == 200)
    refuses(service)
    postgres.start()
    service.wait()
    client = service.as_("alice")
    said = [("user", "Why?"), ("assistant", "It is blue.")]
    assert client.chat("Why?", "s", "k").status_code == 200
    assert client.history("s") == said
    postgres.kill()
    refuses(service)
    postgres.start()
    service.wait()
    assert client.history("s") == said
    assert client.chat("Why?", "s", "k").json()["turn"] == 1
    assert client.chat("And now?", "s").json()["turn"] == 2
    assert service.stop() == 0


def test_the_service_ends_also_while_it_waits(tmp_path: Path) -> None:
    url = f"postgresql://massmem@127.0.0.1:{free_port()}/massmem"
    service = Service(tmp_path, team(store={"url": url}, memory=WITHOUT_MEMORY)).start(wait=False)
    until(lambda: status(service, "/healthz") == 200)
    assert service.stop(20) == 0


def test_a_database_that_does_not_exist_is_no_reason_to_wait(postgres: PostgresServer, tmp_path: Path) -> None:
    service = Service(tmp_path, team(store={"url": postgres.url("nowhere")}, memory=WITHOUT_MEMORY)).start(wait=False)
    assert service.process is not None
    assert service.process.wait(60) == 3
    assert "does not exist" in service.log.read_text()


@pytest.mark.parametrize(("workers", "on_unavailable"), [(2, "memory"), (1, "fail")])
def test_redis_that_may_not_be_replaced_is_waited_for(
    redis: RedisServer, tmp_path: Path, workers: int, on_unavailable: str
) -> None:
    """Several processes cannot hold a conversation in memory: each would know another one."""
    url = redis.new_url()
    redis.stop()
    config = team(store={"url": url, "on_unavailable": on_unavailable}, memory=WITHOUT_MEMORY)
    service = Service(tmp_path, config).start("--workers", str(workers), wait=False)
    until(lambda: status(service, "/healthz") == 200)
    refuses(service)
    redis.start()
    service.wait()
    client = service.as_("alice")
    until(lambda: client.chat("Why?", "s", "k").status_code == 200)  # each process looks by itself
    numbers = client.get("/api/ai-memory/stats").json()["data"]
    assert (numbers["usingRedis"], numbers["durable"], numbers["totalMessages"]) == (True, True, 2)
    assert service.stop() == 0
