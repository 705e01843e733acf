"""What a Redis server may lose by its settings, and what is left in its files of what was deleted."""

import asyncio
import contextlib
import time

import pytest
import redis

from massmem.store.base import Retention
from massmem.store.redis.store import open_redis
from tests.contract.test_session_store import session
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import begin


def files(server: RedisServer) -> bytes:
    found = b""
    for path in server.folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found += path.read_bytes() if path.suffix in (".aof", ".rdb") else b""
    return found


@pytest.fixture
def server() -> RedisServer:
    return RedisServer("no", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")


async def test_risks_are_named(server: RedisServer, redis_server: RedisServer) -> None:
    store = await open_redis(server.new_url(), Retention())
    without_file, policy = store.info.once
    assert "append-only file" in without_file
    assert "lost" in without_file
    assert "allkeys-lru" in policy
    assert store.info.durable
    await store.close()
    server.remove()
    safe = await open_redis(redis_server.new_url(), Retention())
    assert safe.info.once == ()
    await safe.close()


async def test_a_server_that_does_not_tell_its_settings(server: RedisServer) -> None:
    with redis.Redis(port=server.port) as client:
        client.acl_setuser(
            "me", enabled=True, passwords=["+hush"], keys=["massmem:*"],
            categories=["+@read", "+@write", "+@scripting", "+@connection"], commands=["+time"],
        )  # fmt: skip
    store = await open_redis(f"redis://me:hush@127.0.0.1:{server.port}/0", Retention())
    assert store.info.once == ()
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")])
    assert len(await store.messages("session_a")) == 1
    assert await store.erase() is False
    await store.close()
    server.remove()


async def test_nothing_of_what_was_deleted_is_left_in_the_files() -> None:
    server = RedisServer("always", "--save", "3600 1")
    store = await open_redis(server.new_url(), Retention())
    with redis.Redis(port=server.port) as client:
        for name in ("session_a", "session_b"):
            await store.create_session(session(name))
            await store.append(name, 1, [begin("ann", question=f"The secret of {name}")])
        client.bgsave()
        assert b"session_a" in files(server)
        assert await store.delete_session("session_a", 100) is None
        assert await store.erase() is True
        deadline = time.monotonic() + 5
        while b"session_a" in files(server) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)  # Redis removes the file that was replaced in the background
        assert b"session_a" not in files(server)
        assert b"session_b" in files(server)
    await store.close()
    server.remove()
