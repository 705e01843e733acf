"""One of three server processes is killed in the middle of a turn: every question ends with exactly one answer."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.service import Answer, Client, Service, agent, team

SLOW = team(
    agent("ann", "It is blue.", latency=0.1, chunk_delay=0.02, chunk_size=3),
    agent("bob", "It is green.", latency=0.15, chunk_delay=0.02, chunk_size=3),
)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Service]]:
    services = [Service(tmp_path, SLOW, f"team{n}") for n in range(3)]
    for each in services:
        each.start(wait=False)
    for each in services:
        each.wait()
    yield services
    for each in services:
        each.stop()


def asked(service: Service, question: str, session_id: str, key: str | None) -> tuple[threading.Thread, list[Answer]]:
    """Ask in a thread; the list has the answer, if one came."""
    answers: list[Answer] = []

    def ask() -> None:
        with contextlib.suppress(requests.ConnectionError):
            answers.append(service.as_("alice").chat(question, session_id, key))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, answers


def again(service: Service, question: str, session_id: str, key: str) -> Answer:
    """What a client does whose connection broke: the same request, until there is an answer."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answer = service.as_("alice").chat(question, session_id, key)
        if answer.status_code == 200:
            return answer
        assert answer.status_code in (409, 503), answer.text
        time.sleep(float(answer.headers["Retry-After"]) / 4)
    raise AssertionError("no answer")


def kill_in_mid_turn(services: list[Service], number: int, rng: random.Random) -> None:
    victim, *others = rng.sample(services, 3)
    session_id, question, key = f"session-{number}", f"Question {number}?", f"key-{number}"
    thread, _ = asked(victim, question, session_id, key)
    time.sleep(rng.uniform(0.0, 0.7))
    victim.kill()
    thread.join(60)
    answer = again(others[0], question, session_id, key)
    assert answer.json()["response"] == "It is blue."
    said = [("user", question), ("assistant", "It is blue.")]
    assert others[1].as_("alice").history(session_id) == said
    victim.start()
    assert again(victim, question, session_id, key).json() == answer.json()
    assert victim.as_("alice").history(session_id) == said


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.full)])
def test_a_question_that_is_asked_again_has_one_answer(three: list[Service], kills: int) -> None:
    rng = random.Random(kills)
    for number in range(kills):
        kill_in_mid_turn(three, number, rng)


def test_a_question_that_nobody_asks_again_is_answered_by_another_process(three: list[Service]) -> None:
    victim, *others = three
    thread, _ = asked(victim, "Why?", "lost", None)
    client = others[0].as_("alice")
    wait_for(client, "lost", 1)
    victim.kill()
    thread.join(60)
    assert wait_for(client, "lost", 2) == [("user", "Why?"), ("assistant", "It is blue.")]
    time.sleep(3)  # nobody takes up what is over
    assert len(client.history("lost")) == 2


def wait_for(client: Client, session_id: str, messages: int) -> list[tuple[str, str]]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if len(said := client.history(session_id)) >= messages:
            return said
        time.sleep(0.05)
    raise AssertionError(f"{messages} messages did not come")
