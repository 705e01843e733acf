"""A model server's "not before" is obeyed by every process that shares Redis."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import massmem
from tests.support.provider_stub import OpenAIWire, Say
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

KEY = "sk-stub-0123456789abcdef"


class BusyServer:
    """A model server that refuses requests until `wait` is None, and counts what comes."""

    def __init__(self) -> None:
        self.url = ""
        self.wait: str | None = "250"
        """Seconds, as it sends them."""
        self.requests = 0

    def respond(self) -> tuple[int, dict[str, str], bytes]:
        self.requests += 1
        if self.wait is not None:
            body = json.dumps({"error": {"message": "slow down", "code": "rate_limit_exceeded"}})
            return 429, {"content-type": "application/json", "retry-after": self.wait}, body.encode()
        parts = OpenAIWire().stream(Say(["Paris."])).parts
        return 200, {"content-type": "text/event-stream"}, b"".join(part for part in parts if isinstance(part, bytes))


@pytest.fixture
def server() -> Iterator[BusyServer]:
    busy = BusyServer()
    with serve(busy):
        yield busy


@contextmanager
def serve(busy: BusyServer) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = busy.respond()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    busy.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class Terminal:
    """`massmem` on a team whose only model is on the server, with a home of its own."""

    def __init__(self, folder: Path, server: BusyServer, counted_in: str | None, key: str = KEY) -> None:
        folder.mkdir()
        backend = {"type": "openai", "model": "m", "base_url": server.url, "api_key": key, "api": "chat"}
        config: dict[str, Any] = {
            "agents": [{"id": "ann", "backend": backend | {"max_retries": 0}}],
            "memory": {"persistent_memory": {"enabled": False}},
            "store": {"url": f"sqlite:///{folder}/massmem.db"},
            "server": {"limits": {"counted_in": counted_in}},
        }
        self._config = folder / "team.yaml"
        self._config.write_text(json.dumps(config))

    def ask(self) -> tuple[int, str]:
        """Return the exit code and stderr."""
        result = massmem("--config", str(self._config), "Capital of France?", text=True)
        return result.returncode, result.stderr


def test_second_process_sends_nothing_before_the_time_and_then_goes_on(
    tmp_path: Path, server: BusyServer, redis_server: RedisServer
) -> None:
    url = redis_server.new_url()
    first, second = (Terminal(tmp_path / name, server, url) for name in ("first", "second"))
    assert first.ask()[0] == 3
    assert server.requests == 1
    code, errors = second.ask()
    assert (code, server.requests) == (3, 1), errors
    assert "nothing was sent" in errors
    other = Terminal(tmp_path / "other", server, url, key="sk-other")
    assert other.ask()[0] == 3
    assert server.requests == 2, "another key is counted by itself"

    client = redis_server.connect(url)
    names = client.keys("*")
    assert len(names) == 2
    assert all(0 < client.ttl(name) <= 250 for name in names)
    assert KEY not in str(names)
    for name in names:
        client.pexpire(name, 1)  # the time is over
    server.wait = None
    assert second.ask()[0] == 0
    assert server.requests == 3


def test_short_wait_is_waited_for_by_a_process_that_was_not_refused(
    tmp_path: Path, server: BusyServer, redis_server: RedisServer
) -> None:
    url = redis_server.new_url()
    first, second = (Terminal(tmp_path / name, server, url) for name in ("first", "second"))
    assert first.ask()[0] == 3
    client = redis_server.connect(url)
    (name,) = client.keys("*")
    server.wait = None
    client.pexpire(name, 5_000)
    assert second.ask()[0] == 0
    assert server.requests == 2
    assert client.keys("*") == [], "the request was sent after the pause"


def test_processes_without_redis_go_on_alone(tmp_path: Path, server: BusyServer) -> None:
    first, second = (Terminal(tmp_path / name, server, "redis://127.0.0.1:9") for name in ("first", "second"))
    for number, terminal in enumerate((first, second), 1):
        code, errors = terminal.ask()
        assert (code, server.requests) == (3, number), errors
        assert "slow down" in errors
        assert errors.count("not shared") <= 1
