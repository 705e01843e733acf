"""massmem as an agent of editors, over stdio, with the protocol's own SDK as the editor."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import acp
import psutil
import pytest
from acp.schema import (
    BlobResourceContents,
    EnvVariable,
    HttpMcpServer,
    ImageContentBlock,
    McpServerStdio,
    TextResourceContents,
)

from tests.support.cli import COMMAND, massmem, run_program, script, write_team
from tests.support.pictures import PNG
from tests.support.tools import run_http_server, server
from tests.unit.providers.test_acp import command

TEXT = acp.text_block("Why is the sky blue?")


class Editor:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.has_update = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append({"session": session_id, **update.model_dump(mode="json", by_alias=True, exclude_none=True)})
        self.has_update.set()

    def list_updates(self, *kinds: str) -> list[dict[str, Any]]:
        return [update for update in self.updates if update["sessionUpdate"] in kinds]

    def read(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.list_updates(kind))

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(30):
            while text not in json.dumps(self.updates):
                self.has_update.clear()
                await self.has_update.wait()


class Opened:
    """A running massmem, and the editor that has started it."""

    def __init__(self, editor: Editor, agent: Any, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.editor, self.agent, self.process, self.folder = editor, agent, process, folder
        self.session = ""

    async def begin(self, *servers: Any) -> Any:
        reply = await self.agent.new_session(cwd=str(self.folder), mcp_servers=[*servers])
        self.session = reply.session_id
        return reply

    async def ask(self, *blocks: Any) -> str:
        """Return why the prompt has ended."""
        reply = await self.agent.prompt(session_id=self.session, prompt=[*blocks] or [TEXT])
        return reply.stop_reason

    async def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()


@asynccontextmanager
async def open_editor(config: str, folder: Path, arguments: Sequence[str] = ()) -> AsyncGenerator[Opened]:
    folder.mkdir(exist_ok=True)
    editor: Any = Editor()
    with (folder.parent / "stderr").open("ab") as errors:
        options = {"stderr": errors, "limit": 10_000_000}
        command = [*COMMAND, "acp", "--config", config, *arguments]
        async with acp.spawn_agent_process(editor, *command, transport_kwargs=options) as (agent, process):
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            yield Opened(editor, agent, process, folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "src" / "a.py").write_text("ANSWER = 42\n")
    (folder / "AGENTS.md").write_text("Answer in one word.\n")
    return folder


def write_council(folder: Path, **more: Any) -> str:
    return write_team(folder, script("It is blue.", chunk_size=4, chunk_delay=0.2), script("It is green."), **more)


async def test_council_answers_with_a_plan_and_says_how_it_decided(tmp_path: Path, project: Path) -> None:
    async with open_editor(write_council(tmp_path), project) as opened:
        modes = (await opened.begin()).modes
        assert [mode.id for mode in modes.available_modes][:3] == ["council", "solo", "report"]
        assert await opened.ask() == "end_turn"
        editor = opened.editor
    plans = [[(e["content"], e["status"]) for e in plan["entries"]] for plan in editor.list_updates("plan")]
    assert plans[0] == [("a: waiting", "pending"), ("b: waiting", "pending")]
    assert any(("a: working", "in_progress") in plan for plan in plans)
    assert any(("a: writes the final answer", "in_progress") in plan for plan in plans)
    assert {status for _, status in plans[-1]} == {"completed"}
    pieces = [update["content"]["text"] for update in editor.list_updates("agent_message_chunk")]
    assert len(pieces) > 3, "the answer is streamed"
    answer, decision = editor.read().split("\n---\n")
    assert answer.strip() == "It is blue."
    assert "- 2 of 2 agents gave or chose this answer\n- 2 rounds · 2 agents" in decision
    thoughts = editor.read("agent_thought_chunk")
    assert "b votes for a" in thoughts and "  \na wins: " in thoughts, "lines stay apart in Markdown"
    assert "with its AGENTS.md" in thoughts


async def test_agents_read_the_folder_and_calls_are_shown(tmp_path: Path, project: Path) -> None:
    calls = [{"call": {"tool": "read_file", "arguments": {"path": "src/a.py"}}}, {"text": "Read: {result}"}]
    async with open_editor(write_team(tmp_path, script(calls)), project) as opened:  # type: ignore[arg-type]
        await opened.begin()
        assert await opened.ask() == "end_turn"
        started, ended = opened.editor.list_updates("tool_call", "tool_call_update")
        assert (started["title"], started["kind"], started["status"]) == ("a reads src/a.py", "read", "in_progress")
        assert (ended["toolCallId"], ended["status"]) == (started["toolCallId"], "completed")
        assert "ANSWER = 42" in opened.editor.read()


async def test_tool_servers_of_the_editor_are_those_of_programs_too(tmp_path: Path, project: Path) -> None:
    local = server()
    own: Any = McpServerStdio(
        name="t", command=local["command"], args=local["args"],
        env=[EnvVariable(name=name, value=value) for name, value in local["env"].items()],
    )  # fmt: skip
    team = tmp_path / "team.yaml"
    team.write_text(json.dumps({"agents": [{"id": "a", "backend": {"type": "acp", "command": command("calls")}}]}))
    async with open_editor(str(team), project) as opened:
        await opened.begin(own)
        assert await opened.ask() == "end_turn"
        (call,) = opened.editor.list_updates("tool_call")
        assert "echo" in call["title"]
        assert opened.editor.read().startswith("hello")


@pytest.mark.parametrize("is_http", [False, True])
async def test_tool_servers_of_the_editor_are_those_of_its_conversation(
    tmp_path: Path, project: Path, is_http: bool
) -> None:
    calls = [{"call": {"tool": "mcp__My_tools__echo", "arguments": {"text": "hello"}}}, {"text": "Echo: {result}"}]
    local = server()
    with run_http_server(tmp_path / "log") if is_http else nullcontext((None, "")) as (_, address):
        own: Any = HttpMcpServer(name="My tools", url=address, headers=[], type="http") if is_http else McpServerStdio(
            name="My tools", command=local["command"], args=local["args"],
            env=[EnvVariable(name=name, value=value) for name, value in local["env"].items()],
        )  # fmt: skip
        async with open_editor(write_team(tmp_path, script(calls * 2)), project) as opened:  # type: ignore[arg-type]
            await opened.begin(own)
            await opened.ask()
            await opened.begin()
            await opened.ask()
    with_tools, without = opened.editor.list_updates("tool_call_update")
    assert (with_tools["status"], without["status"]) == ("completed", "failed")


async def test_program_as_a_member_shows_what_it_does(tmp_path: Path, project: Path) -> None:
    team = tmp_path / "team.yaml"
    team.write_text(json.dumps({"agents": [{"id": "a", "backend": {"type": "acp", "command": command("plain")}}]}))
    async with open_editor(str(team), project) as opened:
        await opened.begin()
        assert await opened.ask() == "end_turn"
        assert [call["title"] for call in opened.editor.list_updates("tool_call")] == ["a reads src/a.py"]
        assert opened.editor.read("agent_thought_chunk").count("Let me see.") == 1
        assert opened.editor.read().startswith("It is 4.")


async def test_prompt_brings_files_and_pictures(tmp_path: Path, project: Path) -> None:
    (project / "notes.txt").write_text("The code is 7316.\n")
    (tmp_path / "outside.txt").write_text("Not for agents.\n")
    team = write_team(tmp_path, script([{"text": "{seen}"}]), store={"url": f"sqlite:///{tmp_path}/db"})  # type: ignore[arg-type]
    async with open_editor(team, project) as opened:
        await opened.begin()
        unsaved = TextResourceContents(uri=(project / "src" / "a.py").as_uri() + "#L1", text="ANSWER = 43  # unsaved\n")
        table = BlobResourceContents(uri="file:///elsewhere/table.csv", blob=b64encode(b"n;4711\n").decode())
        picture = ImageContentBlock(type="image", data=b64encode(PNG).decode(), mime_type="image/png")
        link = acp.resource_link_block("notes.txt", (project / "notes.txt").as_uri())
        page = acp.resource_link_block("page", "https://example.org/x")
        folder = acp.resource_link_block("src", (project / "src").as_uri())
        before = acp.text_block("Not sent before."), acp.text_block("Compare ")
        blocks = [*before, link, *map(acp.resource_block, (unsaved, table)), page, folder, picture]
        assert await opened.ask(*blocks) == "end_turn"
        assert "image/png" in opened.editor.read()
        outside = acp.resource_link_block("outside.txt", (tmp_path / "outside.txt").as_uri())
        with pytest.raises(acp.RequestError, match="project: open its folder"):
            await opened.ask(TEXT, outside)
    shown = massmem("sessions", "show", opened.session, "--config", team, text=True).stdout
    assert "Not sent before.\n\n  Compare @notes.txt@src/a.py#L1@" in shown
    assert "https://example.org/x" in shown and "@src" in shown
    assert all(text in shown for text in ("The code is 7316.", "ANSWER = 43  # unsaved", "4711"))
    assert "Not for agents" not in shown


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("solo", "1 agent"), ("report", "**Only one says**\n\n- It is ")],
)
async def test_mode_changes_how_the_next_question_is_answered(
    tmp_path: Path, project: Path, mode: str, expected: str
) -> None:
    async with open_editor(write_council(tmp_path), project) as opened:
        await opened.begin()
        await opened.agent.set_session_mode(session_id=opened.session, mode_id=mode)
        assert await opened.ask() == "end_turn"
        assert expected in opened.editor.read()
        assert opened.editor.read().startswith("It is ")
        with pytest.raises(acp.RequestError, match="there is no mode 'nonsense': modes: council, solo, report"):
            await opened.agent.set_session_mode(session_id=opened.session, mode_id="nonsense")


async def test_newer_editors_choose_the_mode_as_an_option(tmp_path: Path, project: Path) -> None:
    async with open_editor(write_council(tmp_path), project) as opened:
        [option] = (await opened.begin()).config_options
        assert (option.category, option.current_value, option.options[1].value) == ("mode", "council", "solo")
        changed = await opened.agent.set_config_option(config_id="mode", session_id=opened.session, value="solo")
        assert changed.config_options[0].current_value == "solo"
        assert await opened.ask() == "end_turn"
        assert "1 agent" in opened.editor.read()
        with pytest.raises(acp.RequestError, match="there is no option 'model': options: mode"):
            await opened.agent.set_config_option(config_id="model", session_id=opened.session, value="solo")


async def test_jobs_are_modes_also_those_of_the_project(tmp_path: Path, project: Path) -> None:
    jobs = project / ".massmem" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "names.yaml").write_text("summary: Names for a thing.\nshape: union\n")
    (jobs / "solo.yaml").write_text("summary: No mode is replaced.\n")
    async with open_editor("@examples/decide", project) as opened:
        modes = {mode.id: mode for mode in (await opened.begin()).modes.available_modes}
        assert {"council", "solo", "report", "brainstorm", "decide", "premortem", "review", "names"} <= {*modes}
        assert modes["names"].description == "Names for a thing."
        assert "replaced" not in modes["solo"].description
        await opened.agent.set_session_mode(session_id=opened.session, mode_id="decide")
        assert await opened.ask() == "end_turn"
        assert opened.editor.read().count("| PostgreSQL |") == 1
        assert "ben would choose SQLite" in opened.editor.read()
        await opened.agent.set_session_mode(session_id=opened.session, mode_id="council")
        assert await opened.ask() == "end_turn"
        assert opened.editor.read().count("| PostgreSQL |") == 1


async def test_sessions_are_listed_by_project_and_replayed(tmp_path: Path, project: Path) -> None:
    team = write_council(tmp_path)
    async with open_editor(team, project) as opened:
        await opened.begin()
        await opened.ask()
        first = opened.session
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    async with open_editor(team, project) as opened:
        listed = (await opened.agent.list_sessions(cwd=str(project / "src"))).sessions
        assert [(one.session_id, one.title) for one in listed] == [(first, "Why is the sky blue?")]
        assert (await opened.agent.list_sessions(cwd=str(other))).sessions == []
        await opened.agent.load_session(cwd=str(project), session_id=first, mcp_servers=[])
        assert opened.editor.read("user_message_chunk") == "Why is the sky blue?"
        assert opened.editor.read() == "It is blue."
        opened.session = first
        assert await opened.ask(acp.text_block("And at night?")) == "end_turn"
        for unknown in ("session_of_nobody", "../../x"):
            with pytest.raises(acp.RequestError, match="there is no such session"):
                await opened.agent.load_session(cwd=str(project), session_id=unknown, mcp_servers=[])
            with pytest.raises(acp.RequestError, match="begin a new one, or load it first"):
                await opened.agent.prompt(session_id=unknown, prompt=[TEXT])
    shown = massmem("sessions", "show", first, "--config", team, text=True).stdout
    assert "And at night?" in shown


async def test_cancelled_question_keeps_the_work_and_the_next_one_waits_its_turn(tmp_path: Path, project: Path) -> None:
    team = write_team(tmp_path, script("It is blue."), {"answer": [{"text": "Green.", "delay": 3}], "vote": "first"})
    async with open_editor(team, project) as opened:
        await opened.begin()
        asking, waiting = asyncio.create_task(opened.ask()), asyncio.create_task(opened.ask(acp.text_block("Second?")))
        await opened.editor.wait_for("a answers")
        await opened.agent.cancel(session_id=opened.session)
        assert [await asking, await waiting] == ["cancelled", "cancelled"]
        states = [entry["content"] for entry in opened.editor.list_updates("plan")[-1]["entries"]]
        assert states == ["a: answered", "b: waiting"], "b was stopped before it had an answer"
        assert await opened.ask() == "end_turn"
        assert "It is blue." in opened.editor.read()
        assert opened.editor.read("agent_thought_chunk").count("a answers") == 1, "its answer was kept"


async def test_two_prompts_at_once_are_both_answered(tmp_path: Path, project: Path) -> None:
    team = write_team(tmp_path, script(["First answer.", "Second answer."], latency=0.3))
    async with open_editor(team, project) as opened:
        await opened.begin()
        ends = await asyncio.gather(opened.ask(), opened.ask(acp.text_block("And then?")))
        assert ends == ["end_turn", "end_turn"]
        assert "First answer." in opened.editor.read() and "Second answer." in opened.editor.read()


async def test_value_that_is_awaited_is_a_question_to_the_user(tmp_path: Path, project: Path) -> None:
    asks = [{"ask": "order_id", "ask_prompt": "Which order?", "text": "Order {order_id} is on its way."}]
    team = write_team(tmp_path, script(asks), params={"order_id": {"pattern": r"O-\d{5}"}})  # type: ignore[arg-type]
    async with open_editor(team, project) as opened:
        await opened.begin()
        assert await opened.ask() == "end_turn"
        assert "Which order?" in opened.editor.read()
        assert await opened.ask(acp.text_block("O-12345")) == "end_turn"
        assert "Order O-12345 is on its way." in opened.editor.read()


@pytest.mark.parametrize(
    ("team", "expected"),
    [
        ("missing.yaml", "missing.yaml"),
        ("agents: [{id: a, backend: {type: openai, model: x}}]", "OPENAI_API_KEY"),
        ("agents: [{id: a, backend: {tpye: scripted}}]", "tpye"),
    ],
)
async def test_wrong_setup_is_said_in_the_editor_and_can_be_mended(
    tmp_path: Path, project: Path, team: str, expected: str
) -> None:
    path = tmp_path / "missing.yaml"
    if ":" in team:
        path.write_text(team)
    async with open_editor(str(path), project) as opened:
        with pytest.raises(acp.RequestError, match=expected):
            await opened.begin()
        path.write_text(Path(write_team(tmp_path, script("It is blue."))).read_text())
        await opened.begin()
        assert await opened.ask() == "end_turn"


async def test_turn_that_fails_is_an_error_with_what_to_do(tmp_path: Path, project: Path) -> None:
    team = write_team(tmp_path, {"answer": [{"error": "auth"}]})
    async with open_editor(team, project) as opened:
        await opened.begin()
        with pytest.raises(acp.RequestError, match=r".+"):
            await opened.ask()
        assert "a: failed" in json.dumps(opened.editor.list_updates("plan")[-1])


async def test_editor_that_goes_in_the_middle_leaves_a_turn_that_can_be_finished(tmp_path: Path, project: Path) -> None:
    slow = {"answer": [{"text": "Green.", "delay": 30}, "Green."], "vote": "first"}
    team = write_team(tmp_path, script("It is blue."), slow, memory={})
    async with open_editor(team, project) as opened:
        await opened.begin()
        asking = asyncio.create_task(opened.ask())
        await opened.editor.wait_for("a answers")
        children = psutil.Process(opened.process.pid).children(recursive=True)
        assert opened.process.stdin is not None
        opened.process.stdin.close()
        gone = monotonic()
        assert await opened.process.wait() == 0
        assert monotonic() - gone < 10  # 2 s on a quiet machine
        with suppress(Exception):
            await asking
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert (tmp_path / "stderr").read_text() == ""
    write_team(tmp_path, script("It is blue."), script("Green."), memory={})
    finished = massmem("--session-id", opened.session, "--config", team, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == "It is blue."


async def test_nonsense_on_the_wire_ends_nothing(tmp_path: Path, project: Path) -> None:
    lines = [
        b"", b"hello", b"[1, 2]", b"7", b'"x"', b"null", b'{"id": {}}', b'{"id": 5, "result": null}', b"\xff\xfe{",
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": 1}}',
        b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "nobody"}}',
        b'{"jsonrpc": "2.0", "method": "session/cancel", "params": 7}',
        b'{"jsonrpc": "2.0", "method": ["x"], "id": 99}',
        b'{"jsonrpc": "2.0", "method": "session/prompt", "params": {"sessionId": 5}, "id": 98}',
        b"x" * 20_000_000,
    ]  # fmt: skip
    async with open_editor(write_team(tmp_path, script("It is blue.")), project) as opened:
        await opened.begin()
        for line in lines:
            await opened.write(line)
        for method in ("session/fork", "no/such"):
            with pytest.raises(acp.RequestError):
                await opened.agent._conn.send_request(method, {})
        with pytest.raises(acp.RequestError, match="longer than 1,000,000 characters"):
            await opened.ask(acp.text_block("x" * 3_000_000))
        with pytest.raises(acp.RequestError, match="the question is empty"):
            await opened.ask(acp.text_block(" "))
        assert await opened.ask() == "end_turn"
        assert "It is blue." in opened.editor.read()


async def test_a_message_that_is_too_long_is_refused_and_the_session_goes_on(tmp_path: Path, project: Path) -> None:
    async with open_editor(write_team(tmp_path, script("It is blue.")), project) as opened:
        await opened.begin()
        with pytest.raises(acp.RequestError, match="the message has more than 150 MB: send smaller files with it"):
            await opened.ask(acp.text_block("x" * 151_000_000))
        peak = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{opened.process.pid}/status").read_text())
        assert peak is None or int(peak[1]) < 400_000, "the message is held once at most"
        assert await opened.ask() == "end_turn"
        assert "It is blue." in opened.editor.read()


@pytest.mark.parametrize(("start", "end", "number"), [
    (b'{"jsonrpc": "2.0", "method": "m", "id": 7, "params": {"x": "', b'"}}', 7),
    (b'{"params": {"id": 6, "x": "', b'"}, "id": "q", "jsonrpc": "2.0"}', "q"),
    (b'{"params": {"id": 6, "x": "', b'", "id": 6}}', None),
    (b'{"params": {"x": "', b', \\"id\\": 6}"}}', None),
])  # fmt: skip
async def test_request_that_is_too_long_is_known_by_its_own_id(
    tmp_path: Path, project: Path, start: bytes, end: bytes, number: object
) -> None:
    async with open_editor(write_team(tmp_path, script("It is blue.")), project) as opened:
        events: Any = []
        opened.agent._conn.add_observer(events.append)
        await opened.write(start + b"x" * 150_000_000 + end)
        await opened.begin()
        assert [(m["id"], m["error"]["code"]) for m in (e.message for e in events) if "error" in m] == [
            (number, -32_600)
        ]


async def test_jobs_that_cannot_be_read_are_named_with_the_next_question(tmp_path: Path, project: Path) -> None:
    jobs = project / ".massmem" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "names.yaml").write_text("summary: Names.\nrule: x\n")
    async with open_editor(write_team(tmp_path, script("It is blue.")), project) as opened:
        assert "names" not in [mode.id for mode in (await opened.begin()).modes.available_modes]
        await opened.ask()
        named = f"the job names is left out: {jobs / 'names.yaml'}:2: rule: unknown key"
        assert opened.editor.read("agent_thought_chunk").count(named) == 1
        await opened.ask()
        assert opened.editor.read("agent_thought_chunk").count(named) == 1


def test_stdout_has_the_protocol_alone_and_the_end_of_stdin_is_the_end(tmp_path: Path) -> None:
    team = write_council(tmp_path, files={"attached": []})
    hello: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    begin: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "session/new",
        "params": {"cwd": str(tmp_path), "mcpServers": []},
    }
    ran = run_program("acp", "--config", team, stdin="".join(json.dumps(m) + "\n" for m in (hello, begin)).encode())
    assert ran.returncode == 0, ran.stderr
    replies = [json.loads(line) for line in ran.stdout.splitlines()]
    assert replies[0]["result"]["agentCapabilities"]["loadSession"] is True
    assert b"Traceback" not in ran.stderr


def test_command_without_an_editor_is_refused(tmp_path: Path) -> None:
    ran = run_program("acp", "--config", write_council(tmp_path))
    assert ran.returncode == 2
    assert b"add massmem acp to the editor's settings" in ran.stderr
