"""The stores that the contract runs on, each with an empty place of its own for every test.

A further kind of store is one more entry of KINDS and one more case of `new_place`.
"""

from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from massmem.store.ports import SessionStore
from massmem.store.postgres import migrate_database, parse_url
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer

NewPlace = Callable[[], str]
"""Makes an empty place for a store and returns its URL."""

Opener = Callable[[], Awaitable[SessionStore]]
"""Opens a store."""

KINDS = ("sqlite", "postgres", "redis")


class _Databases:
    """Databases with massmem's tables, emptied and used again: to make one takes longer than a test."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._template = server.new_database()
        migrate_database(parse_url(server.url(self._template)))
        self._free: list[str] = []
        self._used: list[str] = []

    def take(self) -> str:
        if not self._free:
            self._free.append(self._server.new_database(f"TEMPLATE {self._template}"))
        self._used.append(self._free.pop())
        return self._server.url(self._used[-1])

    def give_back(self) -> None:
        for name in self._used:
            self._server.execute("DELETE FROM chat_sessions; DELETE FROM api_keys; DELETE FROM page_sessions", name)
        self._free += self._used
        self._used.clear()


@pytest.fixture(scope="session")
def _databases(postgres: PostgresServer) -> _Databases:
    return _Databases(postgres)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def new_place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewPlace]:
    match kind:
        case "sqlite":
            numbers = count()
            yield lambda: f"sqlite:///{tmp_path / f'store{next(numbers)}.db'}"
        case "postgres":
            databases: _Databases = request.getfixturevalue("_databases")
            yield databases.take
            databases.give_back()
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis_server")
            yield redis.new_url
        case _:
            raise AssertionError(kind)
