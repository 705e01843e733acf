"""Ids of another owner, at every route, command and tool: answered as ids that do not exist, and nothing changes.

The tables are compared with the program: a new route, command or tool without its row fails.
"""

import asyncio
import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from mcp import MCPError

from massmem.core.records import Owner
from massmem.session.owners import to_stored_id
from tests.integration.test_mcp_server import open_http
from tests.integration.test_safe_output import list_commands
from tests.support.cli import call_massmem
from tests.support.pictures import PNG
from tests.support.service import Client, Service, make_agent, make_config, wait_until

HERS, NONE = "hers_9q", "none_9q"
"""A session of hers, and one that nobody has."""

MESSAGE = "Which penguin is small?"
CONTENT = [
    {"type": "text", "text": MESSAGE},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}},
]


@dataclass(frozen=True)
class Ids:
    """What one owner's things are called."""

    session: str
    memory: str
    file: str
    response: str
    key: str = "a-key"


Request = tuple[str, str, Any, Mapping[str, str]]
"""Method, path, body, headers."""


def ask(path: str, **body: Any) -> Callable[[Ids], Request]:
    return lambda ids: ("POST", path, {**body, "session_id": ids.session}, {"Idempotency-Key": ids.key})


def at(method: str, path: str, body: Any = None) -> Callable[[Ids], Request]:
    """path: with names of the fields of Ids."""
    return lambda ids: (method, path.format(**vars(ids)), body, {})


def openai(path: str, header: str = "", **body: Any) -> Callable[[Ids], Request]:
    return lambda ids: ("POST", path, {"model": "massmem", **body}, {header: ids.session} if header else {})


def export_of(ids: Ids) -> list[Any]:
    return [{"session": {"session_id": ids.session}, "turns": [{"question": "Why?", "answer": "Because."}]}]


SESSIONS, MEMORIES = "/api/v1/sessions", "/api/v1/memories"
ROUTES: dict[str, list[Callable[[Ids], Request]]] = {
    "POST /api/v1/chat": [ask("/api/v1/chat", message=MESSAGE)],
    "POST /api/v1/chat/stream": [ask("/api/v1/chat/stream", message=MESSAGE)],
    "GET /api/v1/chat/stream/{session_id}": [at("GET", "/api/v1/chat/stream/{session}")],
    "POST /api/v1/chat/{session_id}/now": [at("POST", "/api/v1/chat/{session}/now", {})],
    "POST /api/v1/chat/{session_id}/stop": [at("POST", "/api/v1/chat/{session}/stop", {})],
    "POST /api/v1/chat/{session_id}/continue": [at("POST", "/api/v1/chat/{session}/continue", {})],
    "GET /api/v1/chat/history/{session_id}": [at("GET", "/api/v1/chat/history/{session}")],
    "GET /api/conversation/{session_id}": [at("GET", "/api/conversation/{session}")],
    "POST /api/multi-agent/query": [ask("/api/multi-agent/query", query=MESSAGE)],
    "GET /api/ai-memory/conversations/{session_id}": [at("GET", "/api/ai-memory/conversations/{session}")],
    "DELETE /api/ai-memory/conversations/{session_id}": [at("DELETE", "/api/ai-memory/conversations/{session}")],
    "POST /api/v1/sessions/import": [lambda ids: ("POST", f"{SESSIONS}/import", export_of(ids), {})],
    "GET /api/v1/imports/{job_id}": [at("GET", f"/api/v1/imports/{'0' * 32}")],
    "DELETE /api/v1/imports/{job_id}": [at("DELETE", f"/api/v1/imports/{'0' * 32}")],
    "GET /api/v1/sessions/{session_id}": [at("GET", SESSIONS + "/{session}")],
    "GET /api/v1/sessions/{session_id}/turns/{turn}": [at("GET", SESSIONS + "/{session}/turns/1")],
    "GET /api/v1/sessions/{session_id}/messages/{seq}": [at("GET", SESSIONS + "/{session}/messages/1")],
    "GET /api/v1/sessions/{session_id}/files/{file_hash}": [at("GET", SESSIONS + "/{session}/files/{file}")],
    "POST /api/v1/sessions/{session_id}/rename": [at("POST", SESSIONS + "/{session}/rename", {"title": "Mine"})],
    "POST /api/v1/sessions/{session_id}/fork": [
        at("POST", SESSIONS + "/{session}/fork", body) for body in ({}, {"turn": 1})
    ],
    "POST /api/v1/sessions/{session_id}/version": [at("POST", SESSIONS + "/{session}/version", {"turn": 1})],
    "GET /api/v1/sessions/{session_id}/export": [at("GET", SESSIONS + "/{session}/export?format=json")],
    "POST /api/v1/sessions/{session_id}/context": [at("POST", SESSIONS + "/{session}/context", {"question": "?"})],
    "GET /api/v1/memories": [at("GET", MEMORIES + "?session_id={session}")],
    "POST /api/v1/memories": [lambda ids: ("POST", MEMORIES, {"text": "A note.", "session_id": ids.session}, {})],
    "GET /api/v1/memories/search": [
        at("GET", MEMORIES + "/search?query=penguin&session_id={session}"),
        at("GET", MEMORIES + "/search?query=penguin&agent=ann&session_id={session}&turn=2"),
    ],
    "GET /api/v1/memories/history": [at("GET", MEMORIES + "/history?query=penguin&session_id={session}")],
    "GET /api/v1/memories/{memory_id}": [at("GET", MEMORIES + "/{memory}")],
    "PATCH /api/v1/memories/{memory_id}": [at("PATCH", MEMORIES + "/{memory}", {"text": "Something else."})],
    "DELETE /api/v1/memories/{memory_id}": [
        at("DELETE", MEMORIES + "/{memory}"),
        at("DELETE", MEMORIES + "/{memory}?everywhere=true"),
    ],
    "PUT /api/v1/memories/{memory_id}/{mark}": [at("PUT", MEMORIES + f"/{{memory}}/{m}") for m in ("pin", "global")],
    "DELETE /api/v1/memories/{memory_id}/{mark}": [
        at("DELETE", MEMORIES + f"/{{memory}}/{mark}") for mark in ("pin", "global")
    ],
    "POST /v1/chat/completions": [
        openai("/v1/chat/completions", header, messages=[{"role": "user", "content": MESSAGE}])
        for header in ("X-Session-Id", "X-OpenWebUI-Chat-Id")
    ],
    "POST /v1/responses": [
        openai("/v1/responses", "X-Session-Id", input=MESSAGE),
        lambda ids: (
            "POST",
            "/v1/responses",
            {"model": "massmem", "input": "And?", "previous_response_id": ids.response},
            {},
        ),
    ],
}
ROUTES_WITHOUT_IDS = {
    *("GET /api/conversations", "GET /api/ai-memory/conversations", "GET /api/ai-memory/stats", "GET /api/v1/about"),
    *("GET /api/v1/sessions", "GET /api/v1/search", "GET /api/v1/memories/figures", "GET /api/v1/figures"),
    *("POST /api/v1/files/check", "GET /api/v1/evaluations", "GET /v1/models", "GET /v1/models/{model}"),
    *("GET /healthz", "GET /readyz", "GET /metrics"),
}
"""Their answers to somebody who has nothing are compared, too: they are as empty with others in the store."""

