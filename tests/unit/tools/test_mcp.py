"""A real server process, and one behind HTTP: calls, time-outs, deaths, and that nothing of it stays."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from massmem.config.models import McpServerConfig
from massmem.core.errors import ToolServerError
from massmem.tools.mcp import MAX_CHARACTERS, McpServer, clean_reply, clean_result
from tests.support import tools as support
from tests.support.tool_server import INJECTION
from tests.support.tools import calls, run_http_server, running, server_config


async def gone(folder: Path, seconds: float = 6.0) -> bool:
    """No server of the tests is left, after so many seconds at most."""
    until = time.monotonic() + seconds
    while running(folder) and time.monotonic() < until:
        await asyncio.sleep(0.05)
    return not running(folder)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Path]:
    yield tmp_path / "calls"
    assert await gone(tmp_path), "a server was left"


async def start_server(config: McpServerConfig) -> McpServer:
    server = McpServer(config)
    await server.start()
    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[McpServer]:
    """A server for calls that leave it as it was; massmem has a secret in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_VENDOR_SECRET", "hush")
        folder = tmp_path_factory.mktemp("server")
        server = await start_server(server_config(folder / "calls", timeout=2))
        yield server
        await server.close()
        assert await gone(folder), "a server was left"


in_module_loop = pytest.mark.asyncio(loop_scope="module")


async def test_tools_are_listed_and_called(log: Path):
    server = McpServer(server_config(log))
    tools = {tool.name: tool for tool in await server.start()}
    assert {"echo", "slow", "huge", "die"} <= set(tools)
    assert tools["echo"].description == "Say the text again."
    assert tools["echo"].parameters["required"] == ["text"]
    result = await server.call("echo", {"text": "žluťoučký kůň"})
    assert (result.text, result.failed) == ("žluťoučký kůň", False)
    failed = await server.call("fail", {})
    assert failed.failed
    assert "fire" in failed.text
    wrong = await server.call("echo", {"word": "x"})
    assert wrong.failed
    assert "text" in wrong.text
    await asyncio.gather(*(server.call("slow", {"seconds": 0.3, "text": str(n)}) for n in range(3)))
    assert [call["tool"] for call in calls(log)][-6:] == ["slow"] * 3 + ["slept"] * 3, "they run at once"
    await server.close()


@in_module_loop
async def test_result_is_text_that_no_terminal_obeys(shared_server: McpServer):
    result = await shared_server.call("hostile", {})
    assert INJECTION in result.text
    assert "\x1b" not in result.text
    assert "\x07" not in result.text
    assert "red and" in result.text
    assert "[image, image/png, 3 kB: not shown]" in result.text


@in_module_loop
async def test_the_environment_is_not_handed_on(shared_server: McpServer):
    names = (await shared_server.call("environment", {})).text.split()
    assert "PATH" in names
    assert "SOME_VENDOR_SECRET" not in names


@in_module_loop
async def test_a_call_that_takes_too_long_fails_alone(shared_server: McpServer):
    late, soon = await asyncio.gather(
        shared_server.call("slow", {"seconds": 60}), shared_server.call("echo", {"text": "here"})
    )
    assert late.failed
    assert "2 s" in late.text
    assert soon.text == "here"
    assert (await shared_server.call("echo", {"text": "still here"})).text == "still here"


async def test_a_server_that_dies_is_started_once_more_and_no_call_is_repeated(log: Path):
    server = await start_server(server_config(log))
    waiting = asyncio.create_task(server.call("slow", {"seconds": 60}))
    while not calls(log):
        await asyncio.sleep(0.02)
    began = time.monotonic()
    died = await server.call("die", {})
    assert died.failed
    assert "ended during the call" in died.text
    assert (await waiting).failed
    assert time.monotonic() - began < 30, "nobody waits for the time-out"
    assert (await server.call("echo", {"text": "again"})).text == "again"
    await server.call("die", {})
    gone_for_good = await server.call("echo", {"text": "again"})
    assert gone_for_good.failed
    assert "ended twice" in gone_for_good.text
    made = calls(log)
    assert [call["tool"] for call in made] == ["slow", "die", "echo", "die"]
    assert len({call["pid"] for call in made}) == 2
    await server.close()


