"""Redis servers: addresses, names, errors, warnings about their settings, and what deletion leaves in their files."""

import asyncio
import contextlib
import time

import pytest
import redis

from massmem.core.errors import InputError, StoreDamagedError, StoreError, StoreUnavailable
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.store.ports import Retention
from massmem.store.redis.server import check_url, name_server, translate_error
from massmem.store.redis.store import open_redis
from tests.contract.test_session_store import session
from tests.support.redis_server import RedisServer, StartRedis
from tests.support.sample_turn import begin

SECRET = "hush%2Fhush%40"


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h",
        f"redis://u:{SECRET}@h:6380/15",
        f"redis://:{SECRET}@[::1]:6380",
        "rediss://h/0?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=2",
        "redis://h?client_name=me",
    ],
)
def test_url_is_accepted_and_its_name_has_no_password(url: str) -> None:
    check_url(url)
    assert "hush" not in name_server(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://:hush/hush@h/0", "special character"),
        ("redis://:hush#hush@h/0", "special character"),
        ("redis://:hush?hush@h/0", "special character"),
        ("redis://:p@hush:w/rd#1@h:6379/3", "special character"),
        ("redis://h:hush", "no URL"),
        ("redis://h/hush", "no URL"),
        ("redis://[hush", "no URL"),
        ("unix://", "no URL"),
        ("redis://h?ssl_ca_certs=hush", "'ssl_ca_certs' is no option"),
        ("redis://h?decode_responses=hush", "is no option"),
    ],
)
def test_invalid_url_is_rejected_without_showing_it(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        check_url(url)
    assert "hush" not in f"{error.value.message} {error.value.hint}"


def test_server_name_has_no_password_and_no_options() -> None:
    assert name_server(f"redis://u:{SECRET}@h:6380/15") == "redis://u@h:6380/15"
    assert name_server("rediss://h?ssl_keyfile=/x") == "rediss://h"
    assert name_server(f"unix://u:{SECRET}@/run/redis.sock?db=2") == "unix://u@/run/redis.sock"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "out of memory"),
        ("MISCONF Redis is configured to save RDB snapshots", "cannot write to its disk"),
        ("READONLY You can't write against a read only replica.", "read-only replica"),
        ("NOPERM this user has no permissions to run the 'exec' command", "may not do that"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "does not let us in"),
        ("MOVED 1 127.0.0.1:7000", "is a cluster"),
        ("DB index is out of range", "refused a command: DB index is out of range"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "another program"),
        ("ERR something new", "refused a command"),
    ],
)
def test_error_names_the_server_and_says_what_to_do(reason: str, message: str) -> None:
    error = translate_error(redis.ResponseError(reason), "redis://h")
    assert message in error.message
    assert error.hint
    assert "redis://h" in error.message


def test_error_in_a_pipeline_shows_nothing_of_the_command() -> None:
    reason = "Command # 2 (HSET massmem:v3:session:s entry:5 OOM) of pipeline caused error: ('ERR something new',)"
    error = translate_error(redis.ResponseError(reason), "redis://h")
    assert error.message == "redis://h refused a command: ERR something new"


