"""The application in this process: limits and stores that are unreachable, as clients see them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, MassmemError
from massmem.server.app import create_app
from massmem.server.service import Settings
from tests.support.service import find_free_port, make_config, make_token

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


def test_without_redis_conversations_are_held_in_memory(home: Path) -> None:
    with open_client(home, store={"url": f"redis://127.0.0.1:{find_free_port()}"}) as client:
        answer = client.post("/api/v1/chat", json={"message": "Why?", "session_id": "s"}, headers=ALICE).json()
        assert answer["response"] == "It is blue."
        assert "in memory" in answer["warning"]
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


def test_error_that_keeps_the_application_from_starting_is_reported(home: Path) -> None:
    errors: list[MassmemError] = []
    config = TeamConfig.model_validate(make_config(server={"jwt": {}}))
    with pytest.raises(InputError, match="no secret"), TestClient(create_app(Settings(config, home), errors.append)):
        pass
    assert len(errors) == 1
