"""Where sessions live, and pauses of model servers. An adapter of a database is imported only when it is used."""

import asyncio
import logging
import math
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from massmem.config.addresses import clean_store_url
from massmem.config.models import StoreConfig
from massmem.core.errors import InputError, StoreUnavailable
from massmem.providers.retry import LocalPauses, Pauses, SharedPauses
from massmem.store.ports import Retention, SessionStore, StoreInfo

if TYPE_CHECKING:
    from massmem.store.redis.server import RedisConnection

log = logging.getLogger(__name__)

_HINT = "use sqlite:///~/.massmem/massmem.db, postgresql://USER@HOST/DATABASE or redis://HOST"
_REDIS = ("redis", "rediss", "unix")


async def open_store(url: str, home: Path, retention: Retention = Retention()) -> SessionStore:  # noqa: B008 - frozen
    """Open the store that `url` names and bring its schema up to date; the file and its folder are made when missing.

    home: massmem's folder (~/.massmem), made with mode 0700. retention: what Redis keeps.

    Raises:
        InputError: the URL is of no known kind, names no file or database, or its kind is not installed.
        HomeError: home or the folder of the database cannot be written.
        StoreVersionError: the database has a schema that this massmem does not know; it is left as it is.
        StoreDamagedError: the database is not one of massmem.
        StoreUnavailable: there is no server at the other end; SQLite has none.
        StoreError: anything else that keeps it from being used.
    """
    url = clean_store_url(url)
    match url.partition(":")[0]:
        case "sqlite":
            return await (await _load("sqlite")).open_sqlite(url, home)
        case "postgresql":
            return await (await _load("postgres")).open_postgres(url)
        case scheme if scheme in _REDIS:
            try:
                redis = await _load("redis.store")
            except ModuleNotFoundError as e:
                if e.name is None or e.name.partition(".")[0] != "redis":
                    raise
                raise InputError("store.url: Redis needs the package redis", "pip install 'massmem[redis]'") from e
            return await redis.open_redis(url, retention)
        case "memory":
            return await (await _load("sqlite")).open_in_memory(StoreInfo("memory", durable=False))
        case scheme:
            raise InputError(f"store.url: {scheme!r} is no kind of store that massmem knows", _HINT)


async def open_configured(store: StoreConfig, home: Path, *, fallback: bool = False) -> SessionStore:
    """Open the store of a team, with what it keeps.

    fallback: when it is Redis and is down, and the configuration allows that, open one in the memory of this process
    instead, whose `info` says so. Only for whoever begins something new: what is in Redis is not there.

    Raises: as `open_store`.
    """
    try:
        return await open_store(store.url, home, Retention(store.ttl, store.max_messages))
    except StoreUnavailable as e:
        if not fallback or store.on_unavailable == "fail" or store.url.partition(":")[0] not in _REDIS:
            raise
        warning = f"{e.message.partition(': ')[0]}: this conversation is held in memory and ends with this process"
        return await (await _load("sqlite")).open_in_memory(StoreInfo("memory", durable=False, always=warning))


async def _load(adapter: str) -> ModuleType:
    """Import an adapter: SQLAlchemy takes longer to import than all the rest."""
    return await asyncio.to_thread(import_module, f"massmem.store.{adapter}")


_PREFIX = "massmem:pause:"


def open_pauses(counted_in: str | None) -> Pauses:
    """Return the pauses that everyone with this `server.limits.counted_in` shares; None: those of this process.

    Imports what it needs: call it in a thread. What cannot be shared is not: the log says why.
    """
    if counted_in is None:
        return LocalPauses()
    try:
        from massmem.store.redis.server import RedisConnection

        return SharedPauses(RedisPauses(RedisConnection(counted_in)))
    except (InputError, ModuleNotFoundError) as e:
        reason = str(e).replace("store.url", "server.limits.counted_in")
        log.warning("rate limits of model servers are not shared: %s", reason)
        return LocalPauses()


class RedisPauses:
    """The Pauses port. Redis measures the time, so that the clocks of the machines do not matter."""

    def __init__(self, server: "RedisConnection") -> None:
        self._server = server

    async def find(self, name: str) -> float:
        return max(0, await self._server.run("PTTL", _PREFIX + name)) / 1000

    async def begin(self, name: str, seconds: float) -> None:
        milliseconds = math.ceil(seconds * 1000)
        if milliseconds > 0:
            key = _PREFIX + name
            new = ("SET", key, "1", "NX", "PX", milliseconds)
            await self._server.run_all([new, ("PEXPIRE", key, milliseconds, "GT")])

    async def close(self) -> None:
        await self._server.close()