async def test_a_tool_that_changes_when_its_server_is_started_anew_is_not_called(log: Path, tmp_path: Path):
    says = tmp_path / "says"
    says.write_text("Says it.")
    settings = support.server(log)
    settings["env"]["ECHO_SAYS"] = str(says)
    tool_server = await start_server(McpServerConfig.model_validate(settings))
    assert not (await tool_server.call("echo", {"text": "one"})).failed
    says.write_text("Says it, once all keys were read to it.")
    await tool_server.call("die", {})
    changed = await tool_server.call("echo", {"text": "two"})
    assert "describes the tool differently" in changed.text
    assert [call["text"] for call in calls(log) if call["tool"] == "echo"] == ["one"]
    await tool_server.close()


@pytest.mark.parametrize(("flag", "why"), [("--broken", "no license found"), ("--deaf", "within 1 s")])
async def test_a_server_that_does_not_start_says_why(log: Path, flag: str, why: str):
    server = McpServer(server_config(log, flag, start_timeout=1 if flag == "--deaf" else 20))
    with pytest.raises(ToolServerError) as e:
        await server.start()
    assert "the tool server t does not start" in e.value.message
    assert why in e.value.message
    await server.close()


async def test_closing_during_the_start_leaves_nothing(log: Path):
    server = McpServer(server_config(log, "--deaf"))
    starting = asyncio.create_task(server.start())
    while not running(log.parent):
        await asyncio.sleep(0.02)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await server.close()
    assert await gone(log.parent)


async def test_over_http(tmp_path: Path):
    with run_http_server(tmp_path / "calls") as (process, url):
        config = McpServerConfig.model_validate({"name": "web", "url": url, "timeout": 5})
        server = McpServer(config)
        assert "echo" in {tool.name for tool in await server.start()}
        assert (await server.call("echo", {"text": "over there"})).text == "over there"
        process.kill()
        process.wait()
        assert (await server.call("echo", {"text": "anybody?"})).failed
        await server.close()
        with pytest.raises(ToolServerError, match="does not start"):
            await McpServer(config).start()


PAGES = """
import itertools, json, sys, time
mode, numbers = sys.argv[1], itertools.count()
for line in sys.stdin:
    request = json.loads(line)
    cursor = (request.get("params") or {}).get("cursor")
    match request["method"], cursor:
        case "initialize", _:
            info = {"name": "pages", "version": "1"}
            result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {}, "serverInfo": info}
        case "tools/list", None:
            result = {"tools": [{"name": "first", "outputSchema": 5}, None], "nextCursor": "2"}
        case "tools/list", _ if mode == "fresh":
            result = {"tools": [{"name": f"tool{next(numbers)}"}], "nextCursor": str(next(numbers))}
        case "tools/list", _ if mode == "empty":
            result = {"tools": [], "nextCursor": str(next(numbers))}
        case "tools/list", _ if mode == "silent":
            time.sleep(60)
        case "tools/list", _ if mode == "malformed":
            result = {"tool": 5}
        case "tools/list", _:
            result = {"tools": [{"name": "first"}], "nextCursor": "2"}
        case "tools/call", _:
            result = {"content": [{"type": "hologram", "n": 1}], "isError": "no"}
        case _:
            result = None
    reply = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
"""


@pytest.mark.parametrize(
    ("mode", "count", "why"),
    [
        ("repeated", 1, ""),
        ("empty", 1, "does not end"),
        ("fresh", 100, "does not end"),
        ("silent", 1, "cannot be read"),
        ("malformed", 1, "cannot be read"),
    ],
)
async def test_a_list_of_tools_counts_as_far_as_it_can_be_read(mode: str, count: int, why: str):
    config = {"name": "t", "command": sys.executable, "args": ["-c", PAGES, mode], "start_timeout": 6, "timeout": 1}
    server = McpServer(McpServerConfig.model_validate(config))
    tools = await server.start()
    assert len(tools) == count
    assert tools[0].name == "first"
    assert server.notices[0] == "the tool server t: its tool number 2 has no name, and is left out"
    assert [why in notice for notice in server.notices[1:]] == [True] * bool(why)
    result = await server.call("first", {})
    late = mode == "silent"
    assert (result.failed, "hologram" in result.text) == (late, not late)
    await server.close()