TOOLS: dict[str, Callable[[Ids], dict[str, Any]] | None] = {
    "ask_council": lambda ids: {"question": MESSAGE, "session_id": ids.session},
    "start_council": lambda ids: {"session_id": ids.session},
    "check_council": lambda ids: {"session_id": ids.session},
    "cancel_council": lambda ids: {"session_id": ids.session},
    "forget": lambda ids: {"ids": [ids.memory]},
    "remember": lambda ids: {"text": "A note.", "session_id": ids.session},
    "read_session": lambda ids: {"session_id": ids.session},
    "recall": None,
    "list_sessions": None,
}

COMMANDS: dict[tuple[str, ...], list[list[str]]] = {
    ("ask",): [["--session-id", "SESSION", MESSAGE], ["--session-id", "SESSION"]],
    ("memory", "search"): [["penguin", "--session-id", "SESSION"]],
    ("memory", "history"): [["penguin", "--session-id", "SESSION"]],
    ("memory", "list"): [["--session-id", "SESSION"]],
    ("memory", "show"): [["MEMORY"]],
    ("memory", "add"): [["A note.", "--session-id", "SESSION"]],
    ("memory", "edit"): [["MEMORY", "Something else."]],
    ("memory", "pin"): [["MEMORY"]],
    ("memory", "unpin"): [["MEMORY"]],
    ("memory", "promote"): [["MEMORY"]],
    ("memory", "demote"): [["MEMORY"]],
    ("memory", "forget"): [
        ["MEMORY", "--yes"],
        ["--session-id", "SESSION", "--yes"],
        ["MEMORY", "--everywhere", "--yes"],
    ],
    ("sessions", "show"): [["SESSION"], ["SESSION", "--turn", "1", "--events"]],
    ("sessions", "search"): [["penguin", "--session-id", "SESSION"]],
    ("sessions", "rename"): [["SESSION", "Mine"]],
    ("sessions", "fork"): [["SESSION"], ["SESSION", "--turn", "1"]],
    ("sessions", "version"): [["SESSION", "1"]],
    ("sessions", "delete"): [["SESSION", "--yes"]],
    ("sessions", "export"): [["SESSION"]],
    ("sessions", "insights"): [["SESSION"]],
    ("replay",): [["SESSION", "--turn", "1"]],
}
COMMANDS_WITHOUT_IDS = {
    *(("import",), ("export",), ("init",), ("doctor",), ("paths",), ("eval",), ("ui",), ("serve",), ("worker",)),
    *(("mcp",), ("acp",), ("review",), ("jobs", "list"), ("jobs", "show"), ("skill", "install"), ("completion",)),
    *(("sessions", name) for name in ("list", "cleanup", "stats")),
    *(("memory", name) for name in ("stats", "rebuild", "record")),
    *(("keys", name) for name in ("set", "list", "remove")),
    *(("config", name) for name in ("validate", "show", "schema")),
    *(("models", name) for name in ("fetch", "list", "refresh")),
    *(("store", name) for name in ("migrate", "recover", "import", "backup", "restore")),
    *(("key", name) for name in ("create", "list", "revoke")),  # keys of all users are the operator's
    ("token", "create"),
}


