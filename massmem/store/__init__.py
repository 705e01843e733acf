"""Where sessions live. One adapter per kind of database, imported only when it is used."""

import asyncio
from importlib import import_module
from pathlib import Path
from types import ModuleType

from massmem.config.models import StoreConfig, clean_store_url
from massmem.core.errors import InputError, StoreUnavailable
from massmem.store.ports import Retention, SessionStore, StoreInfo

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
