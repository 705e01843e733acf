"""A Redis server: its address, the connection, its errors in massmem's words, and how durable its settings make it."""

import asyncio
import os
import random
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from massmem.core.errors import InputError, StoreDamagedError, StoreError, StoreUnavailable, StoreVersionError
from massmem.core.text import trim_value
from massmem.store.ports import password_error

T = TypeVar("T")

Command = tuple[str | int | float, ...]
"""A command of Redis with its arguments."""

_CONNECTIONS = 16
_CONNECT_SECONDS, _REPLY_SECONDS = 5.0, 30.0
_RETRY = Retry(ExponentialBackoff(cap=0.4, base=0.05), 3, (exceptions.ConnectionError,))
"""Within a second: nobody notices a server that restarts quickly."""

_MAX_ATTEMPT_SECONDS, _MAX_PAUSE = 30.0, 0.02
_REWRITE_POLLS, _REWRITE_POLL_SECONDS = 1_200, 0.05
_REWRITE_FIELDS = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")

_ADDRESS_EXAMPLE = "redis://USER:PASSWORD@HOST:6379/0"
_OPTIONS: dict[str, set[str]] = {
    "redis": set(),
    "rediss": {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"},
    "unix": {"db"},
}
_IN_PIPELINE = ") of pipeline caused error: ("
"""Stands behind what redis-py adds to an error: the command, which may hold what a user said."""

_AGAIN = "run the same command again when it is back"
# In this order. An error's code may stand anywhere in its text, or only in the name of its class.
_PROBLEMS: tuple[tuple[str, type[StoreError], str, str], ...] = (
    (
        r"\bOOM\b|OutOfMemory",
        StoreError,
        "{name} is out of memory",
        "raise its maxmemory, delete sessions, or lower store.ttl; nothing of this step was stored",
    ),
    (
        r"\bMISCONF\b",
        StoreError,
        "{name} cannot write to its disk and takes nothing more",
        "look into its log, free some space there and run the same command again; nothing of this step was stored",
    ),
    (r"\bREADONLY\b|ReadOnly", StoreError, "{name} is a read-only replica", "set store.url to the primary server"),
    (
        r"\bNOPERM\b|NoPermission|no permissions",
        StoreError,
        "the user of {name} may not do that: {reason}",
        "it needs: ~massmem:* +@read +@write +@transaction +@connection +time, and +info +config|get to warn of risks",
    ),
    (
        r"\bNOAUTH\b|\bWRONGPASS\b|Authentication(Error|WrongNumber| required)|AUTH .{0,200}called without",
        StoreError,
        "{name} does not let us in",
        "check user and password in store.url; REDIS_PASSWORD is read as well",
    ),
    (
        r"\bMOVED\b|MovedError|\bCROSSSLOT\b|CrossSlot|\bCLUSTERDOWN\b|ClusterDown",
        StoreError,
        "{name} is a cluster",
        "use a single server",
    ),
    (
        r"\bWRONGTYPE\b",
        StoreDamagedError,
        "{name} holds keys of another program whose names begin with massmem:",
        "give massmem a database of its own, as in redis://HOST/1",
    ),
    (r"\bLOADING\b|BusyLoading", StoreUnavailable, "{name} is starting", _AGAIN),
)

LAYOUT_KEY, LAYOUT = "massmem:layout", 3

_EARLIER = {"massmem:all:created": "massmem:session:", "massmem:v2:used": "massmem:v2:session:"}
"""Lists of the sessions of earlier layouts, and how the keys of these begin."""


class RedisConnection:
    """A connection pool to one server. All methods raise StoreError.

    redis-py sends a command again when its connection breaks. A command may therefore arrive twice: only `transact`
    may be used for writes that must not be repeated.
    """

    def __init__(self, url: str) -> None:
        """Connect on first use. The variable REDIS_PASSWORD counts when the URL has no password.

        Raises InputError: not the URL of a Redis server. The message shows nothing of it: it may hold a password.
        """
        check_url(url)
        self.name = name_server(url)
        password = trim_value(os.environ.get("REDIS_PASSWORD", ""))
        login = {} if urlsplit(url).password or not password else {"password": password}
        pool: Any = BlockingConnectionPool
        try:
            connections = pool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=_REPLY_SECONDS,
                decode_responses=True,
                protocol=2,
                socket_connect_timeout=_CONNECT_SECONDS,
                socket_timeout=_REPLY_SECONDS,
                health_check_interval=30,
                retry=_RETRY,
                **login,
            )
        except (ValueError, TypeError) as e:
            raise _invalid_url() from e
        # redis-py's annotations mix its synchronous and asynchronous clients.
        self._redis: Any = Redis(connection_pool=connections)

    async def run(self, *command: str | float) -> Any:
        with self._translate_errors():
            return await self._redis.execute_command(*command)

    async def run_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands together and return their replies. Commands of others may come between them."""
        if not commands:
            return []
        with self._translate_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute()

    async def transact(self, attempt: Callable[[Any], Awaitable[T]], *watched: str) -> T:
        """Run `attempt` with a pipeline (WATCH ... MULTI ... EXEC) until no watched key changes meanwhile.

        Return what the last attempt returned. An attempt is also repeated when the connection broke and it is not
        known whether the server executed it.
        """
        with self._translate_errors():
            try:
                async with asyncio.timeout(_MAX_ATTEMPT_SECONDS):
                    pause = random.uniform(0, _MAX_PAUSE)
                    return await self._redis.transaction(attempt, *watched, value_from_callable=True, watch_delay=pause)
            except TimeoutError as e:
                raise StoreError(
                    f"{self.name} is busy: others have been changing this session for too long",
                    "run the same command again when they have ended",
                ) from e

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except (exceptions.RedisError, OSError) as e:
            raise translate_error(e, self.name) from e


async def check_layout(server: RedisConnection) -> None:
    """Raise StoreVersionError, and change nothing, where another massmem has stored sessions."""
    layout, *lists = await server.run_all([("GET", LAYOUT_KEY), *(("ZRANGE", key, 0, -1) for key in _EARLIER)])
    earlier = [f"{prefix}{name}" for prefix, names in zip(_EARLIER.values(), lists, strict=True) for name in names]
    number = await server.run("EXISTS", *earlier) if earlier else 0
    if number or int(layout or LAYOUT) > LAYOUT:
        stored = f"holds {number} sessions of an earlier massmem" if number else "was written by a newer massmem"
        raise StoreVersionError(
            f"{server.name} {stored}, which this one cannot read; nothing was changed",
            "to take them along, run `massmem store migrate --to sqlite:///moved.db` with that massmem, set store.url "
            "to another database, as in redis://HOST/1, and run `massmem store restore moved.db` with this one. "
            "Sessions expire by themselves after store.ttl",
        )
    if layout != str(LAYOUT):
        await server.run_all([("UNLINK", *_EARLIER), ("SET", LAYOUT_KEY, LAYOUT)])


async def read_warnings(server: RedisConnection) -> tuple[str, ...]:
    """Return what the user should know about the server's durability; nothing where it hides its settings."""
    settings = await _read_settings(server)
    warnings: list[str] = []
    if settings.get("appendonly") == "no":
        warnings.append(
            "Redis keeps no append-only file: what is answered now is lost when its server stops or crashes before "
            "its next snapshot; set `appendonly yes` there, and `appendfsync always` to lose not even the last second"
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        warnings.append(
            f"Redis may throw sessions away when its memory is full (maxmemory-policy {policy}); set it to noeviction "
            "to be told instead"
        )
    return tuple(warnings)


async def rewrite_files(server: RedisConnection) -> bool:
    """Have the server rewrite its files without what was deleted. False: it does not let us, or it failed."""
    settings = await _read_settings(server)
    try:
        await _wait_for_rewrite(server)  # one that is under way knows nothing of what was deleted last
        if settings.get("appendonly") != "no":
            await server.run("BGREWRITEAOF")
            await _wait_for_rewrite(server)
        if settings.get("save") != "":
            await server.run("BGSAVE", "SCHEDULE")
            await _wait_for_rewrite(server)
        state = await server.run("INFO", "persistence")
    except StoreUnavailable:
        raise
    except StoreError:
        return False
    return state.get("aof_last_bgrewrite_status") == state.get("rdb_last_bgsave_status") == "ok"


async def _wait_for_rewrite(server: RedisConnection) -> None:
    """Raises StoreError: it takes longer than a minute."""
    for _ in range(_REWRITE_POLLS):
        state = await server.run("INFO", "persistence")
        if not any(state.get(field) for field in _REWRITE_FIELDS):
            return
        await asyncio.sleep(_REWRITE_POLL_SECONDS)
    raise StoreError(f"{server.name} does not finish rewriting its files")


async def _read_settings(server: RedisConnection) -> dict[str, str]:
    try:
        names = ("appendonly", "maxmemory", "maxmemory-policy", "save")
        replies = await server.run_all([("CONFIG GET", name) for name in names])
    except StoreUnavailable:
        raise
    except StoreError:  # hosted servers mostly forbid it
        return {}
    return {name: value for reply in replies for name, value in reply.items()}


def check_url(url: str) -> None:
    """Check `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` for TLS, `unix:///path/to/socket?db=DATABASE`.

    Raises InputError. The message shows nothing of the URL: it may hold a password.
    """
    login, has_login, _ = url.partition("://")[2].rpartition("@")
    if has_login and not login.startswith("/") and re.search(r"[/?#@\[\]]", login):
        raise password_error()
    try:
        parts = urlsplit(url)
        _ = parts.port
        options = parse_qs(parts.query)
    except ValueError as e:
        raise _invalid_url() from e
    if parts.fragment:
        raise _invalid_url()
    is_valid = parts.path if parts.scheme == "unix" else re.fullmatch(r"/?\d{0,9}", parts.path)
    if not is_valid or parts.scheme not in _OPTIONS:
        raise _invalid_url()
    allowed = _OPTIONS[parts.scheme] | {"client_name"}
    if unknown := sorted(set(options) - allowed):
        raise InputError(f"store.url: {unknown[0]!r} is no option here", f"there are: {', '.join(sorted(allowed))}")


def _invalid_url() -> InputError:
    return InputError("store.url is no URL of a Redis server", f"write it as {_ADDRESS_EXAMPLE}")


def name_server(url: str) -> str:
    """Return the URL without password and options, for messages."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"


def translate_error(error: Exception, name: str) -> StoreError:
    """Return the error to show for one of redis-py's. name: of the server."""
    _, of_pipeline, reason = " ".join(str(error).split()).rpartition(_IN_PIPELINE)
    reason = (reason.strip("'\",)") if of_pipeline else reason)[:200].rstrip(".")
    for pattern, kind, message, hint in _PROBLEMS:
        if re.search(pattern, f"{type(error).__name__} {reason}"):
            return kind(message.format(name=name, reason=reason), hint)
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError):
        return StoreUnavailable(
            f"{name} cannot be reached{f': {reason}' if reason else ''}",
            f"check that the server runs; {_AGAIN}. What it acknowledged is kept as far as it writes to its disk",
        )
    return StoreError(f"{name} refused a command: {reason}", "look into the log of the server")
