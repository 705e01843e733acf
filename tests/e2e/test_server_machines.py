"""The README's set-up with several machines: three services, two workers each, on one real PostgreSQL."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.support.postgres_server import PostgresServer
from tests.support.service import Service, make_agent, make_config, read_events

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[list[Service]]:
    """Each has a home of its own; only the database is shared."""
    url = postgres.url(postgres.new_database())
    agent = make_agent("ann", "It is blue.", latency=0.05, chunk_delay=0.02, chunk_size=4)
    config = make_config(agent, store={"url": url}, memory={"persistent_memory": {"enabled": False}})
    services = [Service(tmp_path_factory.mktemp(f"machine{number}"), config) for number in range(3)]
    for service in services:
        service.start("--workers", "2", wait=False)
    for service in services:
        service.wait_until_ready()
    yield services
    codes = [service.stop() for service in services]
    assert codes == [0, 0, 0]


def test_conversation_goes_on_at_any_machine(machines: list[Service]) -> None:
    for turn in range(1, 10):
        answer = machines[turn % 3].client("alice").chat(f"Question {turn}?", "s").json()
        assert (answer["turn"], answer["response"]) == (turn, "It is blue.")
    for machine in machines:
        assert len(machine.client("alice").read_history("s")) == 18
        assert machine.client("bob").get("/api/v1/chat/history/s").status_code == 404


def test_question_that_is_sent_to_all_machines_at_once_is_asked_once(machines: list[Service]) -> None:
    def ask(number: int) -> requests.Response:
        return machines[number % 3].client("carol").chat("Why?", "once", "key")

    with ThreadPoolExecutor(12) as pool:
        responses = list(pool.map(ask, range(12)))
    statuses = Counter(response.status_code for response in responses)
    assert statuses[200] >= 1
    assert set(statuses) <= {200, 409}, statuses
    assert {response.json()["turn"] for response in responses if response.status_code == 200} == {1}
    assert machines[0].client("carol").read_history("once") == [("user", "Why?"), ("assistant", "It is blue.")]


def test_stream_goes_on_at_another_machine(machines: list[Service]) -> None:
    body = {"message": "Why?", "session_id": "s"}
    events = read_events(machines[0].client("dan").post("/api/v1/chat/stream", body, stream=True))
    last = {"Last-Event-ID": str(events[1][1])}
    rest = machines[1].client("dan").get("/api/v1/chat/stream/s", stream=True, headers=last)
    assert read_events(rest) == events[2:]


def test_many_users_ask_at_once(machines: list[Service]) -> None:
    def ask(number: int) -> int:
        client = machines[number % 3].client(f"user{number % 8}")
        return client.chat("Why?", f"s{number}").status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(24))) == {200}
    for user in range(8):
        assert len(machines[0].client(f"user{user}").list_sessions()) == 3
