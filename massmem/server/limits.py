"""Limits: requests of a user in a minute, questions and streams at once; size and time of headers and bodies; JSON.

Errors of connections are JSON, as all others.
"""

import asyncio
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from http import HTTPStatus
from ipaddress import ip_network
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import HTTPException, Request
from filelock import FileLock
from limits import RateLimitItemPerMinute
from limits.aio.storage import Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from massmem.config.models import LimitsConfig
from massmem.core.errors import InputError, StoreUnavailable
from massmem.core.records import SessionCounts
from massmem.server.errors import RETRY_LATER, Rejected, RetryLater
from massmem.server.metrics import SHARED_FOLDER
from massmem.server.schemas import Problem
from massmem.session.owners import hash_user

_REDIS_TIMEOUT = 2.0
"""Seconds that Redis may take to count a request; every request waits for it."""
_MINUTE = 60
_MOST_FIELDS = 100
"""In the header of a request."""
_LOCK_SECONDS = 2.0
"""How long a process waits for another one to count."""

_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS counts (name TEXT, minute INTEGER, number INTEGER, PRIMARY KEY (name, minute)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holds (id INTEGER PRIMARY KEY, pid INTEGER, kind TEXT, name TEXT, size INTEGER);
"""


class HostCounts:
    """Counts of all processes of a service on this host, in a database in the folder that they share.

    A killed process leaves the database whole; the next one that starts releases what it held. One process alone counts
    in memory.
    """

    def __init__(self) -> None:
        folder = os.environ.get(SHARED_FOLDER)
        place = Path(folder) / "limits.sqlite" if folder else ":memory:"
        self._database = sqlite3.connect(place, timeout=_LOCK_SECONDS, isolation_level=None)
        # SQLite does not wait for another process that switches to the same journal.
        with FileLock(Path(folder) / "limits.lock") if folder else nullcontext():
            self._database.executescript(_TABLES)
        for (pid,) in self._database.execute("SELECT DISTINCT pid FROM holds").fetchall():
            if not _is_alive(pid):
                self._database.execute("DELETE FROM holds WHERE pid = ?", (pid,))

    def count(self, name: str, most: int) -> float:
        """Count one more in the last minute, unless there are `most`; return the seconds until there is room, else 0.

        The minute before this one counts by the share of it that is in the last 60 seconds.
        """
        minute, seconds = divmod(time.time(), _MINUTE)
        share = 1 - seconds / _MINUTE
        with self._begin() as database:
            query = "SELECT minute, number FROM counts WHERE name = ? AND minute >= ?"
            numbers: dict[int, int] = dict(database.execute(query, (name, minute - 1)).fetchall())
            current, previous = numbers.get(int(minute), 0), numbers.get(int(minute) - 1, 0)
            if current >= most:
                return _MINUTE - seconds
            if math.floor(previous * share) + current >= most:
                return (share - (most - current) / previous) * _MINUTE
            if not current:
                database.execute("DELETE FROM counts WHERE minute < ?", (minute - 1,))
            database.execute(
                "INSERT INTO counts VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET number = number + 1", (name, int(minute))
            )
        return 0

    def measure(self, kind: str, name: str) -> tuple[int, int, int]:
        """Return how many of a kind are held, how many of them by this name, and the bytes of the latter."""
        query = (
            "SELECT count(*), count(*) FILTER (WHERE name = :name), ifnull(sum(size) FILTER (WHERE name = :name), 0) "
            "FROM holds WHERE kind = :kind"
        )
        return self._database.execute(query, {"name": name, "kind": kind}).fetchone()

    @contextmanager
    def hold(
        self, kind: str, name: str, size: int, check: Callable[[int, int, int], None] | None = None
    ) -> Generator[None]:
        """Count one more while the block runs, unless `check` raises, which is given what `measure` returns."""
        with self._begin() as database:
            if check is not None:
                check(*self.measure(kind, name))
            row = "INSERT INTO holds (pid, kind, name, size) VALUES (?, ?, ?, ?)"
            hold = database.execute(row, (os.getpid(), kind, name, size)).lastrowid
        try:
            yield
        finally:
            with self._begin() as database:
                database.execute("DELETE FROM holds WHERE id = ?", (hold,))

    @contextmanager
    def _begin(self) -> Generator[sqlite3.Connection]:
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database
        except sqlite3.Error as e:
            raise StoreUnavailable(f"requests cannot be counted: {e}", "is the folder of temporary files full?") from e


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Limits:
    """Refuses what exceeds the configured limits: all processes of a service on this host count together.

    With `server.limits.counted_in`, requests are counted in Redis, for several hosts.
    """

    def __init__(self, config: LimitsConfig) -> None:
        """Raise InputError when `server.limits.counted_in` is not a usable address."""
        self._config = config
        self._host = HostCounts()
        url = config.counted_in
        self._redis = None if url is None else SlidingWindowCounterRateLimiter(_open_redis(url))

    async def count_request(self, user: str | None) -> None:
        """Count a request of the user.

        Raises:
            RetryLater: The user has sent too many requests in the last minute.
            StoreUnavailable: Requests are counted in Redis, and Redis cannot be reached.
        """
        await self._count(hash_user(user or ""), self._config.requests, "too many requests")

    async def count_wrong_key(self, address: str) -> None:
        """Count a key or token that nobody has. Raises as `count_request`: too many came from this address."""
        with suppress(ValueError):
            network = ip_network(address)
            # Whoever has one address of IPv6 has a whole network of them.
            address = str(network.supernet(new_prefix=64) if network.version == 6 else network)
        await self._count(f"wrong key {address}", self._config.wrong_keys, "too many wrong keys or tokens")

    async def _count(self, name: str, most: int, refusal: str) -> None:
        if self._redis is None:
            seconds = self._host.count(name, most)
        else:
            try:
                rate = RateLimitItemPerMinute(most)
                if await self._redis.hit(rate, name):
                    return
                seconds = max(1e-6, (await self._redis.get_window_stats(rate, name)).reset_time - time.time())
            except StorageError as e:
                raise StoreUnavailable(
                    f"requests cannot be counted: {type(e.storage_error).__name__}", "see server.limits.counted_in"
                ) from e
        if seconds:
            # Rounded up, and past whole numbers: at the very moment of the reset there is no room yet.
            raise RetryLater(429, refusal, math.floor(seconds + 1e-6) + 1)

    def hold_turn(self, user: str | None, size: int = 0) -> AbstractContextManager[None]:
        """Count a question of the user while the block runs. Raise RetryLater when there are too many.

        size: bytes that it may add to the store, which `check_room` counts as well.
        """

        def check(of_all: int, of_user: int, _size: int) -> None:
            if of_user >= self._config.turns_per_user:
                raise RetryLater(429, "too many questions at the same time")
            if of_all >= self._config.turns:
                raise RetryLater(503, "the service is busy")

        return self._host.hold("turn", user or "", size, check)

    def check_room(self, user: str, stored: SessionCounts, *, is_new: bool) -> None:
        """Raise Rejected (413) when what is stored of the user, and what `hold_turn` holds, is more than they may have.

        is_new: a conversation is about to be added.
        """
        _, _, coming = self._host.measure("turn", user)
        config, sessions = self._config, stored.sessions - stored.by_status.get("deleting", 0)
        for used, more, most, what in (
            (stored.bytes, max(1, coming), config.bytes_per_user, "bytes of conversations"),
            (sessions if is_new else 0, 1, config.sessions_per_user, "conversations"),
            (stored.messages, 1, config.memories_per_user, "messages of conversations"),
        ):
            if most and used + more > most:
                needed = f", and this needs {more:,} more" if more > 1 else ""
                message = f"you have {used:,} of the {most:,} {what} that a user may have{needed}: delete some of them"
                raise Rejected(413, message)

    def check_streams(self, user: str | None) -> None:
        """Raise RetryLater when the user may not open another event stream."""
        _, of_user, _ = self._host.measure("stream", user or "")
        if of_user >= self._config.streams_per_user:
            raise RetryLater(429, "too many open streams")

    def hold_stream(self, user: str | None) -> AbstractContextManager[None]:
        """Count an open event stream of the user while the block runs."""
        return self._host.hold("stream", user or "", 0)


class BodyLimit:
    """Refuses bodies that are too large (413) or arrive too slowly (408).

    A route sets `scope["state"]["max_body"]` where it takes less than `server.limits.body`.
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
            largest = scope.get("state", {}).get("max_body", self._limits.body)
            if declared_size.isdigit() and int(declared_size[:20]) > largest:
                raise HTTPException(413, "the body is too large")
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as e:
                raise HTTPException(408, "the body did not arrive in time") from e
            size += len(message.get("body", b""))
            if size > largest:
                raise HTTPException(413, "the body is too large")
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_body, send)


