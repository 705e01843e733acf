"""Offers real `massmem serve` processes: `start_service` for one test, `Service` for fixtures, `Client` for users."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from massmem.config.models import JwtConfig
from tests.support.child_process import tie_to_parent
from tests.support.forked import ForkedServer

SECRET = "tests-sign-with-this-0123456789-abcdef"

StartService = Callable[..., "Service"]
"""Starts a `Service` with this configuration and these options; it is stopped at the end of the test."""


def make_agent(name: str, text: str, **script: Any) -> dict[str, Any]:
    """Return a scripted agent that answers with this text, and votes for whoever gives the same answer."""
    vote = {"vote_for": text, "reason": "because"}
    defaults = {"latency": 0, "chunk_delay": 0, "answer": [text], "vote": [vote], "present": text}
    return {"id": name, "backend": {"type": "scripted", "script": {**defaults, **script}}}


def make_config(*agents: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Return the configuration of a service; without agents, of one that answers "It is blue."."""
    server = {"jwt": {"secret": SECRET}, **sections.pop("server", {})}
    return {"agents": list(agents or [make_agent("ann", "It is blue.")]), "server": server, **sections}


def make_token(user: str, seconds: int = 3600, scope: str = "") -> str:
    from massmem.server.auth import Tokens

    return Tokens(JwtConfig.model_validate({"secret": SECRET})).create(user, seconds, scope)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until the condition holds; fail when it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition does not hold"
        time.sleep(0.02)


class Service:
    """One `massmem serve` on a port of its own. Services in one folder share a home, and with it a store."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.port = find_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config_file = folder / f"team-{self.port}.yaml"
        self.config_file.write_text(yaml.safe_dump(dict(config)))
        self.log = folder / f"log-{self.port}"
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] | ForkedServer | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *options: str, wait: bool = True) -> "Service":
        """Start the process: one that forks, which saves a second, unless it has workers of its own."""
        arguments = ("serve", "--config", str(self.config_file), "--port", str(self.port), *options)
        environment = os.environ | {"HOME": str(self.home)}
        if "--workers" in options:
            command = tie_to_parent([sys.executable, "-m", "massmem", *arguments])
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(command, env=environment, stderr=log, stdin=subprocess.DEVNULL)
        else:
            self.process = ForkedServer(arguments, environment, self.log)
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process is not None
            code = self.process.poll()
            assert code is None, f"ended with {code}:\n{self.log.read_text()}"
            return self.get_status("/readyz") == 200

        wait_until(is_ready)

    def get_status(self, path: str) -> int:
        """Return the status of a GET request without a token; 0: nobody listens."""
        try:
            return requests.get(self.url + path, timeout=30).status_code
        except requests.ConnectionError:
            return 0

    def wait_for_exit(self) -> int:
        """Return the exit code of a process that ends by itself."""
        assert self.process is not None
        return self.process.wait(180)

    def kill(self) -> None:
        """End the process as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Tell the process to end in good order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """End the process in good order, unless it has ended. Return its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def read_log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def client(self, user: str, scope: str = "") -> "Client":
        return Client(self.url, make_token(user, scope=scope))


class Client:
    """One user of a service."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **options: Any) -> requests.Response:
        return self._session.get(self.url + path, timeout=60, **options)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self._session.delete(self.url + path, timeout=60, **options)

    def put(self, path: str) -> requests.Response:
        return self._session.put(self.url + path, timeout=60)

    def patch(self, path: str, body: object) -> requests.Response:
        return self._session.patch(self.url + path, json=body, timeout=60)

    def post(self, path: str, body: object, key: str | None = None, **options: Any) -> requests.Response:
        """key: the Idempotency-Key."""
        headers = {**({} if key is None else {"Idempotency-Key": key}), **options.pop("headers", {})}
        return self._session.post(self.url + path, json=body, timeout=60, headers=headers, **options)

    def post_bytes(self, path: str, data: bytes) -> requests.Response:
        return self._session.post(self.url + path, data=data, timeout=60)

    def import_export(self, export: bytes | object) -> dict[str, Any]:
        """Import an export, as bytes or as the value of its JSON; return the job when it has ended."""
        data = export if isinstance(export, bytes) else json.dumps(export).encode()
        response = self.post_bytes("/api/v1/sessions/import", data)
        assert response.status_code == 202, response.text
        return self.wait_for_import(response.headers["Location"])

    def wait_for_import(self, address: str) -> dict[str, Any]:
        wait_until(lambda: self.get(address).json()["status"] != "running")
        return self.get(address).json()

    def chat(self, message: str, session_id: str | None = None, key: str | None = None) -> requests.Response:
        body = {"message": message} | ({} if session_id is None else {"session_id": session_id})
        return self.post("/api/v1/chat", body, key)

    def read_history(self, session_id: str) -> list[tuple[str, str]]:
        """Return roles and contents; empty for an unknown session."""
        history = self.get(f"/api/v1/chat/history/{session_id}?limit=1000").json()
        return [(message["role"], message["content"]) for message in history.get("messages", [])]

    def list_sessions(self) -> list[str]:
        return self.get("/api/ai-memory/conversations").json()["data"]


def read_events(response: requests.Response) -> list[tuple[str, int, dict[str, Any]]]:
    """Read a stream to its end; return the name, the number (0: none) and the data of each event."""
    events: list[tuple[str, int, dict[str, Any]]] = []
    fields: dict[str, str] = {}
    for line in response.iter_lines(decode_unicode=True):
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "data" in fields:
            events.append((fields["event"], int(fields.get("id", 0)), json.loads(fields["data"])))
        fields = {}
    return events


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    services: list[Service] = []

    def start(config: Mapping[str, Any], *options: str, wait: bool = True) -> Service:
        services.append(Service(tmp_path, config))
        return services[-1].start(*options, wait=wait)

    yield start
    for service in services:
        service.stop()
