"""A real Redis server of this machine, in a folder of its own: started, killed, restarted and stopped by pid."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal

import redis

Durability = Literal["always", "everysec", "no"]
"""appendfsync; no: without an append-only file, and without snapshots, as a cache is set up."""

_DATABASES = 4_000


def redis_binary() -> str | None:
    return shutil.which("redis-server")


class RedisServer:
    """Listens on a Unix socket in its folder and on a loopback port.

    durable: always and everysec as of Redis; by default everysec, and nothing is waited for.
    """

    def __init__(self, durable: Durability = "everysec", *settings: str) -> None:
        # The path of a Unix socket is short: not pytest's folder.
        self.folder = Path(tempfile.mkdtemp(prefix="massmem-redis-"))
        self.port = _free_port()
        self.durable = durable
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._made = -1
        self.start()

    def start(self) -> None:
        """Start it and wait until it has read its files."""
        assert self._process is None
        program = redis_binary()
        assert program is not None
        append = ["--appendonly", "no"] if self.durable == "no" else [
            "--appendonly", "yes", "--appendfsync", self.durable
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                 "--unixsocket", str(self.socket), "--databases", str(_DATABASES), *append, *self._settings],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
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
        """The URL of an empty database."""
        self._made += 1
        return f"redis://127.0.0.1:{self.port}/{self._made}"

    def connect(self, url: str) -> "redis.Redis":
        return redis.Redis.from_url(url, decode_responses=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _answers(self) -> bool:
        with redis.Redis(port=self.port) as client:
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
