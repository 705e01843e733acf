"""AI Memory Management API

Conversations over HTTP, kept in Redis.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests

from massmem import open_store
from tests.support.redis_server import RedisServer, StartRedis
from tests.support.service import Service, StartService, make_config, make_token

seed = pytest.mark.seed
BASE = "/api/ai-memory"
SESSION = "user-123-chat"


@pytest.fixture
def service(start_service: StartService, redis_server: RedisServer) -> Service:
    return start_service(make_config(store={"url": redis_server.new_url()}))


@seed("`GET /api/ai-memory/conversations/:sessionId`")
@seed("`role`, `content`, `timestamp` of a message; `createdAt`, `updatedAt` (milliseconds)")
@seed("`GET /api/ai-memory/conversations`")
@seed("`DELETE /api/ai-memory/conversations/:sessionId`: `Conversation user-123-chat cleared`")
@seed(
    "`GET /api/ai-memory/stats`: `activeConversations`, `totalMessages`, `averageMessagesPerConversation`, `usingRedis`"
)
@seed("the functions for Python (`requests`), and the same calls of `axios`")
@seed('`curl -H "Authorization: Bearer ..."`')
def test_routes(service: Service) -> None:
    url, headers = f"{service.url}{BASE}", {"Authorization": f"Bearer {make_token('ann')}"}
    assert service.client("ann").chat("Hello!", SESSION).status_code == 200
    read = requests.get(f"{url}/conversations/{SESSION}", headers=headers, timeout=60).json()
    assert (read["success"], set(read["data"])) == (True, {"sessionId", "messages", "createdAt", "updatedAt"})
    assert [(m["role"], m["content"]) for m in read["data"]["messages"]] == [
        ("user", "Hello!"), ("assistant", "It is blue."),
    ]  # fmt: skip
    assert read["data"]["createdAt"] <= read["data"]["messages"][0]["timestamp"] <= read["data"]["updatedAt"]
    listed = requests.get(f"{url}/conversations", headers=headers, timeout=60).json()
    assert listed == {"success": True, "data": [SESSION]}
    stats = requests.get(f"{url}/stats", headers=headers, timeout=60).json()["data"]
    assert (stats["activeConversations"], stats["usingRedis"], stats["durable"]) == (1, True, True)
    assert stats["totalMessages"] == stats["averageMessagesPerConversation"] >= 2
    command = ["curl", "-s", "-X", "DELETE", "-H", f"Authorization: {headers['Authorization']}"]
    ran = subprocess.run([*command, f"{url}/conversations/{SESSION}"], capture_output=True, check=True, timeout=60)
    assert json.loads(ran.stdout) == {"success": True, "message": f"Conversation {SESSION} cleared"}
    assert requests.get(f"{url}/conversations", headers=headers, timeout=60).json()["data"] == []


@seed("errors: `success: false` and `error`; 401, 404")
@seed("a user gets to no other user's conversations")
@seed(
    "a session that is not there is created by reading it",
    "404; a question creates it",
    "who mistypes an id is told so, and 404 stands in the document, too",
)
@seed("JSON web tokens", "also keys: `massmem key create`", "a token is made with `massmem token create`")
def test_errors(service: Service) -> None:
    refused = requests.get(f"{service.url}{BASE}/conversations", timeout=60)
    assert (refused.status_code, refused.json()["success"], bool(refused.json()["error"])) == (401, False, True)
    missing = service.client("ann").get(f"{BASE}/conversations/none")
    assert (missing.status_code, missing.json()["success"]) == (404, False)
    service.client("ann").chat("Hello!", SESSION)
    assert service.client("bob").get(f"{BASE}/conversations/{SESSION}").status_code == 404
    assert service.client("bob").list_sessions() == []


@seed(
    "`500`", "503 with `Retry-After` when Redis is away, 502 when no agent could answer", "a client can tell what to do"
)
@seed(
    "Redis unavailable: `falling back to in-memory storage`",
    "at the start: new conversations are in memory, and every answer says so (`warning`); later: 503",
    "a conversation that is half in Redis and half in a process contradicts itself when Redis is back, and ends with "
    "the process: whoever asks again in a moment loses nothing",
)
def test_redis_that_is_away(start_service: StartService, tmp_path: Any) -> None:
    service = start_service(make_config(store={"url": "redis://127.0.0.1:1/0"}), wait=False)
    service.wait_until_ready()
    answer = service.client("ann").chat("Hello!", SESSION).json()
    assert answer["response"] == "It is blue."
    assert answer["warning"] == "this conversation is held in memory, and ends with the service"
    stats = service.client("ann").get(f"{BASE}/stats").json()["data"]
    assert (stats["usingRedis"], stats["durable"]) == (False, False)


@seed(
    "`REDIS_URL=redis://localhost:6379`",
    '`store: {url: "redis://"}`, and REDIS_URL has the address',
    "the variable is often another program's, and sessions in Redis expire: one line in the file asks for that; "
    "`massmem serve` says when it finds the variable and does not use it",
)
def test_redis_url(start_service: StartService, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.new_url())
    ann = start_service(make_config(store={"url": "redis://"})).client("ann")
    assert ann.get(f"{BASE}/stats").json()["data"]["usingRedis"] is True
    alone = start_service(make_config())
    assert alone.client("ann").get(f"{BASE}/stats").json()["data"]["usingRedis"] is False
    assert "REDIS_URL is set and not used" in alone.log.read_text()


@seed("`REDIS_PASSWORD`")
async def test_password(start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{start_redis('no', '--requirepass', 'your-password').port}/0"
    monkeypatch.setenv("REDIS_PASSWORD", "your-password")
    store = await open_store(url, tmp_path)
    assert (store.info.kind, await store.get_session("none")) == ("redis", None)
    await store.close()


@seed(
    "50 messages at most; 24 hours; system messages stay",
    "`store: {max_messages: 50, ttl: 86400}`",
    "the same defaults, of `redis://`",
)
@seed("a clean-up every hour", "none is needed", "Redis deletes what has expired, to the second")
@seed("global rate limits", "`server.limits`", "see the page on the service")
@seed("`usingRedis`, `http://localhost:4000`", "`server: {host, port}`, port 4000", "`massmem serve`")
def test_defaults() -> None:
    from massmem.config.models import ServerConfig, StoreConfig

    store = StoreConfig()
    assert (store.max_messages, store.ttl, ServerConfig().port) == (50, 86_400, 4_000)
