"""What one user may have in the store: refused beyond it in one sentence, shown, and free again after a deletion."""

import os
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.test_mcp_server import open_http
from tests.support.pictures import PNG
from tests.support.service import Client, Service, StartService, make_config

QUOTA = 2_000_000


def start_with_quotas(start_service: StartService, **limits: int) -> Service:
    return start_service(make_config(server={"limits": limits}, memory={"enabled": False}))


def ask_with_picture(client: Client, session_id: str, size: int = 900_000) -> Any:
    picture = f"data:image/png;base64,{b64encode(PNG + os.urandom(size)).decode()}"
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": picture}}]
    return client.post("/api/v1/chat", {"message": parts, "session_id": session_id})


def read_usage(client: Client) -> dict[str, Any]:
    return client.get("/api/v1/about").json()["usage"]


def test_bytes_of_a_user_are_limited_however_many_questions_come_at_once(start_service: StartService) -> None:
    service = start_with_quotas(start_service, bytes_per_user=QUOTA, turns_per_user=20)
    ada, bob = service.client("ada"), service.client("bob")

    def ask(number: int) -> int:
        return ask_with_picture(service.client("ada"), f"s{number}").status_code

    with ThreadPoolExecutor(6) as pool:
        assert {*pool.map(ask, range(6))} <= {200, 413}
    assert read_usage(ada)["bytes"] <= QUOTA
    while (answer := ask_with_picture(ada, "more")).status_code == 200:
        assert read_usage(ada)["bytes"] <= QUOTA
    assert answer.status_code == 413
    assert f"of the {QUOTA:,} bytes of conversations that a user may have" in answer.json()["error"]
    assert "delete some of them" in answer.json()["error"]
    assert ask_with_picture(bob, "s").status_code == 200
    for session_id in ada.list_sessions():
        assert ada.delete(f"/api/ai-memory/conversations/{session_id}").status_code == 200
    assert read_usage(ada) == {**read_usage(ada), "bytes": 0, "sessions": 0, "messages": 0, "max_bytes": QUOTA}
    assert ask_with_picture(ada, "again").status_code == 200


async def test_sessions_of_a_user_are_limited_at_every_door(start_service: StartService) -> None:
    service = start_with_quotas(start_service, sessions_per_user=2)
    cem = service.client("cem")
    for session_id in ("a", "b"):
        assert cem.chat("Why?", session_id).status_code == 200
    export = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    completion = {"model": "massmem", "messages": [{"role": "user", "content": "Why?"}]}
    for response in (
        cem.chat("Why?"),
        cem.post("/api/v1/chat/stream", {"message": "Why?"}),
        cem.post("/api/multi-agent/query", {"query": "Why?"}),
        cem.post("/v1/chat/completions", completion),
        cem.post("/v1/chat/completions", {**completion, "stream": True}),
        cem.post("/api/v1/sessions/a/fork", {}),
        cem.post("/api/v1/sessions/import", export),
    ):
        assert response.status_code == 413, response.text
        assert "you have 2 of the 2 conversations that a user may have: delete some of them" in response.text
    async with open_http(service, "cem") as client:
        result = await client.call_tool("ask_council", {"question": "Why?"})
        assert result.is_error
        assert "delete some of them" in str(result.content)
    assert cem.chat("And now?", "a").status_code == 200, "what there is goes on"
    assert len(cem.list_sessions()) == 2


async def test_whoever_has_too_much_already_adds_nothing_more(start_service: StartService) -> None:
    service = start_with_quotas(start_service, memories_per_user=2)
    eli = service.client("eli")
    assert eli.chat("Why?", "a").status_code == 200
    for response in (eli.chat("And now?", "a"), eli.post("/api/v1/memories", {"text": "The sky is blue."})):
        assert response.status_code == 413, response.text
    async with open_http(service, "eli") as client:
        result = await client.call_tool("remember", {"text": "The sky is blue."})
        assert "messages of conversations that a user may have" in str(result.content)


@pytest.mark.parametrize("limit", ["bytes_per_user", "sessions_per_user", "memories_per_user"])
def test_zero_is_no_limit(start_service: StartService, limit: str) -> None:
    dan = start_with_quotas(start_service, **{limit: 0}).client("dan")
    assert dan.chat("Why?").status_code == 200
    assert list(read_usage(dan).values()).count(None) == 1
