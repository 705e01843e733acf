"""The set-up of the README with several machines: three services, two processes each, on one real PostgreSQL."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.postgres_server import PostgresServer, binary
from tests.support.service import Answer, Service, agent, events, team

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Each has a home of its own, as machines have: nothing but the database is shared."""
    if binary("initdb") is None:
        pytest.skip("there is no PostgreSQL on this machine")
    postgres = PostgresServer()
    url = postgres.url(postgres.new_database())
    slow = agent("ann", "It is blue.", latency=0.05, chunk_delay=0.02, chunk_size=4)
    config = team(slow, store={"url": url}, memory={"persistent_memory": {"enabled": False}})
    services = [Service(tmp_path_factory.mktemp(f"machine{number}"), config) for number in range(3)]
    for each in services:
        each.start("--workers", "2", wait=False)
    for each in services:
        each.wait()
    yield services
    codes = [each.stop() for each in services]
    postgres.remove()
    assert codes == [0, 0, 0]


def test_a_conversation_goes_on_at_any_machine(machines: list[Service]) -> None:
    for turn in range(1, 10):
        answer = machines[turn % 3].as_("alice").chat(f"Question {turn}?", "s").json()
        assert (answer["turn"], answer["response"]) == (turn, "It is blue.")
    for each in machines:
        assert len(each.as_("alice").history("s")) == 18
        assert each.as_("bob").get("/api/v1/chat/history/s").status_code == 404


def test_one_question_asked_everywhere_at_once_is_answered_once(machines: list[Service]) -> None:
    def ask(number: int) -> Answer:
        return machines[number % 3].as_("carol").chat("Why?", "once", "key")

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(12)))
    found = Counter(answer.status_code for answer in answers)
    assert found[200] >= 1
    assert set(found) <= {200, 409}, found
    assert {answer.json()["turn"] for answer in answers if answer.status_code == 200} == {1}
    assert machines[0].as_("carol").history("once") == [("user", "Why?"), ("assistant", "It is blue.")]


def test_a_stream_is_followed_at_another_machine(machines: list[Service]) -> None:
    first = events(
        machines[0].as_("dan").post("/api/v1/chat/stream", {"message": "Why?", "session_id": "s"}, stream=True)
    )
    last = {"Last-Event-ID": str(first[1][1])}
    rest = events(machines[1].as_("dan").get("/api/v1/chat/stream/s", stream=True, headers=last))
    assert json.dumps(rest) == json.dumps(first[2:])


def test_many_users_at_once(machines: list[Service]) -> None:
    def ask(number: int) -> int:
        client = machines[number % 3].as_(f"user{number % 8}")
        return client.chat("Why?", f"s{number}").status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(24))) == {200}
    for user in range(8):
        assert len(machines[0].as_(f"user{user}").get("/api/ai-memory/conversations").json()["data"]) == 3
