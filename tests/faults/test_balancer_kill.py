"""Three services behind HAProxy on PostgreSQL and Redis, killed one after the other while users ask and read streams.

No turn is lost, none doubled, and every stream that breaks goes on through the balancer without a gap or a duplicate.
"""

import itertools
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.child_process import tie_to_parent
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer
from tests.support.service import Client, Service, find_free_port, make_agent, make_config, make_token, wait_until
from tests.support.verdict import check

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
CONFIG = Path(__file__).parents[2] / "configs" / "compose" / "haproxy.cfg"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed (apt-get install haproxy)"),
]

Numbered = tuple[int, str]


@pytest.fixture
def machines(tmp_path: Path, postgres: PostgresServer, redis_server: RedisServer) -> Iterator[list[Service]]:
    limits = {"counted_in": f"redis://127.0.0.1:{redis_server.port}/0", "requests": 100_000, "turns_per_user": 50}
    agent = make_agent("ann", "It is blue.", latency=0.05, chunk_delay=0.03, chunk_size=2)
    store = {"url": postgres.url(postgres.new_database())}
    memory = {"persistent_memory": {"enabled": False}}
    config = make_config(agent, store=store, memory=memory, server={"limits": limits})
    services: list[Service] = []
    for number in range(3):
        folder = tmp_path / f"machine{number}"
        folder.mkdir()
        services.append(Service(folder, config).start())
    yield services
    for service in services:
        service.stop()


@pytest.fixture
def balancer(tmp_path: Path, machines: list[Service]) -> Iterator[str]:
    assert HAPROXY is not None
    port = find_free_port()
    names = ("MASSMEM_ONE", "MASSMEM_TWO", "MASSMEM_THREE")
    places = {name: f"127.0.0.1:{service.port}" for name, service in zip(names, machines, strict=True)}
    environment = os.environ | places | {"MASSMEM_BIND": f"127.0.0.1:{port}"}
    with (tmp_path / "haproxy.log").open("wb") as log:
        command = tie_to_parent([HAPROXY, "-db", "-f", str(CONFIG)])
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


class Reader:
    """Asks one question, and reads its events to the end, however often the connection breaks."""

    def __init__(self, url: str, number: int) -> None:
        self.session_id = f"s{number}"
        self.question = f"Question {number}?"
        self.events: list[Numbered] = []
        self.breaks = 0
        self._url = url
        self._client = Client(url, make_token("alice"))

    def run(self) -> None:
        deadline = time.monotonic() + 120
        while not (self.events and self.events[-1][1] in ("turn_completed", "turn_failed")):
            assert time.monotonic() < deadline, self.events[-3:]
            try:
                self._read()
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                self.breaks += 1
            time.sleep(0.05)

    def _read(self) -> None:
        if not self.events:
            body = {"message": self.question, "session_id": self.session_id}
            response = self._client.post("/api/v1/chat/stream", body, f"key-{self.session_id}", stream=True)
        else:
            last = {"Last-Event-ID": str(self.events[-1][0])}
            response = self._client.get(f"/api/v1/chat/stream/{self.session_id}", stream=True, headers=last)
        if response.status_code != 200:
            assert response.status_code in (409, 502, 503, 504), response.text
            return
        number, name = 0, ""
        for line in response.iter_lines(decode_unicode=True):
            key, _, value = line.partition(": ")
            number, name = (int(value) if key == "id" else number), (value if key == "event" else name)
            if not line and name and number:
                self.events.append((number, name))
                number, name = 0, ""


def read_log(client: Client, session_id: str) -> list[Numbered]:
    """Return all events of a session, as a client reads them that asks for them in one go."""
    response = client.get(f"/api/v1/chat/stream/{session_id}", headers={"Last-Event-ID": "0"})
    fields: dict[str, Any] = {}
    events: list[Numbered] = []
    for line in response.text.splitlines():
        key, _, value = line.partition(": ")
        fields[key] = value
        if not line and "event" in fields:
            events.append((int(fields.get("id", 0)), fields["event"]))
            fields = {}
    return [event for event in events if event[0]]


@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.full)])
def test_kills_behind_the_balancer_lose_and_double_nothing(machines: list[Service], balancer: str, kills: int) -> None:
    chance = random.Random(kills)
    readers: list[Reader] = []
    numbers = itertools.count()
    is_over = threading.Event()

    def ask_questions() -> None:
        while not is_over.is_set():
            reader = Reader(balancer, next(numbers))
            readers.append(reader)
            reader.run()

    threads = [threading.Thread(target=ask_questions) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        time.sleep(chance.uniform(0.2, 1.0))
        victim = chance.choice(machines)
        victim.kill()
        victim.start()
    is_over.set()
    for thread in threads:
        thread.join(300)
    client = Client(balancer, make_token("alice"))
    counts = dict.fromkeys(("lost", "ghost", "gaps"), 0)
    for reader in readers:
        history = client.read_history(reader.session_id)
        counts["lost"] += history[-1:] != [("assistant", "It is blue.")]
        counts["ghost"] += len(history) > 2
        counts["gaps"] += reader.events != read_log(client, reader.session_id)[: len(reader.events)]
    check(f"{kills} kills behind a balancer, {len(readers)} streams", counts, "gaps")
    assert sum(reader.breaks for reader in readers) > 0, "no stream was broken"