MAX_JSON_VALUES = 100_000
"""Values of a body in JSON, those within others counted."""

MAX_JSON_DEPTH = 100

_MAX_PARSED_AT_ONCE = 256_000
"""Bytes that are parsed without leaving the event loop."""

_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JsonRequest(Request):
    """A request whose JSON is counted before it is parsed: parsing costs as much as it has values, however deep."""

    async def json(self) -> Any:
        """Raise Rejected (400, 413), JSONDecodeError."""
        data = await self.body()
        return await asyncio.to_thread(_parse_json, data) if len(data) > _MAX_PARSED_AT_ONCE else _parse_json(data)


def _parse_json(data: bytes) -> Any:
    _check_json(data)
    try:
        return json.loads(
            data.decode("utf-8-sig"),  # Python would take UTF-16, too, in which other bytes are brackets
            object_pairs_hook=_make_object,
            parse_float=_parse_float,
            parse_constant=_parse_float,
        )
    except json.JSONDecodeError:
        raise
    except ValueError as e:  # also of whole numbers with more than 4,300 digits
        raise Rejected(400, "the JSON of the body has a number that is too large, or is not in UTF-8") from e


def _check_json(data: bytes) -> None:
    """Count values and depth by what is outside of strings. Each step is one call in C: 16 MB take 0.1 s at most."""
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")  # the quotes that are left begin and end strings
    too_many = Rejected(413, f"the JSON of the body has more than {MAX_JSON_VALUES:,} values")
    if unescaped.count(b'"') > 4 * MAX_JSON_VALUES:
        raise too_many
    outside = b"".join(unescaped.split(b'"')[::2])
    brackets = outside.translate(None, _NO_BRACKETS)
    if len(brackets) // 2 + outside.count(b",") > MAX_JSON_VALUES:
        raise too_many
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_JSON_DEPTH:
        raise Rejected(400, f"the JSON of the body is nested deeper than {MAX_JSON_DEPTH} levels")


