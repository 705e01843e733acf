"""An empty database, and a store in it with one session."""

from collections.abc import AsyncIterator

import pytest

from massmem.store.ports import Retention
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import session
from tests.support.redis_server import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.new_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    opened = await open_redis(url, Retention())
    await opened.create_session(session())
    yield opened
    await opened.close()
