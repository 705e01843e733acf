"""Requests of a user in a minute, counted in a real Redis for several processes."""

from pathlib import Path

import pytest

from tests.support.redis_server import StartRedis
from tests.support.service import Service, make_config


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