def _make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise Rejected(400, "an object in the JSON of the body has a key twice")
    return value


def _parse_float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise Rejected(400, f"the JSON of the body has the number {text[:20]}")
    return number


def _open_redis(url: str) -> Storage:
    options = {"socket_timeout": _REDIS_TIMEOUT, "socket_connect_timeout": _REDIS_TIMEOUT}
    try:
        storage = storage_from_string(f"async+{url}", implementation="redispy", wrap_exceptions=True, **options)
    except ConfigurationError as e:
        raise InputError("server.limits.counted_in is not an address of Redis", "use redis://HOST:PORT") from e
    assert isinstance(storage, Storage)  # as "async+" asks for
    return storage


MAX_CONNECTIONS = 4_000
"""Of one process; requests on more of them are answered with 503."""

_PER_FIELD = 4
"""Bytes of a field besides name and value: a colon, a blank and the end of the line."""

_BODY_SLACK = 5.0
"""Seconds that a body has beyond its limit: `BodyLimit` refuses it first, with a response."""

_LINGER_SECONDS = 5.0
"""For a client that goes on sending, until it reads that it was refused."""


class LimitedConfig(Config):
    """The settings of uvicorn, with those of its connections. Workers get it by pickle."""

    limits: LimitsConfig


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn's that refuses headers which are too large (431) or too slow (408).

    uvicorn limits neither with this parser. Its own errors are plain text.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, LimitedConfig)
        self._limits = config.limits
        self._timer: asyncio.TimerHandle | None = None
        self._in_header = True
        self._received = 0
        """Bytes since the header began."""
        self._size = 0
        """Bytes of the header's fields that are complete."""
        self._refusal = (400, "the request cannot be read")
        self._room: int | None = None  # bytes to discard of a client that goes on sending after its answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(self._limits.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._room is not None:
            self._room -= len(data)
            if self._room < 0:
                self.transport.abort()
            return
        if self.transport.is_closing():
            return
        if self._in_header:
            self._received += len(data)
            if self._timer is None:
                self._start_timer(self._limits.header_timeout)
        super().data_received(data)
        is_over = self._room is not None or self.transport.is_closing()
        if self._in_header and self._received > self._limits.header and not is_over:
            self._refuse(431, "the header of the request is too large")

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_size(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._size += len(name) + len(value) + _PER_FIELD
        self._check_size(len(self.url) + self._size)

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._start_timer(self._limits.body_timeout + _BODY_SLACK)
        if len(self.connections) > MAX_CONNECTIONS:
            headers = {"Retry-After": str(RETRY_LATER), "Connection": "close"}
            self.app = JSONResponse(Problem(error="the service is busy").model_dump(), 503, headers)  # type: ignore[assignment]
        super().on_headers_complete()
        self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        write, close = self.transport.write, lambda: self.transport.close() if self._in_header else self._linger()
        self.cycle.transport = SimpleNamespace(write=write, close=close, is_closing=self.transport.is_closing)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_header, self._received, self._size = True, 0, 0
        self.cycle.keep_alive = self._keep_alive and not self.cycle.response_started
        super().on_message_complete()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    def _linger(self) -> None:
        """Let the answer arrive: closing while the client sends would reset the connection, and discard it there."""
        self._room = self._limits.body
        self.transport.write_eof()
        self.flow.resume_reading()
        self._start_timer(_LINGER_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Called for what the parser refuses, and for what `_check_size` refuses."""
        self._refuse(*self._refusal)

    def _check_size(self, size: int) -> None:
        """Raise ValueError, which ends the parser, when the header is too large."""
        if size > self._limits.header or len(self.headers) > _MOST_FIELDS:
            self._refusal = (431, "the header of the request is too large")
            raise ValueError

    def _refuse(self, status: int, message: str) -> None:
        body = Problem(error=message).model_dump_json().encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._linger()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._end_wait)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self) -> None:
        """End a connection that has sent no whole header, or no whole body, in time."""
        self._timer = None
        if self._room is not None:
            self.transport.abort()
        elif self._in_header:
            self._refuse(408, "the header of the request did not arrive in time")
        elif not self.pipeline:  # a request that waits for another one on its connection is not read meanwhile
            self.transport.close()
