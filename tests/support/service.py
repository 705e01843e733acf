"""Real server processes for tests: a team of scripted agents on a port of its own, and tokens for its users."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

SECRET = "tests-sign-with-this-0123456789-abcdef"

Answer = requests.Response


def agent(name: str, says: str, **script: Any) -> dict[str, Any]:
    """An agent that says so, and votes for whoever says it."""
    said = {"latency": 0, "chunk_delay": 0, "answer": [says], "vote": [{"vote_for": says, "reason": "so it is"}]}
    return {"id": name, "backend": {"type": "scripted", "script": {**said, "present": says, **script}}}


def team(*agents: dict[str, Any], **sections: Any) -> dict[str, Any]:
    server = {"jwt": {"secret": SECRET}, **sections.pop("server", {})}
    return {"agents": list(agents or [agent("ann", "It is blue.")]), "server": server, **sections}


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Service:
    """One `massmem serve`, in a folder that others may share."""

    def __init__(self, folder: Path, config: Mapping[str, Any], name: str = "team") -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.file = folder / f"{name}.yaml"
        self.log = folder / f"{name}-{self.port}.log"
        self.file.write_text(yaml.safe_dump(dict(config)))
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, wait: bool = True) -> "Service":
        command = [sys.executable, "-m", "massmem", "serve", "--config", str(self.file), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options], env=os.environ | {"HOME": str(self.home)}, stderr=log, stdin=subprocess.DEVNULL
            )
        if wait:
            self.wait()
        return self

    def wait(self, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            try:
                if requests.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except requests.ConnectionError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def kill(self) -> None:
        """As a machine that loses its power: nothing is said, nothing is written."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 60) -> int:
        """Returns the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def lines(self) -> list[dict[str, Any]]:
        """What the log says."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def as_(self, user: str, scope: str = "") -> "Client":
        return Client(self.url, token(user, scope=scope))


class Client:
    """One user."""

    def __init__(self, url: str, token_: str) -> None:
        self.url = url
        self.token = token_
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token_}"

    def get(self, path: str, **options: Any) -> Answer:
        return self._session.get(self.url + path, timeout=60, **options)

    def delete(self, path: str, **options: Any) -> Answer:
        return self._session.delete(self.url + path, timeout=60, **options)

    def post(self, path: str, body: object, key: str | None = None, **options: Any) -> Answer:
        headers = {**({} if key is None else {"Idempotency-Key": key}), **options.pop("headers", {})}
        return self._session.post(self.url + path, json=body, timeout=60, headers=headers, **options)

    def chat(self, message: str, session_id: str | None = None, key: str | None = None) -> Answer:
        body = {"message": message} | ({} if session_id is None else {"session_id": session_id})
        return self.post("/api/v1/chat", body, key)

    def history(self, session_id: str) -> list[tuple[str, str]]:
        found = self.get(f"/api/v1/chat/history/{session_id}?limit=1000")
        return [(m["role"], m["content"]) for m in found.json().get("messages", [])]


def token(user: str, seconds: int = 3600, scope: str = "") -> str:
    from massmem.config.service import JwtConfig
    from massmem.server.auth import Tokens

    return Tokens(JwtConfig.model_validate({"secret": SECRET})).make(user, seconds, scope)


def events(answer: Answer) -> list[tuple[str, int, dict[str, Any]]]:
    """Of a stream, to its end: name, number (0: none), data."""
    found: list[tuple[str, int, dict[str, Any]]] = []
    name, number = "", 0
    for line in answer.iter_lines(decode_unicode=True):
        field, _, value = line.partition(": ")
        match field:
            case "event":
                name = value
            case "id":
                number = int(value)
            case "data":
                found.append((name, number, json.loads(value)))
                name, number = "", 0
            case _:
                pass
    return found
