"""The page's cookie: a random id that lives and dies with the key or token, and that only our own page can use."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests
from fastapi.testclient import TestClient
from starlette.routing import Mount, Route

from massmem.server.auth import IDLE
from tests.support.page import FROM_PAGE
from tests.support.service import SECRET, StartService, make_config, make_token, wait_until
from tests.unit.server.test_app import open_client

ABOUT = "/api/v1/about"
NAME = "massmem-http"
HOME_PAGE = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://localhost, https://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"},
    {"Sec-Fetch-Site": "none"},
)
"""Headers of requests from elsewhere; the browser writes them."""


def enter(client: TestClient, token: str) -> str:
    """Return the cookie that the page gets for a key or token."""
    client.cookies.clear()
    entered = client.post("/page/enter", json={"token": token}, headers=FROM_PAGE | HOME_PAGE)
    assert entered.status_code == 204, entered.text
    return client.cookies[NAME]


def visit(client: TestClient, cookie: str, path: str = ABOUT, method: str = "GET", **headers: str) -> Any:
    client.cookies.clear()
    return client.request(method, path, headers={**FROM_PAGE, "Cookie": f"{NAME}={cookie}"} | headers)


def change_store(home: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as connection, connection:
        connection.execute(statement, values)


@pytest.fixture(name="client")
def make_client(home: Path) -> Any:
    with open_client(home) as client:
        client.base_url = "http://localhost"  # type: ignore[assignment]
        yield client


def test_cookie_says_nothing_and_is_stored_as_a_hash(client: TestClient, home: Path) -> None:
    token = make_token("alice")
    entered = client.post("/page/enter", json={"token": token}, headers=FROM_PAGE)
    attributes = entered.headers["set-cookie"].split("; ")
    assert set(attributes[1:]) == {"HttpOnly", "Path=/", "SameSite=strict"}
    cookie = client.cookies[NAME]
    assert visit(client, cookie).json()["user"] == "alice"
    stored = b"".join(path.read_bytes() for path in home.rglob("massmem.db*"))
    assert b"alice" in stored
    for secret in (cookie, token, *token.split(".")):
        assert secret not in attributes[0].replace(cookie, "")
        assert secret.encode() not in stored
    assert enter(client, token) != cookie


def test_cookie_over_https_belongs_to_this_host_alone(home: Path) -> None:
    with open_client(home, server={"hosts": ["talk.example"]}) as client:
        client.base_url = "https://talk.example"  # type: ignore[assignment]
        headers = FROM_PAGE | {"Origin": "https://talk.example"}
        entered = client.post("/page/enter", json={"token": make_token("alice")}, headers=headers)
        name, *attributes = entered.headers["set-cookie"].split("; ")
        assert name.startswith("__Host-massmem-https=")
        assert set(attributes) == {"HttpOnly", "Path=/", "SameSite=strict", "Secure"}
        assert client.get(ABOUT, headers=headers).json()["user"] == "alice"


def test_cookie_is_no_key(client: TestClient) -> None:
    cookie = enter(client, make_token("alice"))
    for value in (cookie, f"{NAME}={cookie}"):
        client.cookies.clear()
        assert client.get(ABOUT, headers=FROM_PAGE | {"Authorization": f"Bearer {value}"}).status_code == 401
        assert client.post("/page/enter", json={"token": value}, headers=FROM_PAGE).status_code == 401


def test_copied_cookie_is_worth_nothing_after_leaving(client: TestClient) -> None:
    cookie, other = enter(client, make_token("alice")), enter(client, make_token("alice"))
    left = visit(client, cookie, "/page/leave", "POST")
    assert left.status_code == 204
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert visit(client, cookie).status_code == 401
    assert visit(client, cookie, "/page/leave", "POST").status_code == 204
    assert visit(client, cookie).status_code == 401
    assert visit(client, other).status_code == 200


def revoke_key(home: Path) -> None:
    change_store(home, "DELETE FROM api_keys")


def expire_key(home: Path) -> None:
    change_store(home, "UPDATE api_keys SET expires_at = ?", "2020-01-01 00:00:00.000000")


def let_idle(home: Path) -> None:
    long_ago = (datetime.now(UTC) - IDLE).strftime("%Y-%m-%d %H:%M:%S.%f")
    change_store(home, "UPDATE page_sessions SET used_at = ?", long_ago)


def let_expire(home: Path) -> None:
    change_store(home, "UPDATE page_sessions SET expires_at = ?", "2020-01-01 00:00:00.000000")


@pytest.mark.parametrize("end", [revoke_key, expire_key, let_idle, let_expire])
def test_cookie_ends_with_its_key_and_with_time(client: TestClient, home: Path, end: Callable[[Path], None]) -> None:
    from massmem.core.records import make_api_key

    text, key = make_api_key("alice", datetime.now(UTC))
    row = {**key.model_dump(), "created_at": "2026-01-01 00:00:00.000000"}
    change_store(home, f"INSERT INTO api_keys ({','.join(row)}) VALUES ({','.join('?' * len(row))})", *row.values())
    cookie = enter(client, text)
    assert visit(client, cookie).json()["user"] == "alice"
    end(home)
    assert visit(client, cookie).status_code == 401


def test_cookie_ends_with_its_token(home: Path) -> None:
    revoked = home / "revoked"
    revoked.touch()
    server = {"jwt": {"secret": SECRET, "revoked_file": str(revoked)}}
    with open_client(home, server=server) as client:
        client.base_url = "http://localhost"  # type: ignore[assignment]
        token = make_token("alice")
        cookies = [enter(client, token), enter(client, make_token("bob")), enter(client, make_token("carl", 2))]
        assert [visit(client, cookie).status_code for cookie in cookies] == [200] * 3
        revoked.write_text(jwt.decode(token, SECRET, ["HS256"])["jti"])
        wait_until(lambda: visit(client, cookies[0]).status_code == 401)
        wait_until(lambda: visit(client, cookies[2]).status_code == 401)
        assert visit(client, cookies[1]).status_code == 200
    with open_client(home, server={"jwt": {"secret": "another-secret-0123456789-abcdefghij"}}) as client:
        client.base_url = "http://localhost"  # type: ignore[assignment]
        assert visit(client, cookies[1]).status_code == 401


def test_all_processes_know_who_has_entered_and_who_has_left(start_service: StartService) -> None:
    first, second = start_service(make_config()), start_service(make_config())
    entered = requests.post(f"{first.url}/page/enter", json={"token": make_token("alice")}, headers=FROM_PAGE)
    cookie = entered.cookies[f"massmem-{first.port}"]

    def get_status(port: int) -> int:
        cookies = {f"massmem-{port}": cookie}
        return requests.get(f"http://127.0.0.1:{port}{ABOUT}", cookies=cookies, headers=FROM_PAGE).status_code

    assert [get_status(service.port) for service in (first, second)] == [200, 200]
    requests.post(
        f"{second.url}/page/leave", cookies={f"massmem-{second.port}": cookie}, headers=FROM_PAGE
    ).raise_for_status()
    assert [get_status(service.port) for service in (first, second)] == [401, 401]


def list_requests(client: TestClient) -> list[tuple[str, str]]:
    """Return method and path of all that the application answers, /mcp and routes without description included."""
    app: Any = client.app
    # An included router is one route of the application.
    lists = [route.original_router.routes for route in app.routes if hasattr(route, "original_router")]
    routes = [route for routes in (app.routes, *lists) for route in routes if isinstance(route, Route | Mount)]
    assert [route.path for route in routes if isinstance(route, Mount)] == ["/page"]  # files alone
    answered = [(method, route.path) for route in routes if isinstance(route, Route) for method in route.methods or ()]
    return sorted(pair for pair in answered if pair[0] != "HEAD")


def test_pages_of_others_change_nothing_with_the_cookie(client: TestClient) -> None:
    cookie = enter(client, make_token("alice"))
    asked = {"message": "Why?", "session_id": "s"}
    headers = {**FROM_PAGE, "Cookie": f"{NAME}={cookie}"}
    assert client.post("/api/v1/chat", json=asked, headers=headers).status_code == 200
    changing = [(method, path) for method, path in list_requests(client) if method != "GET"]
    assert {"/mcp", "/page/enter", "/page/leave", "/v1/chat/completions"} <= {path for _, path in changing}
    for method, template in changing:
        path = template.replace("{session_id}", "s").replace("{", "").replace("}", "")
        for foreign in FOREIGN:
            refused = visit(client, cookie, path, method, **foreign)
            assert refused.status_code == 403, (method, template, foreign, refused.text)
            assert "set-cookie" not in refused.headers
        client.cookies.clear()
        without = client.request(method, path, headers={"Cookie": f"{NAME}={cookie}"})
        assert without.status_code == 403, (method, template, without.text)
    assert visit(client, cookie, "/api/v1/chat/history/s").json()["messages"]
    assert visit(client, cookie).status_code == 200


def test_pages_of_others_read_nothing_with_the_cookie(client: TestClient) -> None:
    cookie = enter(client, make_token("alice"))
    public = {path for m, path in list_requests(client) if m == "GET" and client.get(path).status_code in (200, 503)}
    assert public == {"/", "/healthz", "/readyz"}
    for method, path in list_requests(client):
        if method == "GET" and path not in public:
            for foreign in FOREIGN:
                assert visit(client, cookie, path, **foreign).status_code in (401, 403), (path, foreign)


SERVED = (
    *("127.0.0.1", "[::1]:4000", "localhost:4000", "talk.localhost", "192.168.1.7:4000"),
    *("talk.example", "TALK.example:8443", "other.example:8443"),
)
REFUSED = (
    *("other.example", "evil.example", "evil.example:4000", "127.0.0.1.evil.example", "localhost.evil.example"),
    *("talk.example.evil.example", "talk.example@evil.example", "127.0.0.1:x", "[::1", ""),
)


def test_page_answers_to_names_of_its_own(home: Path) -> None:
    """Another site's name may lead to this machine: DNS rebinding."""
    with open_client(home, server={"hosts": ["talk.example", "Other.example:8443"]}) as client:
        client.base_url = "http://localhost"  # type: ignore[assignment]
        body = {"token": make_token("alice")}
        for host in (*SERVED, *REFUSED):
            cookie = enter(client, make_token("alice"))
            client.cookies.clear()
            headers = {**FROM_PAGE, "Host": host, "Origin": f"http://{host}"}
            entered = client.post("/page/enter", json=body, headers=headers)
            assert entered.status_code == (204 if host in SERVED else 421), (host, entered.text)
            client.cookies.clear()
            if host in REFUSED:
                refused = visit(client, cookie, Host=host)
                assert refused.status_code == 421, host
                assert "server.hosts" in refused.json()["error"]
            key = {"Authorization": f"Bearer {make_token('alice')}", "Host": host}
            client.cookies.clear()
            assert client.get(ABOUT, headers=key).status_code == 200, host
