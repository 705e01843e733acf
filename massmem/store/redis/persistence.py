"""What a Redis server keeps on its disk: what it may lose by its settings, and what was deleted and is still there."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from massmem.errors import StoreError, StoreUnavailable
from massmem.store.redis.client import RedisClient

_REWRITING = 60.0
"""Seconds to wait until the files are written anew."""

_LOOK_AGAIN = 0.05
_SETTINGS = ("appendonly", "maxmemory", "maxmemory-policy", "save")


async def risks_of(client: RedisClient) -> tuple[str, ...]:
    """What the user should know of the server; nothing when it does not tell its settings."""
    settings = await _settings(client)
    found: list[str] = []
    if settings.get("appendonly") == "no":
        found.append(
            "Redis keeps no append-only file: what is answered now is lost when its server stops or crashes before "
            "its next snapshot; set `appendonly yes` there, and `appendfsync always` to lose not even the last second"
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        found.append(
            f"Redis may throw sessions away when its memory is full (maxmemory-policy {policy}); set it to noeviction "
            "to be told instead"
        )
    return tuple(found)


async def rewritten(client: RedisClient) -> bool:
    """Have the files of the server written anew, without what was deleted. False: it does not let us, or it failed."""
    settings = await _settings(client)
    try:
        if settings.get("appendonly") != "no":
            await client.run("BGREWRITEAOF")
            await _wait(client, "aof_rewrite_in_progress", "aof_rewrite_scheduled")
        if settings.get("save") != "":
            await client.run("BGSAVE", "SCHEDULE")
            await _wait(client, "rdb_bgsave_in_progress")
        state = await client.run("INFO", "persistence")
    except StoreUnavailable:
        raise
    except (StoreError, TimeoutError):
        return False
    return state.get("aof_last_bgrewrite_status") == "ok" and state.get("rdb_last_bgsave_status") == "ok"


async def _wait(client: RedisClient, *fields: str) -> None:
    end = time.monotonic() + _REWRITING
    while _any(await client.run("INFO", "persistence"), fields):
        if time.monotonic() > end:
            raise TimeoutError
        await asyncio.sleep(_LOOK_AGAIN)


def _any(state: Mapping[str, Any], fields: Sequence[str]) -> bool:
    return any(state.get(field) for field in fields)


async def _settings(client: RedisClient) -> dict[str, Any]:
    try:
        return {name: value for each in _SETTINGS for name, value in (await client.run("CONFIG GET", each)).items()}
    except StoreUnavailable:
        raise
    except StoreError:  # it may be forbidden, and is at most providers of hosted servers
        return {}
