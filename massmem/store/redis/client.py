"""The connection to a Redis server: commands and programs in, replies or one of our errors out."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha1
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from massmem.store.redis.keys import Command
from massmem.store.redis.server import check_address, name_of, no_address, store_error

T = TypeVar("T")

_CONNECTIONS = 16
_CONNECT_SECONDS, _REPLY_SECONDS = 5.0, 30.0
_PAUSES = (0.02, 0.1, 0.3, 0.6)
"""Seconds after which a command is sent again when its connection broke: a server that restarts fast is not noticed."""

# Of the same kind as errors of the connection, but no second attempt goes better.
_REFUSED = (exceptions.AuthenticationError, exceptions.MaxConnectionsError)


class RedisClient:
    """name: what the server is called in messages. breaks: how often a connection broke. All methods raise StoreError.

    A command may reach the server twice, when its first reply was lost with the connection: whoever changes something
    makes sure that this does no harm.
    """

    def __init__(self, url: str, environ: Mapping[str, str] = os.environ) -> None:
        """Connects when it is first used. environ: REDIS_PASSWORD counts when the URL has no password.

        Raises:
            InputError: the URL is of no Redis server. The message shows nothing of it, since it may hold a password.
        """
        # Its types are those of a client that may be synchronous as well.
        self._redis: Any = Redis(connection_pool=_pool(url, environ))
        self.name = name_of(url)
        self.breaks = 0

    async def run(self, *command: str | float) -> Any:
        return await self._send(lambda: self._redis.execute_command(*command))

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands that are sent together. Others' may come between them."""
        if not commands:
            return []

        async def send() -> list[Any]:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute()

        return await self._send(send)

    async def program(self, text: str, *arguments: str | float) -> Any:
        """Run one of `scripts`: one step for everybody else."""
        digest = sha1(text.encode(), usedforsecurity=False).hexdigest()

        async def send() -> Any:
            try:
                return await self._redis.execute_command("EVALSHA", digest, 0, *arguments)
            except exceptions.NoScriptError:
                return await self._redis.execute_command("EVAL", text, 0, *arguments)

        return await self._send(send)

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _send(self, send: Callable[[], Awaitable[T]]) -> T:
        for pause in (*_PAUSES, None):
            try:
                return await send()
            except (exceptions.RedisError, OSError) as e:
                broken = isinstance(e, exceptions.ConnectionError) and not isinstance(e, _REFUSED)
                self.breaks += broken
                if pause is None or not broken:
                    raise store_error(e, self.name) from e
                await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _pool(url: str, environ: Mapping[str, str]) -> Any:
    check_address(url)
    password = environ.get("REDIS_PASSWORD")
    login = {} if urlsplit(url).password or not password else {"password": password}
    pool: Any = BlockingConnectionPool
    try:
        return pool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_REPLY_SECONDS,
            decode_responses=True,
            protocol=2,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_REPLY_SECONDS,
            retry=Retry(NoBackoff(), 0),
            **login,
        )
    except (ValueError, TypeError) as e:
        raise no_address() from e
