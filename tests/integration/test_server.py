"""The service as its users have it, over HTTP to a real process."""

import json
import socket
import sqlite3
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import requests

from tests.support.council_server import CouncilServer, council_server
from tests.support.pictures import PNG, make_pdf
from tests.support.service import Client, Service, make_agent, make_config, make_token, read_events, wait_until


@pytest.fixture(scope="module")
def council() -> Iterator[CouncilServer]:
    """The models of the team `held`."""
    with council_server() as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, council: CouncilServer) -> Iterator[Service]:
    """A service with two agents; the team `slow` takes 1.5 seconds, the team `orders` asks for an order id."""
    folder = tmp_path_factory.mktemp("service")
    teams = {
        "slow": make_config(make_agent("sam", "Slowly.", latency=1.5)),
        "patient": make_config(make_agent("ann", "It is blue."), make_agent("sam", "Slowly.", latency=60)),
        "orders": make_config(
            make_agent(
                "ann", "On its way.", answer=[{"ask": "order_id", "ask_prompt": "Which?", "text": "On its way."}]
            ),
            params={"order_id": {"pattern": r"O-\d{5}"}},
        ),
        "sums": make_config(
            *(make_agent(name, "42") for name in ("ann", "bob", "cid")), coordination={"depth": "adaptive"}
        ),
        "held": make_config(
            {
                "id": "hal",
                "system_message": "hal",
                "backend": {"type": "openai", "model": "stub", "base_url": council.url, "api_key": "test"},
            }
        ),
    }
    for name, team in teams.items():
        (folder / f"{name}.yaml").write_text(json.dumps(team))
    config = make_config(
        make_agent("ann", "It is blue."),
        make_agent("bob", "It is green.", vote=[{"vote_for": "It is blue.", "reason": "because"}]),
        server={
            "teams": {name: str(folder / f"{name}.yaml") for name in teams},
            "limits": {
                "requests": 100_000,
                "body": 10_000,
                "body_timeout": 1,
                "turns_per_user": 2,
                "header_timeout": 1,
            },
        },
    )
    service = Service(folder, config).start()
    yield service
    assert service.stop() == 0
    assert [line for line in service.read_log() if line["level"] == "error"] == []


@pytest.mark.parametrize("path", ["/api/v1/chat", "/api/multi-agent/query"])
def test_all_agents_are_asked_where_the_client_wants_it(service: Service, path: str) -> None:
    ann, asked = service.client("ann"), dict[bool, int]()
    for full in (False, True):
        session_id = f"full-{full}-{path[-4:]}"
        body = {"message" if "chat" in path else "query": "What is 6 x 7?", "team": "sums", "session_id": session_id}
        assert ann.post(path, body | {"full": full}).status_code == 200
        events = ann.get(f"/api/v1/sessions/{session_id}/turns/1").json()["events"]
        asked[full] = sum(event["type"] == "answer_submitted" for event in events)
    assert asked == {False: 2, True: 3}


def test_answer_and_every_view_of_its_conversation(service: Service) -> None:
    ann = service.client("ann")
    response = ann.chat("Why is the sky blue?", "user-1")
    assert response.status_code == 200
    answer = response.json()
    assert abs(time.time() - _parse_time(answer.pop("timestamp"))) < 60
    assert (answer["response"], answer["answer"], answer["status"]) == ("It is blue.", "It is blue.", "completed")
    assert (answer["session_id"], answer["turn"], answer["agent"], answer["agent_id"]) == ("user-1", 1, "ann", "ann")
    stored = ann.get("/api/v1/sessions/user-1/turns/1").json()["turn"]
    assert {name: answer[name] for name in stored} == stored
    query = ann.post("/api/multi-agent/query", {"query": "And at night?", "session_id": "user-1"}).json()
    assert (query["success"], query["content"], query["agent_name"]) == (True, "It is blue.", "ann")
    assert query["agents_used"] == ["ann"]
    messages = [("user", "Why is the sky blue?"), ("assistant", "It is blue."),
                ("user", "And at night?"), ("assistant", "It is blue.")]  # fmt: skip
    assert ann.read_history("user-1") == messages
    conversation = ann.get("/api/conversation/user-1").json()
    assert [(m["role"], m["content"]) for m in conversation["messages"]] == messages
    assert (conversation["message_count"], conversation["agents_used"]) == (4, ["ann"])
    memory = ann.get("/api/ai-memory/conversations/user-1").json()["data"]
    assert [(m["role"], m["content"]) for m in memory["messages"]] == messages
    assert memory["createdAt"] <= memory["messages"][0]["timestamp"] <= memory["updatedAt"]
    assert abs(memory["updatedAt"] / 1000 - time.time()) < 60
    newest = ann.get("/api/v1/chat/history/user-1?limit=1").json()
    assert (newest["count"], newest["messages"][0]["content"]) == (1, "It is blue.")