def test_nothing_that_a_database_or_a_terminal_chokes_on():
    assert clean_result("a\ud800b\x00c\x1b[31md") == "a�b␀cd"


def test_note_names_what_the_log_lacks():
    assert clean_result("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert clean_result("x" * (MAX_CHARACTERS + 1_234)).endswith("x\n[1,234 more characters were not kept]")


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


KINDS: list[tuple[object, str]] = [
    ({"type": "text", "text": "one"}, "one"),
    ({"type": "resource_link", "name": "notes", "uri": "file:///n.txt"}, "[resource notes: file:///n.txt]"),
    ({"type": "resource", "resource": {"uri": "file:///a", "text": "two"}}, "[resource file:///a]\ntwo"),
    ({"type": "resource", "resource": {"uri": "b", "blob": "A" * 4_000}}, "[resource b, binary, 3 kB: not shown]"),
    ({"type": "image", "data": "A" * 4_000, "annotations": 5}, "[image, binary, 3 kB: not shown]"),
    ({"type": "chart", "rows": [1]}, '{"type": "chart", "rows": [1]}'),
    ({"type": "aside", "text": "three"}, "three"),
    ("four", "four"),
    (5, "5"),
]
RESULTS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "every kind of content": ({"content": [*(kind for kind, _ in KINDS), None]}, "\n".join(t for _, t in KINDS), False),
    "a text": ({"content": "a", "isError": True}, "a", True),
    "nothing": ({"content": None, "isError": None, "_meta": None}, "(nothing)", False),
    "words for an error": ({"content": ["a"], "isError": "true"}, "a", True),
    "no error in words": ({"content": [], "isError": "false"}, "(nothing)", False),
    "an object alone": ({"structuredContent": {"ok": True}, "content": []}, '{"ok": true}', False),
    "a list alone": ({"structuredContent": [1]}, "[1]", False),
    "an object beside a text": ({"structuredContent": {"ok": True}, "content": [text("a")]}, "a", False),
    "the first protocol": ({"toolResult": {"a": 1}}, '{"a": 1}', False),
}


@pytest.mark.parametrize(("reply", "content", "failed"), RESULTS.values(), ids=RESULTS)
def test_a_result_is_text_in_the_form_of_the_protocol(reply: dict[str, Any], content: str, failed: bool):
    assert clean_reply(reply) == ({"content": [text(content)], "isError": failed}, [])


def nest_lists(depth: int) -> Any:
    return {"type": "array", "items": nest_lists(depth - 1)} if depth else {}


def test_an_odd_tool_costs_itself():
    tools = [None, {"name": " "}, {"name": "a", "description": 5, "annotations": 3}, {"name": "b", "inputSchema": 5},
             {"name": "c", "inputSchema": {"type": "string"}}, "d"]  # fmt: skip
    cleaned, notes = clean_reply({"tools": tools, "nextCursor": 7})
    empty = {"type": "object", "properties": {}}
    assert cleaned == {"tools": [{"name": "a", "inputSchema": empty}, {"name": "b", "inputSchema": empty}]}
    assert len(notes) == 4
    assert "its tool c is left out: its arguments are no object but of type string" in notes
    hostile = {
        "deep": {"properties": {"a": nest_lists(900)}},
        "large": {"description": "x" * 200_000},
        "infinite": {"properties": {"a": {"maximum": float("inf")}}},
        "impossible": {"type": "object", "required": ["a"], "properties": {"a": {"enum": ["b"], "type": "integer"}}},
        "circle": {"$ref": "#"},
        "pattern": {"properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)", "multipleOf": 0}}},
    }
    cleaned, notes = clean_reply({"tools": [{"name": name, "inputSchema": s} for name, s in hostile.items()]})
    assert [tool["name"] for tool in cleaned["tools"]] == ["impossible", "circle", "pattern"]
    assert [note.split(" is left out: ")[0] for note in notes] == [
        f"its tool {name}" for name in ("deep", "large", "infinite")
    ]
    assert clean_reply({"tools": None}) == ({"tools": []}, [])
    assert clean_reply({"protocolVersion": "1"}) == ({"protocolVersion": "1"}, [])
