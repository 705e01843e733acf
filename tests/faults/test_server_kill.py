"""One of three server processes is killed in the middle of a turn: every question ends with exactly one answer."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from tests.support.service import Client, Service, make_agent, make_config, wait_until

pytestmark = pytest.mark.slow

# Both vote for the same answer: which of them is faster does not matter.
SLOW = make_config(
    make_agent("ann", "It is blue.", latency=0.1, chunk_delay=0.02, chunk_size=3),
    make_agent(
        "bob",
        "It is green.",
        latency=0.15,
        chunk_delay=0.02,
        chunk_size=3,
        vote=[{"vote_for": "It is blue.", "reason": "because"}],
    ),
)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Three services on one store."""
    folder = tmp_path_factory.mktemp("services")
    services = [Service(folder, SLOW) for _ in range(3)]
    for service in services:
        service.start(wait=False)
    for service in services:
        service.wait_until_ready()
    yield services
    for service in services:
        service.stop()


def start_question(service: Service, question: str, session_id: str, key: str | None) -> threading.Thread:
    """Ask in a thread; the connection may break."""

    def ask() -> None:
        with contextlib.suppress(requests.ConnectionError):
            service.client("alice").chat(question, session_id, key)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def ask_until_answered(client: Client, question: str, session_id: str, key: str) -> requests.Response:
    """Send the same request until there is an answer, as a client does whose connection broke."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        response = client.chat(question, session_id, key)
        if response.status_code == 200:
            return response
        assert response.status_code in (409, 503), response.text
        time.sleep(float(response.headers["Retry-After"]) / 4)
    raise AssertionError("no answer")


def kill_in_mid_turn(services: list[Service], number: int, rng: random.Random) -> None:
    victim, *others = rng.sample(services, 3)
    session_id, question, key = f"session-{number}", f"Question {number}?", f"key-{number}"
    thread = start_question(victim, question, session_id, key)
    time.sleep(rng.uniform(0.0, 0.7))
    victim.kill()
    thread.join(60)
    answer = ask_until_answered(others[0].client("alice"), question, session_id, key)
    assert answer.json()["response"] == "It is blue."
    messages = [("user", question), ("assistant", "It is blue.")]
    assert others[1].client("alice").read_history(session_id) == messages
    victim.start()
    alice = victim.client("alice")
    assert ask_until_answered(alice, question, session_id, key).json() == answer.json()
    assert alice.read_history(session_id) == messages


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.full)])
def test_question_that_is_asked_again_has_one_answer(services: list[Service], kills: int) -> None:
    rng = random.Random(kills)
    for number in range(kills):
        kill_in_mid_turn(services, number, rng)


def test_question_that_nobody_asks_again_is_answered_by_another_process(services: list[Service]) -> None:
    victim, other, _ = services
    thread = start_question(victim, "Why?", "lost", None)
    alice = other.client("alice")
    wait_until(lambda: len(alice.read_history("lost")) == 1)
    victim.kill()
    thread.join(60)
    wait_until(lambda: len(alice.read_history("lost")) == 2)
    time.sleep(3)  # longer than a process waits before it looks for turns to resume
    assert alice.read_history("lost") == [("user", "Why?"), ("assistant", "It is blue.")]
    victim.start()