def _parse_time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_conversations_are_listed_counted_and_deleted(service: Service) -> None:
    lee = service.client("lee")
    assert lee.list_sessions() == []
    for number in range(3):
        assert lee.chat(f"Question {number}?", f"s{number}").status_code == 200
    assert lee.list_sessions() == ["s2", "s1", "s0"]
    page = lee.get("/api/conversations?limit=2&offset=1").json()
    assert [s["session_id"] for s in page["sessions"]] == ["s1", "s0"]
    assert (page["total_sessions"], page["limit"], page["offset"]) == (3, 2, 1)
    first = page["sessions"][1]
    assert (first["query"], first["message_count"], first["agents_used"]) == ("Question 0?", 2, ["ann"])
    assert lee.get("/api/ai-memory/stats").json()["data"] == {
        "activeConversations": 3, "totalMessages": 6, "averageMessagesPerConversation": 2,
        "usingRedis": False, "durable": True,
    }  # fmt: skip
    of_all_users = service.client("lee", "admin").get("/api/ai-memory/stats").json()["data"]
    assert of_all_users["activeConversations"] >= 3
    assert lee.delete("/api/ai-memory/conversations/s1").json() == {
        "success": True, "message": "Conversation s1 cleared",
    }  # fmt: skip
    assert lee.list_sessions() == ["s2", "s0"]
    assert lee.get("/api/v1/chat/history/s1").status_code == 404
    assert lee.delete("/api/ai-memory/conversations/s1").status_code == 404
    assert lee.chat("Again?", "s1").json()["turn"] == 1


SESSION_ROUTES = (
    ("GET", "/api/ai-memory/conversations/{}"),
    ("GET", "/api/conversation/{}"),
    ("GET", "/api/v1/chat/history/{}"),
    ("GET", "/api/v1/chat/stream/{}"),
    ("DELETE", "/api/ai-memory/conversations/{}"),
    ("POST", "/api/v1/chat/{}/now"),
    ("POST", "/api/v1/chat/{}/stop"),
    ("POST", "/api/v1/chat/{}/continue"),
    ("GET", "/api/v1/sessions/{}"),
    ("GET", "/api/v1/sessions/{}/turns/1"),
    ("GET", "/api/v1/sessions/{}/messages/1"),
    ("GET", f"/api/v1/sessions/{{}}/files/{'0' * 64}"),
    ("GET", "/api/v1/sessions/{}/export"),
    ("POST", "/api/v1/sessions/{}/context"),
    ("POST", "/api/v1/sessions/{}/rename"),
    ("POST", "/api/v1/sessions/{}/fork"),
    ("POST", "/api/v1/sessions/{}/version"),
)
ODD_IDS = ("nothing", "..", "%2e%2e%2fetc", "a%00b", "*", "%25", "'--", "x" * 300, "-x", ".x", "ä", "a b", "a%2Fb")


