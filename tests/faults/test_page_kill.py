"""SIGKILL of the service in a question of the page: the page goes on reading where it was, and the turn has one end."""

import contextlib
import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from massmem.core.events import AnswerSubmitted, BallotCast, Event, TurnCompleted, TurnStarted, decode_event
from tests.support.council_server import CouncilServer, council_server
from tests.support.service import Client, Service, make_config, read_events
from tests.support.verdict import check

pytestmark = pytest.mark.slow

AGENTS = ("ann", "ben", "cyd")
EVENTS = 29
"""Of a turn."""

Streamed = dict[int, dict[str, Any]]
"""Stored events by the number that the stream gives them."""


@pytest.fixture
def council() -> Iterator[CouncilServer]:
    with council_server() as server:
        yield server


def start(folder: Path, council: CouncilServer) -> Service:
    backend = {"type": "openai", "model": "stub", "base_url": council.url, "api_key": "test"}
    agents = [{"id": name, "system_message": name, "backend": backend} for name in AGENTS]
    return Service(folder, make_config(*agents, server={"limits": {"requests": 100_000}})).start()


def read_log(service: Service, session_id: str) -> dict[int, Event]:
    with closing(sqlite3.connect(service.home / ".massmem" / "massmem.db")) as db:
        query = "SELECT seq, payload FROM events WHERE session_id LIKE ? ORDER BY seq"
        return {seq: decode_event(row) for seq, row in db.execute(query, [f"%{session_id}"])}


def read_stream(response: requests.Response, streamed: Streamed) -> None:
    """Read as far as the connection holds."""
    with contextlib.suppress(requests.RequestException):
        fields: dict[str, str] = {}
        for line in response.iter_lines(decode_unicode=True):
            name, _, value = line.partition(": ")
            fields = {**fields, name: value} if line else {}
            if name == "data" and int(fields.get("id", 0)):
                streamed[int(fields["id"])] = json.loads(value)


def ask(client: Client, session_id: str, key: str, streamed: Streamed) -> None:
    """Send the question as the page does; the connection may break."""
    with contextlib.suppress(requests.RequestException):
        body = {"message": f"Why {session_id}?", "session_id": session_id}
        read_stream(client.post("/api/v1/chat/stream", body, key, stream=True), streamed)


def go_on(client: Client, session_id: str, key: str, streamed: Streamed) -> str:
    """Read on until the turn has ended, as the page does after a lost connection. Return the answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if streamed:
            headers = {"Last-Event-ID": str(max(streamed))}
            read_stream(client.get(f"/api/v1/chat/stream/{session_id}", headers=headers, stream=True), streamed)
        else:  # nothing says that the question was stored: it is sent again, under its key
            ask(client, session_id, key, streamed)
        if answer := next((e["answer"] for e in streamed.values() if e["type"] == "turn_completed"), ""):
            return answer
        time.sleep(0.1)
    raise AssertionError("the turn has no end")


def kill_once(service: Service, council: CouncilServer, session_id: str, after: int) -> Counter[str]:
    """after: events that were shown."""
    client, streamed, key = service.client("alice"), Streamed(), f"key {session_id}"
    council.requests.clear()
    thread = threading.Thread(target=ask, args=(client, session_id, key, streamed))
    thread.start()
    while len(streamed) < after and thread.is_alive():
        time.sleep(0.001)
    time.sleep(random.random() * 0.03)
    service.kill()
    thread.join(60)
    before, shown = read_log(service, session_id), dict(streamed)
    council.requests.clear()
    service.start()
    client = service.client("alice")
    answer = go_on(client, session_id, key, streamed)
    after = read_log(service, session_id)
    again = client.post("/api/v1/chat/stream", {"message": f"Why {session_id}?", "session_id": session_id}, key)
    answers = [data["answer"] for name, _, data in read_events(again) if name == "turn_completed"]
    finished = {(e.agent_id, type(e)) for e in before.values() if isinstance(e, AnswerSubmitted | BallotCast)}
    asked = {"answer": AnswerSubmitted, "vote": BallotCast}
    counts = Counter(kills=1, shown=len(shown), resumed=int(0 < len(before) < len(after)))
    counts["lost"] = sum(after.get(seq) != event for seq, event in before.items()) + len(shown.keys() - before.keys())
    counts["ghost"] = sum(isinstance(e, TurnStarted) for e in after.values()) - 1
    counts["ghost"] += sum(isinstance(e, TurnCompleted) for e in after.values()) - 1
    for seq, data in streamed.items():  # the stream names the session as its user does
        logged = {name: value for name, value in after[seq].model_dump(mode="json").items() if name != "session_id"}
        counts["lie"] += any(data[name] != value for name, value in logged.items() if name in data)
    counts["lie"] += answers != [answer]
    counts["lie"] += client.read_history(session_id) != [("user", f"Why {session_id}?"), ("assistant", answer)]
    counts["paid twice"] = sum((r.agent, asked.get(r.step)) in finished for r in council.requests)
    return counts


@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.full)])
def test_a_question_of_the_page_outlives_a_kill(tmp_path: Path, council: CouncilServer, times: int) -> None:
    service, total = start(tmp_path, council), Counter[str]()
    for number in range(times):
        after = int((number + random.random()) * EVENTS / times)  # spread over the whole turn
        total.update(kill_once(service, council, f"session-{times}-{number}", after))
    service.stop()
    check(f"question of the page, {times} kills", total, "paid twice")
    assert total["resumed"] > 0


def edit_until_kill(service: Service, memory_id: str, texts: list[str]) -> tuple[list[str], Counter[str]]:
    """Send edits one after the other, and kill the service in one of them. Return those that were answered."""
    client, answered = service.client("alice"), list[str]()

    def send() -> None:
        with contextlib.suppress(requests.RequestException):
            for text in texts:
                if client.patch(f"/api/v1/memories/{memory_id}", {"text": text}).status_code in (200, 202):
                    answered.append(text)

    thread = threading.Thread(target=send)
    thread.start()
    time.sleep(0.05 + random.random() * 0.3)
    service.kill()
    thread.join(60)
    service.start()
    client, counts = service.client("alice"), Counter(kills=1)
    (memory,) = client.get("/api/v1/memories").json()["memories"]
    changes = [c["text"] for c in client.get(f"/api/v1/memories/{memory['id']}").json()["changes"]]
    changed = [text for text in changes if text in texts]
    counts["lost"] = len(set(answered) - set(changed))
    counts["twice"] = len(changed) - len(set(changed))
    counts["ghost"] = max(0, len(changed) - len(answered) - 1)  # the one that was cut off may be in the log
    counts["lie"] = changed != texts[: len(changed)] or memory["text"] != (changes or [memory["text"]])[-1]
    return changed, counts


@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.full)])
def test_an_edit_of_the_page_outlives_a_kill(tmp_path: Path, times: int) -> None:
    memory, server = {"persistent_memory": {"session_name": None}}, {"limits": {"requests": 100_000}}
    service, total, edits = Service(tmp_path, make_config(memory=memory, server=server)).start(), Counter[str](), 0
    first = service.client("alice").post("/api/v1/memories", {"text": "The ferry leaves at 4711."})
    assert first.status_code == 201, first.text
    for number in range(times):
        texts = [f"The ferry leaves at pier {number}-{n}." for n in range(200)]
        changed, counts = edit_until_kill(service, first.json()["id"], texts)
        total.update(counts)
        edits += len(changed)
    service.stop()
    check(f"edit on the page, {edits} edits, {times} kills", total, "twice")
    assert edits > 0
