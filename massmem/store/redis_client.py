"""The connection to a Redis server: commands and programs in, replies or one of our errors out."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

from massmem.store.redis_keys import Command
from massmem.store.redis_server import check_address, name_of, no_address, store_error

_CONNECTIONS = 16
_CONNECT_SECONDS, _REPLY_SECONDS = 5.0, 30.0
_AGAIN, _PAUSE, _LONGEST_PAUSE = 4, 0.05, 0.5
"""How often a command is sent again when its connection broke: a server that was restarted is found unnoticed."""


class RedisClient:
    """name: what the server is called in messages. All methods raise StoreError."""

    def __init__(self, url: str, environ: Mapping[str, str] = os.environ) -> None:
        """Connects when it is first used. environ: REDIS_PASSWORD counts when the URL has no password.

        Raises:
            InputError: the URL is of no Redis server. The message shows nothing of it, since it may hold a password.
        """
        # Its types are those of a client that may be synchronous as well.
        self._redis: Any = Redis(connection_pool=_pool(url, environ))
        self.name = name_of(url)

    async def run(self, *command: str | float) -> Any:
        with self._errors():
            return await self._redis.execute_command(*command)

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands that are sent together. Others' may come between them."""
        if not commands:
            return []
        with self._errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute()

    async def program(self, text: str, *arguments: str | float) -> Any:
        """Run one of `redis_scripts`: one step for everybody else.

        Sent again after a broken connection, which may run it twice: whoever changes something makes sure that
        this does no harm.
        """
        with self._errors():
            try:
                digest = sha1(text.encode(), usedforsecurity=False).hexdigest()
                return await self._redis.execute_command("EVALSHA", digest, 0, *arguments)
            except exceptions.NoScriptError:
                return await self._redis.execute_command("EVAL", text, 0, *arguments)

    async def close(self) -> None:
        with self._errors():
            await self._redis.aclose()
            await self._redis.connection_pool.disconnect()

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except (TimeoutError, exceptions.RedisError, OSError) as e:
            raise store_error(e, self.name) from e


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
            retry=Retry(ExponentialWithJitterBackoff(_LONGEST_PAUSE, _PAUSE), _AGAIN, (exceptions.ConnectionError,)),
            **login,
        )
    except (ValueError, TypeError) as e:
        raise no_address() from e