def test_session_of_another_user_looks_like_an_unknown_one(service: Service) -> None:
    """Three users, every route, every id: the response is the same to the byte, with every header."""
    users = {name: service.client(name) for name in ("iso-a", "iso-b", "iso-c")}
    for name, client in users.items():
        for own in (name, "shared"):
            assert client.chat(f"The secret of {name}.", own).status_code == 200
    stored_ids = [s for s in _read_stored_ids(service) if s.partition(".")[2] in {*users, "shared"}]
    for name, client in users.items():
        others = [other for other in users if other != name]
        for method, path in SESSION_ROUTES:
            unknown = _describe(_send(client, method, path.format("unknown")))
            assert unknown[0] == 404
            for foreign in (*others, *stored_ids):
                assert _describe(_send(client, method, path.format(foreign))) == unknown, (path, foreign)
            for odd in ODD_IDS:
                response = _send(client, method, path.format(odd))
                assert response.status_code in (404, 405), (path, odd, response.text)
                assert response.json()["success"] is False
        for path in ("/api/ai-memory/conversations", "/api/conversations?limit=200"):
            text = client.get(path).text
            assert not any(other in text for other in others)
        assert client.get("/api/ai-memory/stats").json()["data"]["activeConversations"] == 2
        assert client.read_history("shared")[0] == ("user", f"The secret of {name}.")
        unknown = _describe(_resume_stream(client, "unknown"))
        assert unknown[0] == 404
        for foreign in (*others, *stored_ids):
            assert _describe(_resume_stream(client, foreign)) == unknown
    # A question under the id of another user's session creates a session.
    assert users["iso-a"].chat("Mine?", "iso-b").json()["turn"] == 1
    assert users["iso-b"].read_history("iso-b")[0] == ("user", "The secret of iso-b.")
    assert len(users["iso-b"].read_history("iso-b")) == 2


def _describe(response: requests.Response) -> tuple[int, bytes, dict[str, str]]:
    # Whether a connection goes on hangs on how much of the body had come when it was answered.
    headers = {k: v for k, v in response.headers.items() if k not in ("date", "connection")}
    return response.status_code, response.content, headers


def _send(client: Client, method: str, path: str) -> requests.Response:
    match method:
        case "GET":
            return client.get(path)
        case "DELETE":
            return client.delete(path)
        case _:
            bodies: dict[str, dict[str, Any]] = {"version": {"turn": 1}, "rename": {"title": "Any"}}
            return client.post(path, bodies.get(path.rpartition("/")[2], {}))


def _resume_stream(client: Client, session_id: str) -> requests.Response:
    body = {"message": "?", "session_id": session_id}
    return client.post("/api/v1/chat/stream", body, headers={"Last-Event-ID": "0"})


def _read_stored_ids(service: Service) -> list[str]:
    connection = sqlite3.connect(service.home / ".massmem" / "massmem.db")
    try:
        return [row[0] for row in connection.execute("SELECT session_id FROM chat_sessions")]
    finally:
        connection.close()


def test_all_routes_that_name_a_session_are_tested_for_isolation(service: Service) -> None:
    paths = service.client("anybody").get("/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    routes = {(method, path) for method, path in routes if "{session_id}" in path}
    tried = {"{session_id}": "{}", "{turn}": "1", "{seq}": "1", "{file_hash}": "0" * 64}
    for name, value in tried.items():
        routes = {(method, path.replace(name, value)) for method, path in routes}
    assert routes == set(SESSION_ROUTES)


def test_question_with_the_same_key_is_asked_once(service: Service) -> None:
    kim = service.client("kim")
    first = kim.chat("Once?", "s", "k1")
    assert first.status_code == 200
    for _ in range(3):
        assert kim.chat("Once?", "s", "k1").json() == first.json()
    assert len(kim.read_history("s")) == 2
    assert kim.chat("Something else?", "s", "k1").status_code == 422
    assert kim.chat("Once?", "s", "k2").json()["turn"] == 2
    assert kim.chat("Once?", "s", "k1").json() == first.json()
    assert kim.chat("Once?", "other", "k1").json()["session_id"] == "other"
    assert service.client("kim-2").chat("Other?", "s", "k1").json()["turn"] == 1
    unnamed = kim.chat("Without a session?", key="k3").json()
    assert kim.chat("Without a session?", key="k3").json() == unnamed
    assert kim.chat("Without a session?").json()["session_id"] != unnamed["session_id"]
    for bad in ("", "x" * 256):
        assert kim.chat("Once?", "s", bad).status_code == 422


def test_question_with_the_same_key_at_the_same_time_is_asked_once(service: Service) -> None:
    clients = [service.client("race") for _ in range(8)]
    body = {"message": "Once?", "session_id": "s", "team": "slow"}
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda client: client.post("/api/v1/chat", body, "k"), clients))
    assert [(r.status_code, r.json()["response"]) for r in responses] == [(200, "Slowly.")] * 8
    assert clients[0].post("/api/v1/chat", body, "k").json()["turn"] == 1
    assert len(clients[0].read_history("s")) == 2


