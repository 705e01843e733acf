"""Databases of older layouts: `layout_1.json` is what the last massmem of layout 1 stored, and what it read back."""

import json
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import StoreVersionError
from massmem.store.ports import Retention
from massmem.store.redis.store import RedisStore, open_redis
from tests.contract.test_session_store import done, queue
from tests.support.redis_server import RedisServer
from tests.support.sample_turn import begin

FIXTURE = json.loads(Path(__file__).with_name("layout_1.json").read_text())
RETENTION = Retention(seconds=3600, messages=12)


def load_fixture(server: RedisServer, url: str) -> None:
    with server.connect(url) as client:
        for key, stored in FIXTURE["keys"].items():
            match stored["type"]:
                case "hash":
                    client.hset(key, mapping=stored["value"])
                case "zset":
                    client.zadd(key, stored["value"])
                case _:
                    client.set(key, stored["value"])
            if stored["ttl"]:
                client.pexpire(key, 1_000_000)


async def read_session(store: RedisStore, name: str) -> dict[str, Any]:
    copy, summary = await store.export_session(name), await store.get_latest_summary(name, "ann")
    assert copy is not None
    due = await queue(store, name)
    episodes = await store.get_messages([job.message_id for job in due if job.kind == "episode"])
    winners = await store.get_winners([name])
    return {
        "copy": copy.model_dump(mode="json"),
        "messages": [m.model_dump(mode="json") for m in await store.read_messages(name)],
        "turns": [t.model_dump(mode="json") for t in await store.list_turns(name)],
        "log": [entry.model_dump(mode="json") for entry in await store.export_log(name)],
        "winners": {str(turn): winner for (_, turn), winner in winners.items()},
        "counts": (await store.count_recordings(name)).model_dump(mode="json"),
        "summary": summary and summary.content,
        "owner": await store.get_lease_owner(name),
        "request": await store.find_request(name, "r1"),
        "due": [job.model_dump(mode="json") for job in due],
        "aside": [m.model_dump(mode="json") for m in episodes],
    }


@pytest.mark.parametrize("name", list(FIXTURE["seen"]))
async def test_session_of_layout_1_reads_the_same(redis_server: RedisServer, name: str) -> None:
    url = redis_server.new_url()
    load_fixture(redis_server, url)
    store = await open_redis(url, RETENTION)
    assert await read_session(store, name) == FIXTURE["seen"][name]
    await store.close()


async def test_layout_1_is_replaced_and_goes_on(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    load_fixture(redis_server, url)
    for _ in range(2):
        store = await open_redis(url, RETENTION)
        await store.close()
    with redis_server.connect(url) as client:
        keys = client.keys("*")
        assert all(key.startswith("massmem:v2:") or key == "massmem:layout" for key in keys), keys
        assert all(0 < client.pttl(key) <= 1_000_000 for key in keys if ":session_" in key), keys
    store = await open_redis(url, RETENTION)
    await store.append("session_trimmed", 9, [begin("ann", at=300, question="What comes next?"), done(305, "This.")])
    assert [m.content for m in await store.read_conversation("session_trimmed", None, 1)] == ["This."]
    assert len(await store.read_conversation("session_trimmed", None, 100)) <= 12
    assert len(await store.list_sessions()) == 3
    await store.close()


async def test_newer_layout_is_refused_and_left_alone(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    with redis_server.connect(url) as client:
        client.set("massmem:layout", "3")
        with pytest.raises(StoreVersionError, match="newer massmem"):
            await open_redis(url, Retention())
        assert client.keys("*") == ["massmem:layout"]
