"""The service as its users have it, on a real process: answers, owners, repeated requests, streams, limits, the end."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.service import Answer, Client, Service, agent, events, free_port, team, token


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "slow.yaml").write_text(json.dumps(team(agent("sam", "Slowly.", latency=1.5))))
    config = team(
        agent("ann", "It is blue."),
        agent("bob", "It is green.", vote=[{"vote_for": "It is blue.", "reason": "so it is"}]),
        server={
            "teams": {"slow": str(folder / "slow.yaml")},
            "limits": {"requests": 100_000, "body": 10_000, "body_timeout": 1, "turns_per_user": 2},
        },
    )
    started = Service(folder, config).start()
    yield started
    assert started.stop() == 0
    assert [line for line in started.lines() if line["level"] == "error"] == []


def names(client: Client) -> list[str]:
    return client.get("/api/ai-memory/conversations").json()["data"]


def test_an_answer_and_what_is_kept_of_it(service: Service) -> None:
    ann = service.as_("kept")
    answer = ann.chat("Why is the sky blue?", "user-1")
    assert answer.status_code == 200
    told = answer.json()
    assert {k: told[k] for k in ("session_id", "response", "status", "waiting_for_param", "turn", "agent")} == {
        "session_id": "user-1", "response": "It is blue.", "status": "completed", "waiting_for_param": None,
        "turn": 1, "agent": "ann",
    }  # fmt: skip
    assert (told["confidence"], told["escalated"]) == (1.0, False)
    query = ann.post("/api/multi-agent/query", {"query": "And at night?", "session_id": "user-1"}).json()
    assert (query["success"], query["content"], query["agent_name"]) == (True, "It is blue.", "ann")
    assert sorted(query["agents_used"]) == ["ann", "bob"]
    said = [("user", "Why is the sky blue?"), ("assistant", "It is blue."),
            ("user", "And at night?"), ("assistant", "It is blue.")]  # fmt: skip
    assert ann.history("user-1") == said
    whole = ann.get("/api/conversation/user-1").json()
    assert [(m["role"], m["content"]) for m in whole["messages"]] == said
    assert (whole["message_count"], whole["agents_used"]) == (4, ["ann"])
    memory = ann.get("/api/ai-memory/conversations/user-1").json()["data"]
    assert [(m["role"], m["content"]) for m in memory["messages"]] == said
    assert memory["createdAt"] <= memory["messages"][0]["timestamp"] <= memory["updatedAt"]
    assert abs(memory["updatedAt"] / 1000 - time.time()) < 60
    newest = ann.get("/api/v1/chat/history/user-1?limit=1").json()
    assert (newest["count"], newest["messages"][0]["content"]) == (1, "It is blue.")


def test_lists_and_numbers(service: Service) -> None:
    lee = service.as_("lists")
    assert names(lee) == []
    for number in range(3):
        assert lee.chat(f"Question {number}?", f"s{number}").status_code == 200
    assert names(lee) == ["s2", "s1", "s0"]
    page = lee.get("/api/conversations?limit=2&offset=1").json()
    assert [s["session_id"] for s in page["sessions"]] == ["s1", "s0"]
    assert (page["total_sessions"], page["limit"], page["offset"]) == (3, 2, 1)
    first = page["sessions"][1]
    assert (first["query"], first["message_count"], first["agents_used"]) == ("Question 0?", 2, ["ann"])
    assert lee.get("/api/ai-memory/stats").json()["data"] == {
        "activeConversations": 3, "totalMessages": 6, "averageMessagesPerConversation": 2,
        "usingRedis": False, "durable": True,
    }  # fmt: skip
    all_ = service.as_("lists", "admin").get("/api/ai-memory/stats").json()["data"]
    assert all_["activeConversations"] >= 3
    assert lee.delete("/api/ai-memory/conversations/s1").json() == {
        "success": True, "message": "Conversation s1 cleared",
    }  # fmt: skip
    assert names(lee) == ["s2", "s0"]
    assert lee.get("/api/v1/chat/history/s1").status_code == 404
    assert lee.delete("/api/ai-memory/conversations/s1").status_code == 404
    assert lee.chat("Again?", "s1").json()["turn"] == 1


READS = (
    ("GET", "/api/ai-memory/conversations/{}"),
    ("GET", "/api/conversation/{}"),
    ("GET", "/api/v1/chat/history/{}"),
    ("GET", "/api/v1/chat/stream/{}"),
    ("DELETE", "/api/ai-memory/conversations/{}"),
)
ODD = ("nothing", "..", "%2e%2e%2fetc", "a%00b", "*", "%25", "'--", "x" * 300, "-x", ".x", "ä", "a b", "a%2Fb")


def test_nobody_sees_what_is_somebody_elses(service: Service) -> None:
    """Three users, each route, each id: an id of somebody else is answered as one that nobody has."""
    users = {name: service.as_(name) for name in ("iso-a", "iso-b", "iso-c")}
    for name, client in users.items():
        for own in (name, "shared"):
            assert client.chat(f"The secret of {name}.", own).status_code == 200
    stored = [s for s in _stored_ids(service) if s.partition(".")[2] in {*users, "shared"}]
    for name, client in users.items():
        others = [other for other in users if other != name]
        for method, path in READS:
            unknown = _told(_sent(client, method, path.format("unknown")))
            assert unknown[0] == 404
            for foreign in (*others, *stored):
                # To the byte, with every header: nothing tells that somebody else has it.
                assert _told(_sent(client, method, path.format(foreign))) == unknown, (path, foreign)
            for odd in ODD:
                answer = _sent(client, method, path.format(odd))
                assert answer.status_code in (404, 405), (path, odd, answer.text)
                assert answer.json()["success"] is False
        for path in ("/api/ai-memory/conversations", "/api/conversations?limit=200"):
            text = client.get(path).text
            assert not any(other in text for other in others)
        assert client.get("/api/ai-memory/stats").json()["data"]["activeConversations"] == 2
        assert client.history("shared")[0] == ("user", f"The secret of {name}.")
        for other in (*others, *stored):
            found = client.post(
                "/api/v1/chat/stream", {"message": "?", "session_id": other}, headers={"Last-Event-ID": "0"}
            )
            nobodys = client.post(
                "/api/v1/chat/stream", {"message": "?", "session_id": "x"}, headers={"Last-Event-ID": "0"}
            )
            assert _told(found) == _told(nobodys)
            assert found.status_code == 404
    # To ask under an id of somebody else makes a session of one's own.
    assert users["iso-a"].chat("Mine?", "iso-b").json()["turn"] == 1
    assert users["iso-b"].history("iso-b")[0] == ("user", "The secret of iso-b.")
    assert len(users["iso-b"].history("iso-b")) == 2


def _told(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    return answer.status_code, answer.content, {name: v for name, v in answer.headers.items() if name != "date"}


def _sent(client: Client, method: str, path: str) -> Answer:
    return client.get(path) if method == "GET" else client.delete(path)


def _stored_ids(service: Service) -> list[str]:
    import sqlite3

    connection = sqlite3.connect(service.home / ".massmem" / "massmem.db")
    try:
        return [row[0] for row in connection.execute("SELECT session_id FROM chat_sessions")]
    finally:
        connection.close()


def test_the_same_key_is_the_same_question(service: Service) -> None:
    kim = service.as_("key")
    first = kim.chat("Once?", "s", "k1")
    assert first.status_code == 200
    for _ in range(3):
        assert kim.chat("Once?", "s", "k1").json() == first.json()
    assert len(kim.history("s")) == 2
    assert kim.chat("Something else?", "s", "k1").status_code == 422
    assert kim.chat("Once?", "s", "k2").json()["turn"] == 2
    assert kim.chat("Once?", "s", "k1").json() == first.json()
    assert kim.chat("Once?", "other", "k1").json()["session_id"] == "other"
    assert service.as_("key-2").chat("Other?", "s", "k1").json()["turn"] == 1
    unnamed = kim.chat("Without a session?", key="k3").json()
    assert kim.chat("Without a session?", key="k3").json() == unnamed
    assert kim.chat("Without a session?").json()["session_id"] != unnamed["session_id"]
    for bad in ("", "x" * 256):
        assert kim.chat("Once?", "s", bad).status_code == 422


def test_the_same_key_at_the_same_time(service: Service) -> None:
    clients = [service.as_("race") for _ in range(8)]
    body = {"message": "Once?", "session_id": "s", "team": "slow"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda c: c.post("/api/v1/chat", body, "k"), clients))
    done = [a.json()["response"] for a in answers if a.status_code == 200]
    assert done
    assert set(done) == {"Slowly."}
    assert {a.status_code for a in answers} == {200}
    assert clients[0].post("/api/v1/chat", body, "k").json()["turn"] == 1
    assert len(clients[0].history("s")) == 2


def test_a_second_question_waits_for_nobody(service: Service) -> None:
    bea = service.as_("busy")
    slow = {"message": "Slow?", "session_id": "s", "team": "slow"}
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(bea.post, "/api/v1/chat", slow)
        _until(lambda: len(bea.history("s")) == 1)
        second = service.as_("busy").chat("Second?", "s")
        assert (second.status_code, second.headers["Retry-After"]) == (409, "1")
        assert service.as_("busy").delete("/api/ai-memory/conversations/s").status_code == 409
        other = pool.submit(service.as_("busy").post, "/api/v1/chat", {**slow, "session_id": "t"})
        _until(lambda: len(bea.history("t")) == 1)
        third = service.as_("busy").chat("Third?", "u")
        assert (third.status_code, third.headers["Retry-After"]) == (429, "1")
        assert service.as_("not busy").chat("Mine?", "u").status_code == 200
        assert running.result().json()["response"] == "Slowly."
        assert other.result().status_code == 200
    assert len(bea.history("s")) == 2


def _until(true: Any) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_teams_are_those_that_are_configured(service: Service) -> None:
    tia = service.as_("team")
    slow = tia.post("/api/v1/chat", {"message": "Who?", "session_id": "s", "team": "slow"}).json()
    assert slow["agent"] == "sam"
    assert tia.chat("And now?", "s").json()["agent"] == "sam"
    for odd in ("/etc/passwd", "@examples/openai", "", "fast"):
        answer = tia.post("/api/v1/chat", {"message": "Who?", "session_id": "t", "team": odd})
        assert answer.status_code in (200, 422)
        assert (answer.status_code == 200) == (odd == "")
    extra = {"message": "Who?", "session_id": "t", "base_url": "http://127.0.0.1:1", "mcp_servers": [{"command": "id"}]}
    assert tia.post("/api/v1/chat", extra).json()["response"] == "It is blue."


def test_a_stream_and_the_rest_of_it(service: Service) -> None:
    sue = service.as_("stream")
    body = {"message": "Why?", "session_id": "s"}
    answer = sue.post("/api/v1/chat/stream", body, "k", stream=True)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = events(answer)
    kinds = [name for name, _, _ in found]
    assert (kinds[0], kinds[-1]) == ("turn_started", "turn_completed")
    assert {"agent_delta", "answer_submitted", "ballot_cast", "winner_decided"} <= set(kinds)
    numbers = [number for _, number, _ in found]
    assert numbers == sorted(set(numbers))
    assert found[0][2]["session_id"] == "s"
    assert (found[-1][2]["answer"], found[-1][2]["type"]) == ("It is blue.", "turn_completed")
    for place in (0, 3, len(found) - 1):
        last = {"Last-Event-ID": str(numbers[place])}
        rest = events(sue.post("/api/v1/chat/stream", body, stream=True, headers=last))
        assert [n for _, n, _ in rest] == numbers[place + 1 :]
        assert events(sue.get("/api/v1/chat/stream/s", stream=True, headers=last)) == rest
    assert events(sue.post("/api/v1/chat/stream", body, "k", stream=True)) == found
    assert len(sue.history("s")) == 2
    foreign = service.as_("somebody").post("/api/v1/chat/stream", body, headers={"Last-Event-ID": "0"})
    assert foreign.status_code == 404


def test_a_turn_outlives_its_connection(service: Service) -> None:
    leo = service.as_("leaves")
    body = {"message": "Why?", "session_id": "s", "team": "slow"}
    answer = leo.post("/api/v1/chat/stream", body, stream=True)
    lines = answer.iter_lines(decode_unicode=True)
    number = next(line.partition(": ")[2] for line in lines if line.startswith("id: "))
    answer.close()
    rest = events(service.as_("leaves").get("/api/v1/chat/stream/s", stream=True, headers={"Last-Event-ID": number}))
    assert rest[-1][0] == "turn_completed"
    assert rest[0][1] > int(number)
    assert leo.history("s")[-1] == ("assistant", "Slowly.")


def test_every_route_that_names_a_session_is_tried(service: Service) -> None:
    """A route that is added is one that the tests above must know."""
    routes = service.as_("anybody").get("/openapi.json").json()["paths"]
    named = {(method.upper(), path) for path, methods in routes.items() for method in methods if "{" in path}
    assert named == {(method, path.replace("{}", "{session_id}")) for method, path in READS}


def test_tokens_that_do_not_count_over_http(service: Service) -> None:
    """As the service reads them from the connection; the matrix of tests/unit/server/test_auth.py is of one header."""
    good = token("alice")
    url = f"{service.url}/api/ai-memory/stats"
    assert requests.get(url, headers={"Authorization": f"Bearer {good}"}, timeout=30).status_code == 200
    for parameters, headers in (
        ({"token": good, "access_token": good, "authorization": f"Bearer {good}"}, {}),
        ({}, {"Cookie": f"token={good}; Authorization=Bearer {good}"}),
        ({}, {"X-Authorization": f"Bearer {good}", "Proxy-Authorization": f"Bearer {good}"}),
        ({}, {"Authorization": f"Bearer {good}x"}),
        ({}, {"Authorization": f"Bearer {token('alice', 60)[:-8]}"}),
    ):
        answer = requests.get(url, params=parameters, headers=headers, timeout=30)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    for lines in (
        [f"authorization: Bearer {good}"] * 2,
        [f"authorization: Bearer {good}", "authorization: Bearer x"],
        ["authorization: Bearer " + "x" * 100_000],
        [f"authorization: Bearer\t{good}"],
    ):
        assert _status_of("GET /api/ai-memory/stats HTTP/1.1", ["host: x", *lines], service.port) in (400, 401, 431)
    assert (
        _status_of("GET /api/ai-memory/stats HTTP/1.1", ["host: x", f"authorization: bearer {good}"], service.port)
        == 200
    )


def _status_of(request: str, headers: list[str], port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall("\r\n".join([request, *headers, "connection: close", "", ""]).encode())
        return int(connection.makefile("rb").readline().split()[1])


def test_every_route_needs_a_token(service: Service) -> None:
    routes = service.as_("anybody").get("/openapi.json").json()["paths"]
    assert len(routes) >= 11
    open_ = {"/healthz", "/readyz"}
    for path, methods in routes.items():
        for method in methods:
            url = service.url + path.replace("{session_id}", "s")
            for headers in ({}, {"x-api-key": token("alice")}, {"Authorization": token("alice")}):
                answer = requests.request(method, f"{url}?token={token('alice')}", json={}, headers=headers, timeout=30)
                assert (answer.status_code == 401) == (path not in open_), (path, answer.status_code)
                assert path in open_ or answer.headers["WWW-Authenticate"] == "Bearer"
                assert path in open_ or answer.json()["success"] is False
    assert requests.get(f"{service.url}/openapi.json", timeout=30).status_code == 401
    assert service.as_("anybody").get("/metrics").status_code == 401


def test_numbers_for_prometheus(service: Service) -> None:
    service.as_("numbers").chat("Count this secret.", "counted-session")
    text = service.as_("scraper", "metrics").get("/metrics").text
    for name in (
        'massmem_requests_total{method="POST",route="/api/v1/chat",status="200"}',
        'massmem_turns_total{outcome="completed"}',
        'massmem_tokens_total{direction="in"}',
        "massmem_request_seconds_bucket",
        'massmem_recordings{status="pending"}',
        'massmem_recordings{status="failed"}',
        "massmem_compressed_tokens_total",
        "massmem_turn_seconds_bucket",
        "massmem_streams 0.0",
        "massmem_turns_running 0.0",
    ):
        assert name in text, name
    for word in ("counted-session", "numbers", "secret"):
        assert word not in text


def test_bodies_that_are_too_large_or_too_slow(service: Service) -> None:
    ben = service.as_("bodies")
    assert ben.chat("x" * 20_000, "s").status_code == 413

    def chunks() -> Iterator[bytes]:
        yield b'{"message": "'
        for _ in range(100):
            yield b"x" * 1_000

    headers = {"Authorization": f"Bearer {ben.token}", "Content-Type": "application/json"}
    answer = requests.post(f"{service.url}/api/v1/chat", data=chunks(), headers=headers, timeout=30)
    assert answer.status_code == 413
    with socket.create_connection(("127.0.0.1", service.port)) as slow:
        slow.sendall(
            b"POST /api/v1/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
            + ben.token.encode()
            + b"\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        slow.settimeout(20)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


INVALID: list[Any] = [
    {}, {"message": ""}, {"message": "  "}, {"message": 1}, {"message": "x", "session_id": "../x"},
    {"message": "x", "session_id": ""}, {"message": "x", "session_id": "a..b"}, {"message": "x", "session_id": "a/b"},
    {"message": "x", "session_id": "x" * 101}, {"message": "x", "session_id": "a\u0000b"}, [], "x", None, 1,
    {"message": "x", "session_id": ["a"]}, {"message": "x", "session_id": "\ud800"}, {"message": "\ud800"},
    {"message": "x", "session_id": "．．"},
]  # fmt: skip


@pytest.mark.parametrize("body", INVALID, ids=repr)
def test_what_is_not_valid(service: Service, body: Any) -> None:
    answer = service.as_("invalid").post("/api/v1/chat", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["success"] is False


@pytest.mark.parametrize(
    "path",
    [
        "/api/conversations?limit=0", "/api/conversations?limit=201", "/api/conversations?limit=x",
        "/api/conversations?offset=-1", "/api/conversations?offset=99999999999999999999",
        "/api/v1/chat/history/s?limit=0", "/api/v1/chat/history/s?limit=1001",
    ],
)  # fmt: skip
def test_bounds(service: Service, path: str) -> None:
    assert service.as_("bounds").get(path).status_code == 422


@pytest.mark.parametrize("text", ["\U0001f600", "\x00", "a\x00b", "𝕏" * 100, "\u202eabc", "'; DROP TABLE x --"])
def test_odd_text_is_an_ordinary_question(service: Service, text: str) -> None:
    ora = service.as_("odd")
    answer = ora.post("/api/v1/chat", {"message": f"What is {text}?", "session_id": "s"})
    assert answer.status_code == 200, answer.text
    assert ora.history("s")[-1] == ("assistant", "It is blue.")


def test_the_log_says_nothing_that_was_said(service: Service) -> None:
    client = service.as_("hidden-user")
    client.chat("hidden words", "hidden-session")
    client.history("hidden-session")
    _until(lambda: any(line.get("route") == "/api/v1/chat/history/{session_id}" for line in service.lines()))
    text = service.log.read_text()
    for word in ("hidden", client.token, "It is blue"):
        assert word not in text
    line = next(line for line in service.lines() if line.get("route") == "/api/v1/chat/history/{session_id}")
    assert {"at", "level", "method", "status", "ms", "user", "session"} <= set(line)


def test_a_value_that_only_the_user_knows(tmp_path: Path) -> None:
    config = team(
        agent(
            "ann",
            "It is on its way.",
            answer=[{"ask": "order_id", "ask_prompt": "Which?", "text": "It is on its way."}],
        ),
        params={"order_id": {"pattern": r"O-\d{5}"}},
    )
    started = Service(tmp_path, config).start()
    try:
        paul = started.as_("paul")
        asked = paul.chat("Where is my order?", "s").json()
        assert (asked["status"], asked["waiting_for_param"]) == ("waiting", "order_id")
        assert asked["response"] == "Which?"
        given = paul.chat("It is O-12345", "s", "k").json()
        assert (given["status"], given["waiting_for_param"], given["turn"]) == ("completed", None, 1)
        assert paul.chat("It is O-12345", "s", "k").json() == given
        assert "O-12345" not in started.log.read_text()
        stream = events(paul.get("/api/v1/chat/stream/s", stream=True))
        assert "O-12345" not in json.dumps([data for name, _, data in stream if name == "user_replied"])
    finally:
        started.stop()


def test_too_many_requests(tmp_path: Path) -> None:
    started = Service(tmp_path, team(server={"limits": {"requests": 5}})).start()
    try:
        rita = started.as_("rita")
        answers = [rita.get("/api/ai-memory/stats") for _ in range(8)]
        assert [a.status_code for a in answers[:5]] == [200] * 5
        assert answers[-1].status_code == 429
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 61
        assert started.as_("sam").get("/api/ai-memory/stats").status_code == 200
    finally:
        started.stop()


def test_the_end_in_good_order(tmp_path: Path) -> None:
    """SIGTERM: what can end within the time ends; the rest is handed over, streams say so, and the next one goes on."""
    slow = team(agent("ann", "Done.", latency=0.5, chunk_delay=1.0, chunk_size=1), server={"grace": 0.3})
    first, second = (Service(tmp_path, slow, name) for name in ("first", "second"))
    first.start()
    gwen = first.as_("gwen")
    found: list[tuple[str, int, dict[str, Any]]] = []
    body = {"message": "Why?", "session_id": "s"}
    thread = threading.Thread(
        target=lambda: found.extend(events(gwen.post("/api/v1/chat/stream", body, "k", stream=True)))
    )
    thread.start()
    _until(lambda: len(first.as_("gwen").history("s")) == 1)
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)
    thread.join(30)
    assert first.stop() == 0
    assert found[-1][0] == "turn_interrupted"
    second.start()
    rest = second.as_("gwen").get("/api/v1/chat/stream/s", stream=True, headers={"Last-Event-ID": str(found[-1][1])})
    kinds = [name for name, _, _ in events(rest)]
    assert (kinds[0], kinds[-1]) == ("turn_resumed", "turn_completed")
    assert second.as_("gwen").history("s") == [("user", "Why?"), ("assistant", "Done.")]
    assert second.as_("gwen").chat("Why?", "s", "k").json()["response"] == "Done."
    assert second.stop() == 0


def test_several_processes(tmp_path: Path) -> None:
    started = Service(tmp_path, team()).start("--workers", "2")
    try:
        wes = started.as_("wes")
        for number in range(6):
            assert started.as_("wes").chat(f"Question {number}?", f"s{number}").status_code == 200
        assert len(names(wes)) == 6
        text = started.as_("scraper", "metrics").get("/metrics").text
        assert 'massmem_turns_total{outcome="completed"} 6.0' in text
    finally:
        assert started.stop() == 0


@pytest.mark.parametrize(
    ("server", "said"),
    [({"jwt": {}}, "secret"), ({"jwt": {"secret": "tiny"}}, "32 bytes"), ({"jwt": {"algorithm": "RS256"}}, "keys")],
)
def test_without_a_good_secret_nothing_is_served(tmp_path: Path, server: dict[str, Any], said: str) -> None:
    started = Service(tmp_path, {"agents": [agent("ann", "x")], "server": server})
    started.start(wait=False)
    assert started.process is not None
    assert started.process.wait(60) == 2
    assert said in started.log.read_text()


def test_redis_that_is_down_at_the_start(tmp_path: Path) -> None:
    down = team(store={"url": f"redis://127.0.0.1:{free_port()}"})
    started = Service(tmp_path, down).start()
    try:
        dee = started.as_("dee")
        told = dee.chat("Why?", "s").json()
        assert told["response"] == "It is blue."
        assert "in memory" in told["warning"]
        numbers = dee.get("/api/ai-memory/stats").json()["data"]
        assert (numbers["usingRedis"], numbers["durable"], numbers["totalMessages"]) == (False, False, 2)
    finally:
        assert started.stop() == 0