def test_second_question_to_a_busy_session_is_refused(service: Service, council: CouncilServer) -> None:
    bea = service.client("bea")
    body = {"message": "Slow?", "session_id": "s", "team": "held"}
    council.gate.clear()
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        stack.callback(council.gate.set)
        running = pool.submit(bea.post, "/api/v1/chat", body)
        wait_until(lambda: len(bea.read_history("s")) == 1)
        second = service.client("bea").chat("Second?", "s")
        assert (second.status_code, second.headers["Retry-After"]) == (409, "1")
        assert service.client("bea").delete("/api/ai-memory/conversations/s").status_code == 409
        other = pool.submit(service.client("bea").post, "/api/v1/chat", {**body, "session_id": "t"})
        wait_until(lambda: len(bea.read_history("t")) == 1)
        third = service.client("bea").chat("Third?", "u")
        assert (third.status_code, third.headers["Retry-After"]) == (429, "1")
        assert service.client("not bea").chat("Mine?", "u").status_code == 200
        council.gate.set()
        assert running.result().json()["response"] == "answer of hal"
        assert other.result().status_code == 200
    assert len(bea.read_history("s")) == 2


def ask_and_end(service: Service, user: Client, how: str) -> requests.Response:
    """Ask a team that takes long, end the turn by the route `how`, and return the response to the question."""
    body = {"message": "Why?", "session_id": "s", "team": "patient"}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(Client(service.url, user.token).post, "/api/v1/chat", body)
        wait_until(lambda: user.post(f"/api/v1/chat/s/{how}", {}).status_code == 204)
        return running.result()


def test_user_who_does_not_want_to_wait_is_given_the_answers_so_far(service: Service) -> None:
    zoe = service.client("zoe")
    assert ask_and_end(service, zoe, "now").json()["response"] == "It is blue."
    assert zoe.post("/api/v1/chat/s/now", {}).status_code == 422, "no turn is under way"


def test_turn_that_its_user_stops_has_no_answer_and_the_next_question_goes_on(service: Service) -> None:
    tom = service.client("tom")
    stopped = ask_and_end(service, tom, "stop")
    assert (stopped.status_code, stopped.json()["error"]) == (409, "the turn was stopped")
    assert tom.post("/api/v1/chat/s/stop", {}).status_code == 422, "no turn is under way"
    started = time.monotonic()
    assert tom.get("/api/v1/chat/stream/s").status_code == 200
    assert time.monotonic() < started + 20, "nobody waits for a turn that its user stopped"
    assert tom.post("/api/v1/chat", {"message": "And now?", "session_id": "s", "team": "slow"}).status_code == 200


def test_only_configured_teams_can_be_asked(service: Service) -> None:
    tia = service.client("tia")
    slow = tia.post("/api/v1/chat", {"message": "Who?", "session_id": "s", "team": "slow"}).json()
    assert slow["agent"] == "sam"
    assert tia.chat("And now?", "s").json()["agent"] == "sam"
    assert tia.post("/api/v1/chat", {"message": "Who?", "session_id": "t", "team": ""}).status_code == 200
    for name in ("/etc/passwd", "@examples/openai", "fast"):
        body = {"message": "Who?", "session_id": "t", "team": name}
        assert tia.post("/api/v1/chat", body).status_code == 422
    extra = {"message": "Who?", "session_id": "t", "base_url": "http://127.0.0.1:1", "mcp_servers": [{"command": "id"}]}
    refused = tia.post("/api/v1/chat", extra)
    assert (refused.status_code, "body.base_url" in refused.json()["error"]) == (422, True)


