"""The stores that the contract runs on, each with an empty place of its own for every test.

A further kind of store is one more entry of KINDS and one more case of `new_place`.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import make_url

from massmem.store import postgres_server
from tests.support.postgres_server import PostgresServer, binary

NewPlace = Callable[[], str]
"""Makes an empty place for a store and returns its URL."""

KINDS = ("sqlite", "postgres")
_TEMPLATE = "template_massmem"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if not (binary("postgres") and binary("initdb")):
        pytest.skip("there is no PostgreSQL on this machine: apt-get install postgresql")
    server = PostgresServer()
    try:
        # Its tables are copied, which takes less time than making them for every test.
        server.execute(f"CREATE DATABASE {_TEMPLATE}")
        postgres_server.upgrade(make_url(server.url(_TEMPLATE)).set(drivername="postgresql+psycopg"))
        yield server
    finally:
        server.remove()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def new_place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> NewPlace:
    match kind:
        case "sqlite":
            numbers = count()
            return lambda: f"sqlite:///{tmp_path / f'store{next(numbers)}.db'}"
        case "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            return lambda: server.url(server.new_database(f"TEMPLATE {_TEMPLATE}"))
        case _:
            raise AssertionError(kind)
