"""Requests of a user in a minute, counted in a real Redis by the processes that name it."""

from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer, redis_binary
from tests.support.service import Service, team


@pytest.mark.slow
def test_processes_that_share_a_redis_count_together(tmp_path: Path) -> None:
    if redis_binary() is None:
        pytest.skip("there is no Redis on this machine")
    redis = RedisServer()
    limits = {"requests": 5, "counted_in": f"redis://127.0.0.1:{redis.port}"}
    services = [Service(tmp_path, team(server={"limits": limits}), name) for name in ("one", "other")]
    try:
        for each in services:
            each.start(wait=False)
        for each in services:
            each.wait()
        ritas = [each.as_("rita") for each in services]
        answers = [ritas[number % 2].get("/api/ai-memory/stats") for number in range(8)]
        assert [a.status_code for a in answers[:5]] == [200] * 5
        assert answers[-1].status_code == 429
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 61
        assert services[0].as_("sam").get("/api/ai-memory/stats").status_code == 200
        redis.kill()
        refused = ritas[0].get("/api/ai-memory/stats")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "127.0.0.1" not in refused.text
    finally:
        codes = [each.stop() for each in services]
        redis.remove()
    assert codes == [0, 0]
    told = [line for line in services[0].lines() if line["level"] == "error"]
    assert [line["message"] for line in told] == ["StoreUnavailable: requests cannot be counted: ConnectionError"]