def test_reply_to_a_request_for_a_param(service: Service) -> None:
    paul = service.client("paul")
    body = {"message": "Where is my order?", "session_id": "s", "team": "orders"}
    request = paul.post("/api/v1/chat", body).json()
    assert (request["status"], request["waiting_for_param"]) == ("waiting", "order_id")
    assert request["response"] == "Which?"
    body["message"] = "It is O-12345"
    answer = paul.post("/api/v1/chat", body, "k").json()
    assert (answer["status"], answer["waiting_for_param"], answer["turn"]) == ("completed", None, 1)
    assert paul.post("/api/v1/chat", body, "k").json() == answer
    assert "O-12345" not in service.log.read_text()
    events = read_events(paul.get("/api/v1/chat/stream/s", stream=True))
    assert "O-12345" not in json.dumps([data for name, _, data in events if name == "user_replied"])
    assert ("user", "[order_id]") in paul.read_history("s")
    for path in (
        "/api/v1/chat/history/s",
        "/api/conversation/s",
        "/api/ai-memory/conversations/s",
        "/api/v1/sessions/s",
    ):
        assert "O-12345" not in paul.get(path).text


def test_stream_goes_on_after_the_last_event_that_was_read(service: Service) -> None:
    sue = service.client("sue")
    body = {"message": "Why?", "session_id": "s"}
    response = sue.post("/api/v1/chat/stream", body, "k", stream=True)
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert (response.headers["Cache-Control"], response.headers["X-Accel-Buffering"]) == ("no-store", "no")
    events = read_events(response)
    names = [name for name, _, _ in events]
    assert (names[0], names[-1]) == ("turn_started", "turn_completed")
    assert {"agent_delta", "answer_submitted", "ballot_cast", "winner_decided"} <= set(names)
    numbers = [number for _, number, _ in events]
    assert numbers == sorted(set(numbers))
    assert events[0][2]["session_id"] == "s"
    assert (events[-1][2]["answer"], events[-1][2]["type"]) == ("It is blue.", "turn_completed")
    for position in (0, 3, len(events) - 1):
        last = {"Last-Event-ID": str(numbers[position])}
        rest = read_events(sue.post("/api/v1/chat/stream", body, stream=True, headers=last))
        assert rest == events[position + 1 :]
        assert read_events(sue.get("/api/v1/chat/stream/s", stream=True, headers=last)) == rest
    assert read_events(sue.post("/api/v1/chat/stream", body, "k", stream=True)) == events
    assert len(sue.read_history("s")) == 2


def test_turn_goes_on_when_its_connection_is_closed(service: Service) -> None:
    leo = service.client("leo")
    body = {"message": "Why?", "session_id": "s", "team": "slow"}
    response = leo.post("/api/v1/chat/stream", body, stream=True)
    lines = response.iter_lines(decode_unicode=True)
    number = next(line.partition(": ")[2] for line in lines if line.startswith("id: "))
    response.close()
    last = {"Last-Event-ID": number}
    rest = read_events(service.client("leo").get("/api/v1/chat/stream/s", stream=True, headers=last))
    assert rest[-1][0] == "turn_completed"
    assert rest[0][1] > int(number)
    assert leo.read_history("s")[-1] == ("assistant", "Slowly.")


def test_token_counts_only_in_the_authorization_header(service: Service) -> None:
    """As the service reads it from the connection; tests/unit/server/test_auth.py covers the header's content."""
    good = make_token("alice")
    url = f"{service.url}/api/ai-memory/stats"
    assert requests.get(url, headers={"Authorization": f"Bearer {good}"}, timeout=30).status_code == 200
    for parameters, headers in (
        ({"token": good, "access_token": good, "authorization": f"Bearer {good}"}, {}),
        ({}, {"Cookie": f"token={good}; Authorization=Bearer {good}"}),
        ({}, {"X-Authorization": f"Bearer {good}", "Proxy-Authorization": f"Bearer {good}"}),
        ({}, {"Authorization": f"Bearer {good}x"}),
        ({}, {"Authorization": f"Bearer {make_token('alice', 60)[:-8]}"}),
    ):
        response = requests.get(url, params=parameters, headers=headers, timeout=30)
        assert response.status_code == 401
    for lines in (
        [f"authorization: Bearer {good}"] * 2,
        [f"authorization: Bearer {good}", "authorization: Bearer x"],
        ["authorization: Bearer " + "x" * 100_000],
        [f"authorization: Bearer\t{good}"],
    ):
        assert _get_stats_with(lines, service.port) in (400, 401, 431)
    assert _get_stats_with([f"authorization: bearer {good}"], service.port) == 200