async def test_keys_of_another_program_are_left_alone(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    with redis_server.connect(url) as client:
        client.set("massmem:v3:used", "theirs")
        store = await open_redis(url, Retention())
        with pytest.raises(StoreDamagedError, match="another program"):
            await store.list_sessions()
        assert client.get("massmem:v3:used") == "theirs"
        await store.close()


async def test_password_comes_from_the_url_or_the_environment(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis("no", "--requirepass", "hush/hush@")
    address = f"127.0.0.1:{server.port}/0"
    with pytest.raises(StoreError, match="does not let us in") as error:
        await open_redis(f"redis://:wrong-hush@{address}", Retention())
    assert "hush" not in f"{error.value.message} {error.value.hint}"
    with pytest.raises(StoreError, match="does not let us in"):
        await open_redis(f"redis://{address}", Retention())
    store = await open_redis(f"redis://:{SECRET}@{address}", Retention())
    await store.close()
    monkeypatch.setenv("REDIS_PASSWORD", "hush/hush@")
    store = await open_redis(f"redis://{address}", Retention())
    assert await store.find_sessions(SessionFilter(owner=EVERYBODY)) == []
    await store.close()


async def test_unix_socket(redis_server: RedisServer) -> None:
    store = await open_redis(f"unix://{redis_server.socket}?db=3999", Retention())
    await store.create_session(session())
    assert await store.get_session("session_a") == session()
    await store.close()


async def test_server_that_is_away_is_reported_and_found_again(start_redis: StartRedis) -> None:
    server = start_redis("always")
    store = await open_redis(server.new_url(), Retention())
    await store.create_session(session())
    server.kill()
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"redis://127.0.0.1:{server.port}/0 cannot be reached"):
        await store.append("session_a", 1, [begin("ann")])
    with pytest.raises(StoreUnavailable):
        await open_redis(f"redis://127.0.0.1:{server.port}/0", Retention())
    assert time.monotonic() < begun + 10
    server.start()
    assert await store.append("session_a", 1, [begin("ann")]) == [1]
    await store.close()


async def test_settings_that_risk_data_are_warned_of(start_redis: StartRedis, redis_server: RedisServer) -> None:
    server = start_redis("no", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    store = await open_redis(server.new_url(), Retention())
    without_file, policy = store.info.once
    assert "append-only file" in without_file
    assert "lost" in without_file
    assert "allkeys-lru" in policy
    assert store.info.durable
    await store.close()
    safe = await open_redis(redis_server.new_url(), Retention())
    assert safe.info.once == ()
    await safe.close()


async def test_user_with_the_documented_permissions_can_do_everything(start_redis: StartRedis) -> None:
    server = start_redis("no")
    with server.connect(f"redis://127.0.0.1:{server.port}") as client:
        client.acl_setuser(
            "me", enabled=True, passwords=["+hush"], keys=["massmem:*"],
            categories=["+@read", "+@write", "+@transaction", "+@connection"], commands=["+time"],
        )  # fmt: skip
    store = await open_redis(f"redis://me:hush@127.0.0.1:{server.port}/0", Retention(messages=1))
    assert store.info.once == ()
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "me", 60)
    for turn in (1, 2):
        await store.append("session_a", turn, [begin("ann", question=f"Question {turn}?")])
    assert [message.content for message in await store.read_messages("session_a")] == ["Question 2?"]
    assert await store.erase_deleted() is False
    await store.close()


async def test_full_server_takes_nothing_and_loses_nothing(start_redis: StartRedis) -> None:
    server = start_redis("everysec", "--maxmemory", "4mb")
    store = await open_redis(server.new_url(), Retention(messages=10_000))
    assert store.info.once == ()
    await store.create_session(session())
    stored = 0
    with pytest.raises(StoreError, match="out of memory") as error:
        while True:
            await store.append("session_a", stored + 1, [begin("ann", question=f"{stored} " + "long " * 20_000)])
            stored += 1
    assert "maxmemory" in error.value.hint
    assert len(await store.read_messages("session_a")) == stored
    with server.connect(f"redis://127.0.0.1:{server.port}") as client:
        client.config_set("maxmemory", "100mb")
    await store.append("session_a", stored + 1, [begin("ann", question="short")])
    assert len(await store.read_messages("session_a")) == stored + 1
    await store.close()


def read_files(server: RedisServer) -> bytes:
    contents = b""
    for path in server.folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            contents += path.read_bytes() if path.suffix in (".aof", ".rdb") else b""
    return contents


async def test_erase_removes_deleted_sessions_from_the_files(start_redis: StartRedis) -> None:
    server = start_redis("always", "--save", "3600 1")
    store = await open_redis(server.new_url(), Retention())
    with server.connect(f"redis://127.0.0.1:{server.port}") as client:
        for name in ("session_a", "session_b"):
            await store.create_session(session(name))
            await store.append(name, 1, [begin("ann", question=f"The secret of {name}")])
        client.bgsave()
        assert b"session_a" in read_files(server)
        assert await store.delete_session("session_a", 100) is None
        assert await store.erase_deleted() is True
        deadline = time.monotonic() + 60
        while b"session_a" in read_files(server) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)  # Redis removes the file that was replaced in the background
        assert b"session_a" not in read_files(server)
        assert b"session_b" in read_files(server)
    await store.close()
