"""The service at its edges: connections that break after every event, large turns, long sessions, large bodies."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from massmem.core.events import MessageAdded
from massmem.core.records import Owner, SessionRecord
from massmem.session.owners import to_stored_id
from massmem.store import open_store
from tests.integration.test_mcp_server import open_http
from tests.support.sample_turn import START
from tests.support.service import Client, Service, StartService, make_agent, make_config, read_events, wait_until

POSTS = (
    "/api/v1/chat",
    "/api/v1/chat/stream",
    "/api/multi-agent/query",
    "/v1/chat/completions",
    "/v1/responses",
    "/api/v1/sessions/s/fork",
    "/api/v1/sessions/s/rename",
    "/api/v1/sessions/import",
    "/api/v1/sessions/s/context",
    "/mcp",
)
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    agents = [
        make_agent("ann", "It is blue.", latency=0.05, chunk_delay=0.02, chunk_size=3),
        make_agent("bob", "It is blue.", latency=0.02, chunk_delay=0.03, chunk_size=4),
    ]
    limits = {"requests": 1_000_000, "body": 4 * MEGABYTE, "body_timeout": 1}
    config = make_config(*agents, server={"limits": limits}, memory={"persistent_memory": {"enabled": False}})
    service = Service(tmp_path_factory.mktemp("edges"), config).start()
    yield service
    assert service.stop() == 0


def read_one(response: requests.Response) -> tuple[int, str] | None:
    """Read the first event of a stream, and break the connection. None: there is no further event."""
    number, name = 0, ""
    with response:
        for line in response.iter_lines(decode_unicode=True):
            key, _, value = line.partition(": ")
            number, name = (int(value) if key == "id" else number), (value if key == "event" else name)
            if not line and number:
                return number, name
    return None


def test_stream_that_breaks_after_every_event_has_no_gap_and_no_duplicate(service: Service) -> None:
    eve = service.client("eve")
    body = {"message": "Why?", "session_id": "cut"}
    events = [read_one(eve.post("/api/v1/chat/stream", body, "k", stream=True))]
    while events[-1] is not None:
        last = {"Last-Event-ID": str(events[-1][0])}
        events.append(read_one(eve.get("/api/v1/chat/stream/cut", stream=True, headers=last)))
    whole = read_events(eve.get("/api/v1/chat/stream/cut", stream=True, headers={"Last-Event-ID": "0"}))
    assert [event for event in events if event is not None] == [(number, name) for name, number, _ in whole if number]
    assert events[-2] is not None and events[-2][1] == "turn_completed"
    assert len(events) > 8
    assert len(eve.read_history("cut")) == 2


@pytest.mark.parametrize("path", POSTS)
def test_body_of_every_route_that_takes_one_is_limited_in_size_and_time(service: Service, path: str) -> None:
    fay = service.client("fay")
    headers = {"Authorization": f"Bearer {fay.token}", "Content-Type": "application/json"}

    def chunks() -> Iterator[bytes]:
        yield b'{"message": "'
        for _ in range(50):
            yield b"x" * 100_000

    for data in (b"x" * (5 * MEGABYTE), chunks()):
        assert requests.post(service.url + path, data=data, headers=headers, timeout=30).status_code == 413
    head = [f"POST {path} HTTP/1.1", "host: x", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", service.port), 20) as slow:
        slow.sendall("\r\n".join([*head, "accept: application/json", "content-length: 100", "", "{"]).encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("path", [*POSTS, "/api/v1/files/check?name=a"])
@pytest.mark.parametrize("token", ["", "mm_wrong"])
def test_who_has_no_key_is_refused_before_the_body_is_read(service: Service, path: str, token: str) -> None:
    key = f"authorization: Bearer {token}\r\n" if token else ""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{key}content-type: application/json\r\ncontent-length: 3000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), 20) as client:
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 401")  # nothing of the body was sent
        client.sendall(b"[" * 3_000_000)  # is read over
        while client.recv(100_000):
            pass
    assert requests.post(service.url + path, data=b"x" * 3_000_000, timeout=30).status_code == 401


QUESTION = '{"model": "massmem", "messages": [{"role": "user", "content": "Why?"}], "message": "Why?", "more": '
HOSTILE_JSON = {
    "deep arrays": "[" * 900 + "]" * 900,
    "very deep arrays": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 900 + "1" + "}" * 900,
    "open arrays": "[" * 3_000_000,
    "many arrays": "[" + "[]," * 1_000_000 + "[]]",
    "many texts": "[" + '"",' * 1_000_000 + '""]',
    "many keys": "{" + ",".join(f'"{i}":1' for i in range(200_000)) + "}",
    "long number": "1" * 1_000_000,
    "large number": "1e999",
    "no number": "[NaN, Infinity]",
    "a key twice": '{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("path", ["/api/v1/chat", "/v1/chat/completions", "/mcp"])
@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_json_that_is_no_honest_question_is_refused_in_few_words(service: Service, path: str, name: str) -> None:
    ida = service.client("ida")
    headers = {"Authorization": f"Bearer {ida.token}", "Content-Type": "application/json", "Accept": "*/*"}
    body = QUESTION + HOSTILE_JSON[name] + "}"
    response = requests.post(service.url + path, body, headers=headers, timeout=60)
    assert response.status_code in (400, 413), response.text
    assert "JSON" in response.text
    assert len(response.content) < 1_000


def test_honest_json_is_read_whatever_its_texts_hold(service: Service) -> None:
    jim = service.client("jim")
    for text in ('[{,\\"' * 100_000 + "?", '"' * 500_000, "\\" * 500_000, "é" * 300_000):
        answer = jim.chat(text)
        assert answer.status_code == 200, answer.text[:300]
        assert jim.read_history(answer.json()["session_id"])[0] == ("user", text)


def test_errors_of_a_body_are_few_words_however_many_it_has(service: Service) -> None:
    kim = service.client("kim")
    for path, body in (
        ("/api/v1/chat", {"message": [{"type": "wrong"}] * 10_000}),
        ("/api/v1/chat", {"message": {str(i): i for i in range(50_000)}}),
        ("/v1/chat/completions", {"model": "massmem", "messages": [{"role": "no", "content": 1}] * 9_000}),
        ("/v1/chat/completions", {"model": "massmem", "messages": [{"role": "user", "content": "a"}] * 30_000}),
        ("/v1/responses", {"model": "massmem", "input": [{"role": 1, "content": [1] * 10}] * 5_000}),
        ("/mcp", [{"jsonrpc": "2.0", "id": i, "method": "ping"} for i in range(10_000)]),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {str(i): i for i in range(50_000)}}),
    ):
        response = kim.post(path, body, headers={"Accept": "application/json, text/event-stream"})
        assert 400 <= response.status_code < 500 or path == "/mcp", response.text[:300]
        assert len(response.content) < 3_000


def test_search_has_a_hundred_words_at_most(service: Service) -> None:
    lea = service.client("lea")
    for path in ("/api/v1/search", "/api/v1/memories/search", "/api/v1/memories/history"):
        for words in ("a " * 101, "a" * 1_001):
            assert lea.get(path, params={"query": words}).status_code == 422


ODD_BODIES = (
    b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"token": 1}', b'{"token": ""}', b'{"token": "\\ud800"}',
    b'{"token": "a\\u0000\\r\\nb"}', b'{"token": "' + b"x" * 10_000 + b'"}', b"[" * 50_000,
    b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}',
)  # fmt: skip


@pytest.mark.parametrize("path", ["/page/enter", "/page/leave", "/mcp"])
def test_odd_bodies_at_routes_without_a_description_are_no_error_of_the_service(service: Service, path: str) -> None:
    """Those with one are tried by schemathesis."""
    for body in ODD_BODIES:
        for more in ({}, {"Authorization": f"Bearer {service.client('odd').token}"}, {"Cookie": "massmem-http=x; ;="}):
            headers = {"X-Massmem-Page": "1", "Content-Type": "application/json", "Accept": "*/*", **more}
            response = requests.post(service.url + path, body, headers=headers, timeout=60)
            assert response.status_code < 500, (body[:60], response.text)


def test_turn_of_a_megabyte_is_asked_streamed_and_read(start_service: StartService) -> None:
    text = "It is blue. " * (900_000 // 12)  # a configuration has a megabyte at most
    config = make_config(make_agent("ann", "", answer=[text], chunk_size=50_000), memory={"enabled": False})
    gus = start_service(config).client("gus")
    question = "Why? " * (MEGABYTE // 5)
    answer = gus.chat(question, "large")
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json()["response"] == text.strip()
    body = {"model": "massmem", "messages": [{"role": "user", "content": question}]}
    completion = gus.post("/v1/chat/completions", body).json()
    assert completion["choices"][0]["message"]["content"] == text.strip()
    assert [len(content) for _, content in gus.read_history("large")] == [len(question), len(text.strip())]
    events = read_events(gus.get("/api/v1/chat/stream/large", stream=True, headers={"Last-Event-ID": "0"}))
    assert events[-1][0] == "turn_completed"


async def store_messages(home: Path, user: str, session_id: str, count: int) -> None:
    store = await open_store(f"sqlite:///{home}/massmem.db", home)
    stored_id = to_stored_id(Owner(user), session_id)
    await store.create_session(SessionRecord(session_id=stored_id, user_id=user, created_at=START, updated_at=START))
    for start in range(0, count, 5_000):
        roles = ("user", "agent")
        batch = [MessageAdded(role=roles[i % 2], text=f"message {i}") for i in range(start, min(start + 5_000, count))]
        await store.append(stored_id, 0, batch)
    await store.close()


def read_page(client: Client, before: int | None) -> list[dict[str, Any]]:
    """Return the 100 messages before this number; None: the newest."""
    where = "" if before is None else f"&before={before}"
    return client.get(f"/api/v1/sessions/long?limit=100{where}").json()["messages"]


@pytest.mark.parametrize(
    "count", [pytest.param(2_000, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.full)]
)
def test_long_session_is_read_in_pages(start_service: StartService, count: int) -> None:
    service = start_service(make_config(memory={"enabled": False}))
    asyncio.run(store_messages(service.home / ".massmem", "hal", "long", count))
    hal = service.client("hal")
    newest = read_page(hal, None)
    assert [message["text"] for message in newest] == [f"message {i}" for i in range(count - 100, count)]
    for start in (newest[0]["seq"], count // 2, 150):
        pages = [read_page(hal, start)]
        pages.insert(0, read_page(hal, pages[0][0]["seq"]))
        numbers = [int(message["text"].removeprefix("message ")) for page in pages for message in page]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no gap and no duplicate"
        assert len(numbers) >= 149
    history = hal.read_history("long")
    assert (len(history), history[-1][1]) == (1_000, f"message {count - 1}")
    assert hal.chat("And now?", "long").status_code == 200


async def ask_over_mcp(service: Service) -> None:
    async with open_http(service, "ida") as client:
        await client.call_tool("ask_council", {"question": "Why?"})


def ask_over_v1(service: Service) -> None:
    body = {"model": "massmem", "messages": [{"role": "user", "content": "Why?"}]}
    service.client("ida").post("/v1/chat/completions", body)


@pytest.mark.parametrize("door", ["v1", "mcp"])
def test_question_that_runs_while_the_service_stops_is_answered_by_the_next_one(
    start_service: StartService, door: str
) -> None:
    agent = make_agent("ann", "It is blue.", latency=2)
    service = start_service(make_config(agent, server={"grace": 0}, memory={"enabled": False}))

    def ask() -> None:
        with suppress(Exception):  # the service ends under it
            ask_over_v1(service) if door == "v1" else asyncio.run(asyncio.wait_for(ask_over_mcp(service), 30))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_until(lambda: bool(service.client("ida").list_sessions()))
    assert service.stop() == 0
    asking.join(60)
    ida = service.start().client("ida")
    (listed,) = ida.list_sessions()
    wait_until(lambda: len(ida.read_history(listed)) == 2, 40)
    assert ida.read_history(listed) == [("user", "Why?"), ("assistant", "It is blue.")]
