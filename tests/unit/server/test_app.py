"""The application in this process: limits and stores that are unreachable, as clients see them."""

import json
import logging
import re
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, MassmemError, ProviderError
from massmem.core.records import Owner
from massmem.server.app import create_app
from massmem.server.metrics import JsonFormatter
from massmem.server.service import Settings
from massmem.session.owners import to_stored_id
from massmem.telemetry import hash_name
from tests.support.service import find_free_port, make_agent, make_config, make_token, wait_until

ALICE = {"Authorization": f"Bearer {make_token('alice')}"}
BOB = {"Authorization": f"Bearer {make_token('bob')}"}
STATS = "/api/ai-memory/stats"


@contextmanager
def open_client(home: Path, **sections: Any) -> Generator[TestClient]:
    errors: list[MassmemError] = []
    config = TeamConfig.model_validate(make_config(**sections))
    with TestClient(create_app(Settings(config, home), errors.append)) as client:
        yield client
    assert errors == []


def test_requests_beyond_the_limit_are_refused(home: Path) -> None:
    with open_client(home, server={"limits": {"requests": 2}}) as client:
        responses = [client.get(STATS, headers=ALICE) for _ in range(3)]
        assert [response.status_code for response in responses] == [200, 200, 429]
        assert 1 <= int(responses[-1].headers["Retry-After"]) <= 61
        assert client.get(STATS, headers=BOB).status_code == 200


def test_security_headers_are_sent_with_every_response(home: Path) -> None:
    with open_client(home) as client:
        for path in ("/healthz", "/nowhere", STATS):
            headers = client.get(path).headers
            assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")


def test_all_methods_of_a_path_are_allowed_and_named(home: Path) -> None:
    with open_client(home) as client:
        for path, methods in (
            ("/healthz", "GET, HEAD"),
            ("/api/v1/chat", "POST"),
            ("/api/ai-memory/conversations/s", "DELETE, GET, HEAD"),
        ):
            response = client.put(path, headers=ALICE)
            assert (response.status_code, response.headers["Allow"]) == (405, methods)
            assert response.json()["success"] is False


def test_head_is_answered_as_get_without_a_body(home: Path) -> None:
    with open_client(home) as client:
        client.post("/api/v1/chat", json={"message": "Why?", "session_id": "s"}, headers=ALICE)
        for path in ("/healthz", STATS, "/api/v1/chat/history/s", "/api/v1/chat/history/unknown", "/nowhere"):
            head, get = client.head(path, headers=ALICE), client.get(path, headers=ALICE)
            assert (head.status_code, head.content) == (get.status_code, b"")
            assert head.headers["Content-Length"] == get.headers["Content-Length"]
        stream = client.head("/api/v1/chat/stream/s", headers=ALICE)
        assert (stream.status_code, stream.content) == (200, b"")


def test_slash_at_the_end_is_another_path(home: Path) -> None:
    with open_client(home) as client:
        response = client.get(f"{STATS}/", headers=ALICE, follow_redirects=False)
        assert (response.status_code, response.json()["success"]) == (404, False)


def test_token_without_the_scope_is_forbidden_to_read_metrics(home: Path) -> None:
    with open_client(home) as client:
        response = client.get("/metrics", headers=ALICE)
        assert response.status_code == 403
        assert 'error="insufficient_scope"' in response.headers["WWW-Authenticate"]
        assert 'scope="metrics"' in response.headers["WWW-Authenticate"]
        scraper = {"Authorization": f"Bearer {make_token('alice', scope='metrics')}"}
        assert client.get("/metrics", headers=scraper).status_code == 200


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ({}, "Bearer"),
        ({"Authorization": "Basic YTpi"}, "Bearer"),
        ({"Authorization": "Bearer x"}, 'Bearer error="invalid_token", error_description="the token is not valid"'),
    ],
)
def test_refusal_says_what_is_wrong_with_the_token(home: Path, headers: dict[str, str], challenge: str) -> None:
    with open_client(home) as client:
        response = client.get(STATS, headers=headers)
        assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, challenge)


def test_unknown_team_is_not_repeated(home: Path) -> None:
    with open_client(home) as client:
        response = client.post("/api/v1/chat", json={"message": "Why?", "team": "<secret>"}, headers=ALICE)
        assert (response.status_code, response.json()["error"]) == (422, "there is no such team")


def test_pages_of_other_origins_may_call_the_service_only_where_configured(home: Path) -> None:
    page, other = "https://app.example.com", "https://evil.example.com"
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with open_client(home) as client:
        for response in (
            client.get(STATS, headers=ALICE | {"Origin": page}),
            client.options("/api/v1/chat", headers=preflight | {"Origin": page}),
        ):
            assert not [name for name in response.headers if name.startswith("access-control")]
    with open_client(home, server={"cors": {"origins": [page]}}) as client:
        response = client.get(STATS, headers=ALICE | {"Origin": page})
        assert response.headers["Access-Control-Allow-Origin"] == page
        allowed = client.options("/api/v1/chat", headers=preflight | {"Origin": page})
        assert (allowed.status_code, allowed.headers["Access-Control-Allow-Origin"]) == (200, page)
        refused = client.options("/api/v1/chat", headers=preflight | {"Origin": other})
        assert refused.status_code == 400
        assert "Access-Control-Allow-Origin" not in client.get(STATS, headers=ALICE | {"Origin": other}).headers


