"""The service while its store is unreachable: alive, not ready, refusing with Retry-After; then it recovers."""

import pytest
import requests

from tests.support.postgres_server import PostgresServer, StartPostgres
from tests.support.redis_server import StartRedis
from tests.support.service import Service, StartService, find_free_port, make_config, wait_until

pytestmark = pytest.mark.slow

NO_MEMORY = {"persistent_memory": {"enabled": False}}


def check_refusals(service: Service) -> None:
    """The process is alive and not ready, and tells clients when to come again."""
    assert service.get_status("/healthz") == 200
    readiness = requests.get(service.url + "/readyz", timeout=30)
    assert (readiness.status_code, readiness.json()["status"]) == (503, "not ready")
    alice = service.client("alice")
    for response in (
        alice.chat("Why?", "s", "while it is away"),
        alice.post("/api/v1/chat/stream", {"message": "Why?", "session_id": "s"}),
        alice.get("/api/v1/chat/history/s"),
        alice.get("/api/ai-memory/stats"),
    ):
        assert (response.status_code, response.json()["success"]) == (503, False), response.text
        assert int(response.headers["Retry-After"]) >= 1
        assert "postgresql" not in response.text


def wait_until_alive(service: Service) -> None:
    wait_until(lambda: service.get_status("/healthz") == 200)


def test_database_that_is_away_at_the_start_and_later(
    start_postgres: StartPostgres, start_service: StartService
) -> None:
    postgres = start_postgres()
    url = postgres.url(postgres.new_database())
    postgres.stop()
    service = start_service(make_config(store={"url": url}, memory=NO_MEMORY), wait=False)
    wait_until_alive(service)
    check_refusals(service)
    postgres.start()
    service.wait_until_ready()
    alice = service.client("alice")
    messages = [("user", "Why?"), ("assistant", "It is blue.")]
    assert alice.chat("Why?", "s", "k").status_code == 200
    assert alice.read_history("s") == messages
    postgres.kill()
    check_refusals(service)
    postgres.start()
    service.wait_until_ready()
    assert alice.read_history("s") == messages
    assert alice.chat("Why?", "s", "k").json()["turn"] == 1
    assert alice.chat("And now?", "s").json()["turn"] == 2
    assert service.stop() == 0


def test_service_that_waits_for_its_store_can_be_stopped(start_service: StartService) -> None:
    url = f"postgresql://massmem@127.0.0.1:{find_free_port()}/massmem"
    service = start_service(make_config(store={"url": url}, memory=NO_MEMORY), wait=False)
    wait_until_alive(service)
    assert service.stop() == 0


def test_unknown_database_keeps_the_service_from_starting(
    postgres: PostgresServer, start_service: StartService
) -> None:
    config = make_config(store={"url": postgres.url("nowhere")}, memory=NO_MEMORY)
    service = start_service(config, wait=False)
    assert service.wait_for_exit() == 3
    assert "does not exist" in service.log.read_text()


@pytest.mark.parametrize(("workers", "on_unavailable"), [(2, "memory"), (1, "fail")])
def test_redis_that_may_not_be_replaced_by_memory_is_waited_for(
    start_redis: StartRedis, start_service: StartService, workers: int, on_unavailable: str
) -> None:
    """Several processes cannot hold a conversation in memory: each would know another one."""
    redis = start_redis()
    url = redis.new_url()
    redis.stop()
    config = make_config(store={"url": url, "on_unavailable": on_unavailable}, memory=NO_MEMORY)
    service = start_service(config, "--workers", str(workers), wait=False)
    wait_until_alive(service)
    check_refusals(service)
    redis.start()
    service.wait_until_ready()
    alice = service.client("alice")
    wait_until(lambda: alice.chat("Why?", "s", "k").status_code == 200)  # each worker looks by itself
    stats = alice.get("/api/ai-memory/stats").json()["data"]
    assert (stats["usingRedis"], stats["durable"], stats["totalMessages"]) == (True, True, 2)
    assert service.stop() == 0