def make_service(folder: Path) -> Service:
    memory = {"persistent_memory": {"session_name": None, "embedding": {"provider": "none"}}}
    config = make_config(make_agent("ann", "The blue one."), memory=memory, server={"limits": {"requests": 10_000}})
    return Service(folder, config).start()


def fill(client: Client) -> Ids:
    """Make a conversation, a file, memories, and a question that is asked under a key."""
    assert client.post("/api/v1/chat", {"message": CONTENT, "session_id": HERS}, "a-key").status_code == 200
    assert client.chat("And which one is large?", HERS).status_code == 200
    responded = client.post("/v1/responses", {"model": "massmem", "input": MESSAGE}).json()["id"]
    wait_until(lambda: len(client.get(MEMORIES).json()["memories"]) >= 6)  # three questions, three answers
    memory = client.get(f"{MEMORIES}?session_id={HERS}").json()["memories"][0]["id"]
    (file,) = set(re.findall(r"\b[0-9a-f]{64}\b", client.get(f"{SESSIONS}/{HERS}").text))
    return Ids(HERS, memory, file, responded)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = make_service(tmp_path_factory.mktemp("foreign"))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def alice(service: Service) -> tuple[Client, Ids]:
    client = service.client("alice")
    return client, fill(client)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Service, Ids, list[tuple[int, str]]]:
    """A service that has ended, since only one process at a time has its memories open; and all that is stored."""
    service = make_service(tmp_path_factory.mktemp("stopped"))
    ids = fill(service.client("alice"))
    service.stop()
    return service, ids, list_everything(service)


def run(service: Service, *line: str) -> tuple[int, str]:
    """Run the command line's user on the store of a service."""
    ran = call_massmem(*line, "--config", str(service.config_file), env=os.environ | {"HOME": str(service.home)})
    return ran.returncode, (ran.stdout + ran.stderr).decode()


def list_everything(service: Service) -> list[tuple[int, str]]:
    of_all = [run(service, name, "list", "--all-owners", "--json") for name in ("sessions", "memory")]
    return [*of_all, run(service, "sessions", "export", HERS, "--owner", "alice", "--format", "json")]


def make_unknown(ids: Ids, session: str) -> Ids:
    """Return ids of the same form that nobody has."""
    digits = str.maketrans("0123456789abcdef", "123456789abcdef0")
    return Ids(session, ids.memory.translate(digits), ids.file.translate(digits), ids.response.translate(digits), "new")


def take_snapshot(client: Client) -> list[str]:
    """Return all that an owner has, as far as it can be seen."""
    paths = (
        *("/api/conversations", SESSIONS, f"{SESSIONS}/{HERS}", f"{SESSIONS}/{HERS}/export?format=json&detailed=true"),
        *(f"{MEMORIES}?limit=100", "/api/v1/figures", f"{MEMORIES}/figures", f"/api/v1/chat/history/{HERS}?limit=100"),
    )
    return [client.get(path).text for path in paths]


def send(client: Client, request: Request) -> tuple[int, str]:
    """Return the status, and the body without what is of this moment."""
    method, path, body, headers = request
    sent = requests.request(
        method,
        client.url + path,
        json=body,
        headers={**headers, "Authorization": f"Bearer {client.token}"},
        timeout=120,
    )
    return sent.status_code, sent.text


def hide_ids(text: str, ids: Ids) -> str:
    """Return the text without ids and without what differs from one moment to the next: numbers, drawn names."""
    for name in (ids.session, HERS, NONE, ids.memory, ids.file, ids.response):
        text = text.replace(name, "ID")
    text = re.sub(r"\b[\w-]*[0-9a-f]{16,}\b", "DRAWN", text)
    return re.sub(r"\d[\d.,:TZ+-]*", "0", text)


