"""Limits: requests of a user in a minute, questions and event streams at the same time, size and time of a body."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from fastapi import HTTPException
from limits import RateLimitItemPerMinute
from limits.aio.storage import Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from massmem.config.models import LimitsConfig
from massmem.core.errors import InputError, StoreUnavailable
from massmem.server.errors import RetryLater
from massmem.session.owners import owner_hash

_REDIS_TIMEOUT = 2.0
"""Seconds that Redis may take to count a request; every request waits for it."""


class Limits:
    """Refuses what exceeds the configured limits.

    Counting in memory goes through all users of the last two minutes at each request: 0.1 ms of CPU with 1,000 users,
    1.7 ms with 10,000. Services of that size count in Redis.
    """

    def __init__(self, config: LimitsConfig) -> None:
        """Raise InputError when `server.limits.counted_in` is not a usable address."""
        self._config = config
        self._rate = RateLimitItemPerMinute(config.requests)
        self._limiter = SlidingWindowCounterRateLimiter(_open_storage(config.counted_in))
        self._turns: Counter[str | None] = Counter()
        self._streams: Counter[str | None] = Counter()

    async def count_request(self, user: str | None) -> None:
        """Count a request of the user.

        Raises:
            RetryLater: The user has sent too many requests in the last minute.
            StoreUnavailable: Requests are counted in Redis, and Redis cannot be reached.
        """
        name = owner_hash(user or "")
        try:
            if await self._limiter.hit(self._rate, name):
                return
            window = await self._limiter.get_window_stats(self._rate, name)
        except StorageError as e:
            raise StoreUnavailable(
                f"requests cannot be counted: {type(e.storage_error).__name__}", "see server.limits.counted_in"
            ) from e
        raise RetryLater(429, "too many requests", _whole_seconds_after(window.reset_time - time.time()))

    @contextmanager
    def hold_turn(self, user: str | None) -> Generator[None]:
        """Count a question of the user while the block runs. Raise RetryLater when there are too many."""
        if self._turns[user] >= self._config.turns_per_user:
            raise RetryLater(429, "too many questions at the same time")
        if self._turns.total() >= self._config.turns:
            raise RetryLater(503, "the service is busy")
        with _count(self._turns, user):
            yield

    def check_streams(self, user: str | None) -> None:
        """Raise RetryLater when the user may not open another event stream."""
        if self._streams[user] >= self._config.streams_per_user:
            raise RetryLater(429, "too many open streams")

    @contextmanager
    def hold_stream(self, user: str | None) -> Generator[None]:
        """Count an open event stream of the user while the block runs."""
        with _count(self._streams, user):
            yield


class BodyLimit:
    """Refuses bodies that are too large (413) or arrive too slowly (408).

    FastAPI's own `max_body_size` has no time limit, and answers in plain text instead of as a `Problem`.
    Plain ASGI, so that streams are not buffered.
    """

    def __init__(self, app: ASGIApp, limits: LimitsConfig) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared_size = Headers(scope=scope).get("content-length", "0")
        deadline = asyncio.get_running_loop().time() + self._limits.body_timeout
        size, complete = 0, False

        async def receive_body() -> Message:
            nonlocal size, complete
            if complete:  # only a disconnect of the client can follow
                return await receive()
            if declared_size.isdigit() and int(declared_size[:20]) > self._limits.body:
                raise HTTPException(413, "the body is too large")
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as e:
                raise HTTPException(408, "the body did not arrive in time") from e
            size += len(message.get("body", b""))
            if size > self._limits.body:
                raise HTTPException(413, "the body is too large")
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_body, send)


@contextmanager
def _count(counter: Counter[str | None], name: str | None) -> Generator[None]:
    counter[name] += 1
    try:
        yield
    finally:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]


def _whole_seconds_after(seconds: float) -> int:
    """Round up, and past whole numbers: at the very moment of the reset there is no room yet."""
    return max(0, math.floor(seconds + 1e-6)) + 1


def _open_storage(url: str | None) -> Storage:
    """Return the storage at `url`, or this process's memory for None."""
    options = {"socket_timeout": _REDIS_TIMEOUT, "socket_connect_timeout": _REDIS_TIMEOUT}
    try:
        storage = (
            storage_from_string("async+memory://")
            if url is None
            else storage_from_string(f"async+{url}", implementation="redispy", wrap_exceptions=True, **options)
        )
    except ConfigurationError as e:
        raise InputError("server.limits.counted_in is not an address of Redis", "use redis://HOST:PORT") from e
    assert isinstance(storage, Storage)  # as "async+" asks for
    return storage