def test_openapi_document_describes_every_operation_and_gives_examples(home: Path) -> None:
    with open_client(home) as client:
        document = client.get("/openapi.json", headers=ALICE).json()
    assert document["servers"] == [{"url": "http://testserver"}]
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    identifiers = [operation["operationId"] for operation in operations]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch("[a-z_]+", identifier) and len(identifier) < 20 for identifier in identifiers)
    assert all(operation["description"] for operation in operations)
    for operation in operations:
        assert all(parameter["description"] for parameter in operation.get("parameters", []))
    schemas = document["components"]["schemas"]
    for name, field in (("ChatRequest", "message"), ("QueryRequest", "query"), ("ChatAnswer", "response")):
        assert schemas[name]["properties"][field]["examples"], (name, field)


def walk_unbounded(document: dict[str, Any], schema: dict[str, Any], place: str) -> Iterator[str]:
    """Yield what of a value that a request sends may be as long as its body."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from walk_unbounded(document, part, place)
    bound = {"string": {"maxLength", "enum", "const", "format"}, "array": {"maxItems"}}
    bound["object"] = {"properties", "maxProperties"}
    if schema.get("type") in bound and not bound[schema["type"]] & schema.keys():
        yield place
    if "items" in schema:
        yield from walk_unbounded(document, schema["items"], f"{place}[]")
    for name, field in schema.get("properties", {}).items():
        yield from walk_unbounded(document, field, f"{place}.{name}")


def test_every_text_and_list_of_a_request_is_bounded(home: Path) -> None:
    """A body that is not JSON is a file, which has the bound of all bodies."""
    with open_client(home) as client:
        document = client.get("/openapi.json", headers=ALICE).json()
    places = [
        place
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for values in (
            *((p["schema"], f"{path} {p['name']}") for p in operation.get("parameters", [])),
            *(
                (content["schema"], path)
                for name, content in operation.get("requestBody", {}).get("content", {}).items()
                if name == "application/json"
            ),
        )
        for place in walk_unbounded(document, *values)
    ]
    assert places == []


def test_without_redis_conversations_are_held_in_memory(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_client(home, store={"url": f"redis://127.0.0.1:{find_free_port()}"}) as client:
        answer = client.post("/api/v1/chat", json={"message": "Why?", "session_id": "s"}, headers=ALICE).json()
        assert answer["response"] == "It is blue."
        assert "in memory" in answer["warning"]
        assert "in memory" in caplog.text
        stats = client.get(STATS, headers=ALICE).json()["data"]
        assert (stats["usingRedis"], stats["durable"], stats["totalMessages"]) == (False, False, 2)


def test_unreachable_store_leaves_the_application_alive_but_not_ready(home: Path) -> None:
    store = {"url": f"redis://127.0.0.1:{find_free_port()}", "on_unavailable": "fail"}
    with open_client(home, store=store) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        response = client.get(STATS, headers=ALICE)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
        assert response.json() == {"success": False, "error": "the service cannot answer yet"}


def test_readiness_waits_for_no_store_that_is_held_up(home: Path) -> None:
    with open_client(home) as client:
        assert client.portal is not None
        application: Any = client.app
        database, release = application.state.service.team.store._database, threading.Event()

        def hold_up(_: object) -> None:
            release.wait()

        for _ in range(20):
            client.portal.start_task_soon(database.read, hold_up)
        started = time.monotonic()
        response = client.get("/readyz")
        assert time.monotonic() - started < 30
        assert (response.status_code, response.json()["checks"]["store"]) == (503, "no reply in 0.7 s")
        release.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)


def test_failed_turn_leaves_its_reason_in_the_log(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(make_agent("ann", "x", answer=[{"error": "auth"}]))
    with open_client(home, agents=config["agents"]) as client:
        response = client.post("/api/v1/chat", json={"message": "Why?"}, headers=ALICE)
        assert response.status_code in (502, 503)
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    [agent] = [line for line in lines if line["message"].startswith("an agent failed: ")]
    assert (agent["agent"], agent["step"], agent["message"]) == (
        "ann",
        "answer",
        "an agent failed: AuthenticationError",
    )
    assert any(line["message"] == "a turn failed" for line in lines)


def test_log_quotes_no_message_of_an_error_and_of_a_library() -> None:
    error = ProviderError("the provider refused: my door code is 4711")
    for name, message, args in (
        ("massmem.turn.request", "could not be continued: %s", (error,)),
        ("mcp.server", "failed to read my door code is 4711", ()),
        ("mcp.server", "failed to read %s", ("my door code is 4711",)),
    ):
        record = logging.LogRecord(name, logging.WARNING, __file__, 1, message, args, (type(error), error, None))
        assert "4711" not in JsonFormatter().format(record)


def test_log_hides_keys_in_messages() -> None:
    record = logging.makeLogRecord({"name": "massmem", "msg": "refused: api_key=sk-ant-0123456789abcdef0123"})
    assert "sk-ant" not in JsonFormatter().format(record)


def test_log_hides_session_ids_in_messages() -> None:
    record = logging.makeLogRecord(
        {"name": "massmem", "msg": f"{to_stored_id(Owner('alice'), 'my-divorce')} turn 2 not recorded"}
    )
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == f"{hash_name('my-divorce')} turn 2 not recorded"


def test_error_that_keeps_the_application_from_starting_is_reported(home: Path) -> None:
    errors: list[MassmemError] = []
    config = TeamConfig.model_validate(make_config(server={"jwt": {}}))
    with pytest.raises(InputError, match="no secret"), TestClient(create_app(Settings(config, home), errors.append)):
        pass
    assert len(errors) == 1