def test_every_route_has_a_row(service: Service) -> None:
    paths = service.client("zoe").get("/openapi.json").json()["paths"]
    known = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert known == ROUTES.keys() | ROUTES_WITHOUT_IDS
    assert not ROUTES.keys() & ROUTES_WITHOUT_IDS


@pytest.mark.parametrize("route", ROUTES)
def test_route_answers_ids_of_others_as_unknown_ones(service: Service, alice: tuple[Client, Ids], route: str) -> None:
    owner, ids = alice
    before = take_snapshot(owner)
    stored = Ids(**{**vars(ids), "session": to_stored_id(Owner("alice"), ids.session)})
    for number, make_request in enumerate(ROUTES[route]):
        for foreign in (ids, stored):
            unknown = make_unknown(ids, foreign.session.replace(HERS, NONE))
            # Each asks as somebody who has nothing.
            user = f"{route} {number} {foreign.session}"
            answers = [
                send(service.client(f"{user}-{who}"), make_request(one))
                for who, one in (("foreign", foreign), ("unknown", unknown))
            ]
            assert answers[0][0] == answers[1][0], (route, answers)
            shown = [hide_ids(text, one) for (_, text), one in zip(answers, (foreign, unknown), strict=True)]
            assert shown[0] == shown[1], (route, answers)
            assert answers[0][0] < 500
    assert take_snapshot(owner) == before


@pytest.mark.parametrize("route", sorted(ROUTES_WITHOUT_IDS))
def test_route_without_ids_says_nothing_of_others(service: Service, alice: tuple[Client, Ids], route: str) -> None:
    method, path = route.split()
    _, text = send(service.client("nobody"), (method, path.replace("{model}", "massmem"), None, {}))
    for known in ("penguin", "blue one", HERS, alice[1].memory):
        assert known not in text, route


async def test_tool_answers_ids_of_others_as_unknown_ones(service: Service, alice: tuple[Client, Ids]) -> None:
    owner, ids = alice
    before = await asyncio.to_thread(take_snapshot, owner)
    unknown = make_unknown(ids, NONE)
    async with open_http(service, "mallory") as mallory:
        assert {tool.name for tool in (await mallory.list_tools()).tools} == TOOLS.keys()
        for name, make_arguments in TOOLS.items():
            if make_arguments is None:
                continue
            results = [await mallory.call_tool(name, make_arguments(one)) for one in (ids, unknown)]
            shown = [hide_ids(str(result), one) for result, one in zip(results, (ids, unknown), strict=True)]
            assert shown[0] == shown[1], name
            assert "penguin" not in shown[0] or name == "ask_council"
        templates = (await mallory.list_resource_templates()).resource_templates
        kinds = [template.uri_template.removesuffix("{session_id}") for template in templates]
        assert kinds == ["massmem://sessions/", "massmem://reports/"]
        for kind in kinds:
            messages: list[str] = []
            for one in (ids, unknown):
                with pytest.raises(MCPError) as refused:
                    await mallory.read_resource(kind + one.session)
                messages.append(hide_ids(str(refused.value), one))
            assert messages[0] == messages[1]
        assert (await mallory.call_tool("list_sessions", {})).structured_content == {"sessions": []}
        listed = await mallory.call_tool("recall", {"query": "penguin"})
        assert listed.structured_content == {"memories": [], "beyond": [], "not_recorded": 0}
    assert await asyncio.to_thread(take_snapshot, owner) == before


def test_every_command_has_a_row() -> None:
    assert list_commands() == COMMANDS.keys() | COMMANDS_WITHOUT_IDS
    assert not COMMANDS.keys() & COMMANDS_WITHOUT_IDS


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_answers_ids_of_others_as_unknown_ones(
    stopped: tuple[Service, Ids, list[tuple[int, str]]], path: tuple[str, ...]
) -> None:
    service, ids, before = stopped
    stored = Ids(**{**vars(ids), "session": to_stored_id(Owner("alice"), ids.session)})
    for arguments in COMMANDS[path]:
        for foreign in (ids, stored):
            ends: list[tuple[int, str]] = []
            for one in (foreign, make_unknown(ids, foreign.session.replace(HERS, NONE))):
                words = {"SESSION": one.session, "MEMORY": one.memory}
                code, text = run(service, *path, *(words.get(word, word) for word in arguments))
                ends.append((code, hide_ids(text, one)))
            assert ends[0] == ends[1], (path, arguments)
            assert ends[0][0] in (2, 5), ends
    assert list_everything(service) == before


def test_keys_of_a_service_are_no_ids_of_users(service: Service) -> None:
    """No route takes the id of a key."""
    description = json.dumps(service.client("zoe").get("/openapi.json").json())
    assert "key_id" not in description
