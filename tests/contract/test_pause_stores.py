"""The Pauses port, over everything that implements it."""

from collections.abc import AsyncIterator

import pytest

from massmem.providers.retry import LocalPauses, Pauses, SharedPauses
from massmem.store import RedisPauses
from massmem.store.redis.server import RedisConnection
from tests.support.redis_server import RedisServer


@pytest.fixture(params=["local", "redis", "shared"])
async def pauses(request: pytest.FixtureRequest) -> AsyncIterator[Pauses]:
    opened: Pauses = LocalPauses()
    if request.param != "local":
        server: RedisServer = request.getfixturevalue("redis_server")
        opened = RedisPauses(RedisConnection(server.new_url()))
    if request.param == "shared":
        opened = SharedPauses(opened)
    yield opened
    await opened.close()


async def test_pause_is_over_after_its_time(pauses: Pauses) -> None:
    assert await pauses.find("a") == 0
    await pauses.begin("a", 50.5)
    assert 0 < await pauses.find("a") <= 50.5
    assert await pauses.find("b") == 0
    await pauses.begin("c", 0)
    assert await pauses.find("c") == 0
    await pauses.begin("d", 0.001)
    while await pauses.find("d"):
        pass


async def test_longest_pause_counts(pauses: Pauses) -> None:
    await pauses.begin("a", 50)
    await pauses.begin("a", 200)
    assert 150 < await pauses.find("a") <= 200
    await pauses.begin("a", 10)
    assert 150 < await pauses.find("a") <= 200


async def test_connections_to_one_redis_share_a_pause(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    first, second = RedisPauses(RedisConnection(url)), RedisPauses(RedisConnection(url))
    await first.begin("a", 50)
    assert 0 < await second.find("a") <= 50
    await first.close()
    await second.close()
