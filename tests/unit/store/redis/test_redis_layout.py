"""Databases of other versions of massmem are refused, and left as they are."""

import pytest

from massmem.core.errors import StoreVersionError
from massmem.store.ports import Retention
from massmem.store.redis.store import open_redis
from tests.support.redis_server import RedisServer

EARLIER = [("massmem:all:created", "massmem:session:session_a"), ("massmem:v2:used", "massmem:v2:session:session_a")]
"""How layouts 1 and 2 list their sessions, and the key of one of these."""


async def test_newer_layout_is_refused_and_left_alone(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    with redis_server.connect(url) as client:
        client.set("massmem:layout", "4")
        with pytest.raises(StoreVersionError, match="newer massmem"):
            await open_redis(url, Retention())
        assert client.keys("*") == ["massmem:layout"]


@pytest.mark.parametrize(("index", "key"), EARLIER)
async def test_sessions_of_an_earlier_layout_are_refused_while_they_live(
    redis_server: RedisServer, index: str, key: str
) -> None:
    url = redis_server.new_url()
    with redis_server.connect(url) as client:
        client.zadd(index, {"session_a": 1})
        client.hset(key, mapping={"record": "{}"})
        before = sorted(client.keys("*"))
        with pytest.raises(StoreVersionError, match="1 sessions of an earlier massmem") as error:
            await open_redis(url, Retention())
        assert "store migrate --to" in error.value.hint
        assert sorted(client.keys("*")) == before
        client.delete(key)  # as its time to live does
        store = await open_redis(url, Retention())
        await store.close()
        assert client.keys("*") == ["massmem:layout"]
