"""A turn that kills its process again and again is given up; turns that were only beside it are not."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from massmem.core.outcome import GAVE_UP
from tests.support.service import Client, Service, make_agent, make_config, wait_until

SLOW = make_config(make_agent("ann", "It is blue.", latency=60), server={"grace": 0})
QUICK = make_config(make_agent("ann", "It is blue."), server={"grace": 0})


def ask_in_vain(client: Client, question: str, session_id: str) -> threading.Thread:
    def ask() -> None:
        with contextlib.suppress(requests.RequestException):
            client.chat(question, session_id, f"key-{session_id}")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def read_types(client: Client, session_id: str) -> list[str]:
    response = client.get(f"/api/v1/sessions/{session_id}/turns/1")
    return [event["type"] for event in response.json()["events"]] if response.status_code == 200 else []


def count_begins(client: Client, session_id: str) -> int:
    types = read_types(client, session_id)
    return types.count("turn_started") + types.count("turn_resumed")


def wait_for_begins(client: Client, begins: int, *sessions: str) -> None:
    """Wait until the turn of each of the sessions has been started or resumed so often."""
    wait_until(lambda: all(count_begins(client, session_id) == begins for session_id in sessions))


def read_failure(client: Client, session_id: str) -> dict[str, Any]:
    events = client.get(f"/api/v1/sessions/{session_id}/turns/1").json()["events"]
    return next(event for event in events if event["type"] == "turn_failed")


def restart(folder: Path, config: dict[str, Any]) -> tuple[Service, Client]:
    service = Service(folder, config).start()
    return service, service.client("alice")


def test_a_turn_whose_process_dies_three_times_is_given_up_and_the_next_question_works(tmp_path: Path):
    service, alice = restart(tmp_path, SLOW)
    ask_in_vain(alice, "Why?", "lethal")
    for begins in (1, 2, 3):
        wait_for_begins(alice, begins, "lethal")
        service.kill()
        service, alice = restart(tmp_path, SLOW)
    wait_until(lambda: "turn_failed" in read_types(alice, "lethal"))
    failure = read_failure(alice, "lethal")
    assert (failure["message"], count_begins(alice, "lethal")) == (GAVE_UP, 3)
    assert alice.chat("Why?", "lethal", "key-lethal").json()["error"].startswith(GAVE_UP)
    service.stop()
    service, alice = restart(tmp_path, QUICK)
    assert alice.chat("Why not?", "lethal").json()["response"] == "It is blue."
    assert read_types(alice, "lethal").count("turn_resumed") == 2
    service.stop()


@pytest.mark.slow
def test_restarts_in_good_order_never_count(tmp_path: Path):
    service, alice = restart(tmp_path, SLOW)
    ask_in_vain(alice, "Why?", "long")
    for begins in (1, 2, 3, 4, 5):
        wait_for_begins(alice, begins, "long")
        service.stop()
        service, alice = restart(tmp_path, SLOW)
    service.stop()
    service, alice = restart(tmp_path, QUICK)
    wait_until(lambda: "turn_completed" in read_types(alice, "long"))
    service.stop()


@pytest.mark.slow
def test_turns_on_their_last_try_are_resumed_one_by_one(tmp_path: Path):
    service, alice = restart(tmp_path, SLOW)
    sessions = ["one", "two"]
    for session_id in sessions:
        ask_in_vain(alice, "Why?", session_id)
    for begins in (1, 2):
        wait_for_begins(alice, begins, *sessions)
        service.kill()
        service, alice = restart(tmp_path, SLOW)
    wait_until(lambda: any(count_begins(alice, name) == 3 for name in sessions))
    service.kill()  # whichever of them it was: the other one has a try left
    service, alice = restart(tmp_path, SLOW)
    wait_until(lambda: any("turn_failed" in read_types(alice, name) for name in sessions))
    wait_for_begins(alice, 3, *sessions)
    assert sum("turn_failed" in read_types(alice, name) for name in sessions) == 1
    service.stop()
