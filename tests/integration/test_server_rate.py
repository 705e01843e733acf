"""What is counted for several processes: in a real Redis, or by the workers of a host."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.redis_server import StartRedis
from tests.support.service import Client, Service, StartService, make_agent, make_config


@pytest.mark.slow
def test_processes_that_share_redis_count_together(start_redis: StartRedis, tmp_path: Path) -> None:
    redis = start_redis()
    limits = {"requests": 5, "counted_in": f"redis://127.0.0.1:{redis.port}"}
    services = [Service(tmp_path, make_config(server={"limits": limits})) for _ in range(2)]
    try:
        for service in services:
            service.start(wait=False)
        for service in services:
            service.wait_until_ready()
        clients = [service.client("rita") for service in services]
        responses = [clients[number % 2].get("/api/ai-memory/stats") for number in range(8)]
        assert [response.status_code for response in responses[:5]] == [200] * 5
        assert responses[-1].status_code == 429
        assert 1 <= int(responses[-1].headers["Retry-After"]) <= 61
        assert services[0].client("sam").get("/api/ai-memory/stats").status_code == 200
        redis.stop()
        refusal = clients[0].get("/api/ai-memory/stats")
        assert (refusal.status_code, refusal.headers["Retry-After"]) == (503, "5")
        assert "127.0.0.1" not in refusal.text
    finally:
        codes = [service.stop() for service in services]
    assert codes == [0, 0]
    errors = [line["message"] for line in services[0].read_log() if line["level"] == "error"]
    assert errors == ["StoreUnavailable: requests cannot be counted: ConnectionError"]


@pytest.mark.slow
def test_workers_count_questions_and_wrong_keys_together(start_service: StartService) -> None:
    limits = {"turns_per_user": 2, "wrong_keys": 5}
    config = make_config(make_agent("ann", "It is blue.", latency=5), server={"limits": limits})
    service = start_service(config, "--workers", "3")

    def ask(number: int) -> int:
        return service.client("tom").chat(f"Question {number}?").status_code

    with ThreadPoolExecutor(12) as pool:
        assert sorted(pool.map(ask, range(12))) == [200] * 2 + [429] * 10
    refused = [Client(service.url, f"wrong{number}").get("/api/v1/about") for number in range(20)]
    assert {response.status_code for response in refused[:5]} == {401}
    assert refused[-1].status_code == 429
    assert 1 <= int(refused[-1].headers["Retry-After"]) <= 61
    assert service.client("tom").get("/api/v1/about").status_code == 200
