"""Files and exports that compute long: their sender is told so, and nobody else waits."""

import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pictures import make_drawing, make_page_tree
from tests.support.service import Service, make_agent, make_config

SLOW = make_drawing(b"BT /F 9 Tf " + b"(a) Tj " * 600_000 + b"ET")
"""Takes a CPU about ten seconds."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    limits = {"requests": 1_000_000, "turns": 20}
    config = make_config(make_agent("ann", "It is blue."), server={"limits": limits, "grace": 1})
    service = Service(tmp_path, config).start()
    yield service
    service.kill()


def make_question(name: str, data: bytes) -> dict[str, Any]:
    url = f"data:application/pdf;base64,{b64encode(data).decode()}"
    return {
        "message": [{"type": "text", "text": "What?"}, {"type": "file", "file": {"filename": name, "file_data": url}}]
    }


@pytest.mark.slow
def test_others_are_answered_while_one_user_sends_slow_documents(service: Service):
    mallory, bob = service.client("mallory"), service.client("bob")
    statuses: list[int] = []

    def send() -> None:
        statuses.append(mallory.post("/api/v1/chat", make_question("slow.pdf", SLOW)).status_code)

    senders = [threading.Thread(target=send, daemon=True) for _ in range(8)]
    for sender in senders:
        sender.start()
    time.sleep(1)
    question = make_question("tree.pdf", make_page_tree(5, 9))
    refusal = bob.post("/api/v1/chat", question)
    assert (refusal.status_code, refusal.json()["error"]) == (422, "tree.pdf has more than 5,000 pages")
    assert bob.chat("What colour is the sky?").status_code == 200
    assert service.get_status("/readyz") == 200
    assert any(sender.is_alive() for sender in senders), "the documents were not slow"
    assert service.stop() == 0


def make_chain(length: int, *, circle: bool = False) -> bytes:
    """Return an export of ChatGPT: a message below another, and with a circle the first one below the last."""
    nodes = {
        f"n{i}": {
            "parent": f"n{i - 1}" if i else f"n{length - 1}" if circle else None,
            "message": {"author": {"role": ("user", "assistant")[i % 2]}, "content": {"parts": [f"text {i}"]}},
        }
        for i in range(length)
    }
    return json.dumps([{"conversation_id": "c", "mapping": nodes}]).encode()


def test_hostile_exports_are_read_or_refused(service: Service):
    mallory, results = service.client("mallory"), list[tuple[str, str]]()
    exports = [
        make_chain(400),
        make_chain(401, circle=True),
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'[{"messages": ' * 400 + b"[]" + b"}]" * 400,
    ]
    for export in exports:
        job = mallory.import_export(export)
        results.append((job["status"], job["error"]))
    assert results == [
        ("done", ""),
        ("done", ""),
        ("failed", "the file is nested too deeply"),
        ("failed", "the file is nested too deeply"),
        ("failed", "the file has no conversation with a question and an answer: message without an author (1)"),
    ]