def _get_stats_with(headers: list[str], port: int) -> int:
    """Send these lines as they are; return the status."""
    lines = ["GET /api/ai-memory/stats HTTP/1.1", "host: x", *headers, "connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.makefile("rb").readline().split()[1])


def test_every_route_needs_a_token(service: Service) -> None:
    paths = service.client("anybody").get("/openapi.json").json()["paths"]
    assert len(paths) >= 11
    open_paths = {"/healthz", "/readyz"}
    token = make_token("alice")
    for path, methods in paths.items():
        for method in methods:
            url = service.url + path.replace("{session_id}", "s")
            for headers in ({}, {"x-api-key": token}, {"Authorization": token}):
                response = requests.request(method, f"{url}?token={token}", json={}, headers=headers, timeout=30)
                assert (response.status_code == 401) == (path not in open_paths), (path, response.status_code)
                assert path in open_paths or response.headers["WWW-Authenticate"].startswith("Bearer")
                assert path in open_paths or response.json()["error"]
    assert requests.get(f"{service.url}/openapi.json", timeout=30).status_code == 401
    assert service.client("anybody").get("/metrics").status_code == 403


def test_metrics_name_no_user_and_no_text(service: Service) -> None:
    service.client("metered").chat("Count this secret.", "counted-session")
    text = service.client("scraper", "metrics").get("/metrics").text
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
    for word in ("counted-session", "metered", "secret"):
        assert word not in text


def test_body_that_is_too_large_or_too_slow_is_refused(service: Service) -> None:
    ben = service.client("ben")
    assert ben.chat("x" * 20_000, "s").status_code == 413

    def chunks() -> Iterator[bytes]:
        yield b'{"message": "'
        for _ in range(100):
            yield b"x" * 1_000

    headers = {"Authorization": f"Bearer {ben.token}", "Content-Type": "application/json"}
    response = requests.post(f"{service.url}/api/v1/chat", data=chunks(), headers=headers, timeout=30)
    assert response.status_code == 413
    assert response.json() == {"success": False, "error": "the body is too large"}
    with socket.create_connection(("127.0.0.1", service.port)) as slow:
        slow.sendall(
            b"POST /api/v1/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
            + ben.token.encode()
            + b"\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        slow.settimeout(20)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def _receive_all(connection: socket.socket) -> bytes:
    """Return all that is sent before the connection is closed."""
    connection.settimeout(20)
    data = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            data += chunk
    return data


@pytest.mark.parametrize(
    "header", [b"x: " + b"x" * 5_000_000, b"x: y\r\n" * 150, b"x: y\r\n" * 1_000_000], ids=["long", "many", "very many"]
)
def test_header_that_is_too_large_is_refused(service: Service, header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # closed before all was sent
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + header + b"\r\n\r\n")
        data = _receive_all(connection)
    if data:  # unsent data of ours may cost the response
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert json.loads(body) == {"success": False, "error": "the header of the request is too large"}
    assert service.get_status("/healthz") == 200


@pytest.mark.parametrize("start", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: "])
def test_header_that_arrives_byte_by_byte_is_refused(service: Service, start: bytes) -> None:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(start)
        connection.settimeout(0.1)
        data = b""
        while time.monotonic() - started < 20:
            try:
                data = connection.recv(1_000)
                break
            except TimeoutError:
                if start:
                    connection.sendall(b"x")
    assert data.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - started < 15


def test_request_that_is_no_http_is_answered_with_json(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        head, _, body = _receive_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["success"] is False


def test_requests_on_one_connection_are_limited_one_by_one(service: Service) -> None:
    client = service.client("patient")
    for _ in range(3):
        assert client.get("/healthz", headers={"X-Large": "x" * 20_000}).status_code == 200
        time.sleep(0.5)


INVALID: list[Any] = [
    {}, {"message": ""}, {"message": "  "}, {"message": 1}, {"message": "x", "session_id": "../x"},
    {"message": "x", "session_id": ""}, {"message": "x", "session_id": "a..b"}, {"message": "x", "session_id": "a/b"},
    {"message": "x", "session_id": "x" * 101}, {"message": "x", "session_id": "a\u0000b"}, [], "x", None, 1,
    {"message": "x", "session_id": ["a"]}, {"message": "x", "session_id": "\ud800"}, {"message": "\ud800"},
    {"message": "x", "session_id": "．．"},
]  # fmt: skip


@pytest.mark.parametrize("body", INVALID, ids=repr)
def test_invalid_body_is_refused(service: Service, body: Any) -> None:
    response = service.client("invalid").post("/api/v1/chat", body)
    assert response.status_code == 422, response.text
    assert response.json()["success"] is False


@pytest.mark.parametrize(
    "path",
    [
        "/api/conversations?limit=0", "/api/conversations?limit=201", "/api/conversations?limit=x",
        "/api/conversations?offset=-1", "/api/conversations?offset=99999999999999999999",
        "/api/v1/chat/history/s?limit=0", "/api/v1/chat/history/s?limit=1001",
    ],
)  # fmt: skip
def test_parameter_out_of_bounds_is_refused(service: Service, path: str) -> None:
    assert service.client("bounds").get(path).status_code == 422


@pytest.mark.parametrize("text", ["\U0001f600", "\x00", "a\x00b", "𝕏" * 100, "\u202eabc", "'; DROP TABLE x --"])
def test_odd_text_is_an_ordinary_question(service: Service, text: str) -> None:
    ora = service.client("odd")
    response = ora.post("/api/v1/chat", {"message": f"What is {text}?", "session_id": "s"})
    assert response.status_code == 200, response.text
    assert ora.read_history("s")[-1] == ("assistant", "It is blue.")


def test_log_has_neither_texts_nor_names(service: Service) -> None:
    client = service.client("hidden-user")
    client.chat("hidden words", "hidden-session")
    client.read_history("hidden-session")

    def find_lines() -> list[dict[str, Any]]:
        route = "/api/v1/chat/history/{session_id}"
        return [line for line in service.read_log() if (line.get("route"), line.get("status")) == (route, 200)]

    wait_until(lambda: bool(find_lines()))
    text = service.log.read_text()
    for word in ("hidden", client.token, "It is blue"):
        assert word not in text
    assert {"at", "level", "method", "status", "ms", "user", "session"} <= set(find_lines()[-1])


def make_data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def test_question_in_parts_has_texts_pictures_and_files(service: Service) -> None:
    ann = service.client("ann-parts")
    report = make_data_url("application/pdf", make_pdf("Up."))
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": make_data_url("image/png", PNG)}},
        {"type": "file", "file": {"filename": "private/report\x00.pdf", "file_data": report}},
    ]
    body = {"message": parts, "session_id": "in-parts"}
    first = ann.post("/api/v1/chat", body, "key-1")
    assert first.status_code == 200, first.text
    question = "What is it?\n\n--- report.pdf ---\nUp.\n\n[attached: picture 1]"
    assert ann.read_history("in-parts")[0] == ("user", question)
    again = ann.post("/api/v1/chat", body, "key-1")
    assert again.json()["turn"] == first.json()["turn"] == 1
    other = [parts[0], {"type": "image_url", "image_url": {"url": make_data_url("image/png", PNG + b"x")}}, parts[2]]
    assert ann.post("/api/v1/chat", {**body, "message": other}, "key-1").status_code == 422
    asked = ann.post("/api/multi-agent/query", {"query": parts, "session_id": "in-parts"})
    assert asked.json()["query"] == question
    assert service.client("ben-parts").read_history("in-parts") == []


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "is no data: URL"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,????"}}, "is not base64"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}, "is no picture"),
        ({"type": "file", "file": {"filename": "a.bin", "file_data": "data:;base64,AAEC"}}, "a.bin is no text"),
        ({"type": "text", "text": " "}, "the question has no text"),
        ({"type": "audio", "text": "x"}, "body.message"),
    ],
)
def test_part_that_is_wrong_is_refused(part: dict[str, Any], message: str, service: Service) -> None:
    parts = [part] if part["type"] == "text" else [{"type": "text", "text": "Why?"}, part]
    response = service.client("ann-wrong").post("/api/v1/chat", {"message": parts, "session_id": "wrong-part"})
    assert response.status_code == 422
    assert message in response.json()["error"]
    assert service.client("ann-wrong").read_history("wrong-part") == []
