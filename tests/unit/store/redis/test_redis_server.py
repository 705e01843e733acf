"""Addresses, names and errors of Redis servers."""

import pytest
import redis

from massmem.errors import InputError, StoreDamagedError, StoreError
from massmem.records import SessionFilter
from massmem.store.base import Retention
from massmem.store.redis.server import check_address, name_of, store_error
from massmem.store.redis.store import open_redis
from tests.support.redis_server import RedisServer

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
def test_addresses(url: str) -> None:
    check_address(url)
    assert "hush" not in name_of(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:hush/hush@h/0", "special character|no URL"),
        ("redis://:hush#hush@h/0", "special character|no URL"),
        ("redis://:hush?hush@h/0", "special character|no URL"),
        ("redis://h:hush", "no URL"),
        ("redis://h/hush", "no URL"),
        ("redis://[hush", "no URL"),
        ("unix://", "no URL"),
        ("redis://h?ssl_ca_certs=hush", "'ssl_ca_certs' is no option"),
        ("redis://h?decode_responses=hush", "is no option"),
    ],
)
def test_mistakes_in_addresses_show_nothing_of_them(url: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        check_address(url)
    assert "hush" not in f"{error.value.message} {error.value.hint}"


def test_names_have_no_password_and_no_options() -> None:
    assert name_of(f"redis://u:{SECRET}@h:6380/15") == "redis://u@h:6380/15"
    assert name_of("rediss://h?ssl_keyfile=/x") == "rediss://h"
    assert name_of(f"unix://u:{SECRET}@/run/redis.sock?db=2") == "unix://u@/run/redis.sock"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'. script: x, on @user_script:9.", "out of memory"),
        ("MISCONF Redis is configured to save RDB snapshots", "cannot write to its disk"),
        ("READONLY You can't write against a read only replica.", "read-only replica"),
        ("NOPERM this user has no permissions to run the 'eval' command", "may not do that"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "does not let us in"),
        ("MOVED 1 127.0.0.1:7000", "is a cluster"),
        ("DB index is out of range", "no such database"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "another program"),
        ("BUSY Redis is busy running a script.", "busy"),
        ("ERR something new", "refused a command"),
    ],
)
def test_errors_say_what_to_do(reason: str, said: str) -> None:
    error = store_error(redis.ResponseError(reason), "redis://h")
    assert said in error.message
    assert error.hint
    assert "redis://h" in error.message


async def test_keys_of_another_program_are_left_alone(redis_server: RedisServer) -> None:
    url = redis_server.new_url()
    with redis.Redis.from_url(url) as client:
        client.set("massmem:all:created", "theirs")
        store = await open_redis(url, Retention())
        with pytest.raises(StoreDamagedError, match="another program"):
            await store.list_sessions()
        assert client.get("massmem:all:created") == b"theirs"
        await store.close()


async def test_a_password_comes_from_the_url_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RedisServer("no", "--requirepass", "hush/hush@")
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
    assert await store.find_sessions(SessionFilter()) == []
    await store.close()
    server.remove()
