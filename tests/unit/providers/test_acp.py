"""Agent programs as members: what is asked of them, what they may do, and what becomes of those that misbehave."""

import asyncio
import json
import os
import shutil
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from massmem.cli.keys import store_key
from massmem.cli.setup import read_environment
from massmem.config.load import load_config, resolve_agents
from massmem.config.models import BackendConfig
from massmem.core.errors import (
    AuthenticationError,
    ConfigError,
    InputError,
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
)
from massmem.core.messages import (
    PDF,
    ActivityChunk,
    ChatMessage,
    ChatRequest,
    Chunk,
    NoticeChunk,
    Purpose,
    Reply,
    make_attachment,
)
from massmem.providers.acp import AcpFactory, write_prompt
from massmem.providers.base import ChatProvider, ask
from massmem.tools.program_folder import ProgramFolder
from tests.support.pictures import PNG

ROOT = Path(__file__).parents[3]


def command(how: str, log: Path | None = None) -> list[str]:
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv[0] = 'agent'; "
    run = "import runpy; runpy.run_module('tests.support.acp_agent', run_name='__main__')"
    return [sys.executable, "-c", start + run, how, *([str(log)] if log else [])]


def backend(how: str, log: Path | None = None, **settings: Any) -> BackendConfig:
    return BackendConfig.model_validate({"type": "acp", "command": command(how, log), **settings})


def request(text: str = "How much is 2 + 2?", purpose: Purpose = "answer", **fields: Any) -> ChatRequest:
    return ChatRequest((ChatMessage("user", text),), purpose, **fields)


@pytest.fixture
async def factory() -> AsyncGenerator[AcpFactory]:
    factory = AcpFactory(ProgramFolder)
    yield factory
    await factory.close()


async def collect(provider: ChatProvider, asked: ChatRequest) -> tuple[Reply, list[Chunk]]:
    reply, chunks = Reply(), list[Chunk]()
    async with aclosing(provider.stream(asked)) as stream:
        async for chunk in stream:
            reply.feed(chunk)
            chunks.append(chunk)
    return reply, chunks


def read_log(log: Path, method: str) -> list[dict[str, Any]]:
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    return [message["params"] for message in messages if message.get("method") == method]


async def test_a_program_answers_in_a_session_that_only_reads(factory: AcpFactory, tmp_path: Path) -> None:
    log = tmp_path / "log"
    reply, chunks = await collect(factory.open(backend("plain", log)), request())
    assert (reply.text, reply.reasoning, reply.finish) == ("It is 4.", "Let me see.", "stop")
    assert (reply.usage.prompt, reply.usage.completion, reply.usage.reported) == (3_000, 20, True)
    assert reply.usage.cost is None
    assert ActivityChunk("working", what="reads src/a.py") in chunks
    assert [params["modeId"] for params in read_log(log, "session/set_mode")] == ["plan"]
    folder = Path(read_log(log, "session/new")[0]["cwd"])
    await factory.close()
    assert not folder.exists()


async def test_usage_that_nobody_reports_is_unknown_and_not_zero(factory: AcpFactory) -> None:
    reply = await ask(factory.open(backend("no usage")), request())
    assert not reply.usage.reported


async def test_each_request_is_a_session_with_the_whole_prompt(factory: AcpFactory, tmp_path: Path) -> None:
    log = tmp_path / "log"
    provider = factory.open(backend("plain", log))
    messages = (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "My name is Zoe."),
        ChatMessage("assistant", "Hello Zoe."),
        ChatMessage("user", "Who am I?"),
    )
    await ask(provider, ChatRequest(messages, "answer"))
    await ask(provider, request("And now?", "vote", schema={"type": "object"}))
    first, second = (params["prompt"][0]["text"] for params in read_log(log, "session/prompt"))
    parts = ("Be brief.", "The user:\nMy name is Zoe.", "You:\nHello Zoe.", "Who am I?")
    places = [first.index(part) for part in parts]
    assert places == sorted(places)
    assert second.startswith("And now?")
    assert second.endswith('{"type": "object"}')
    assert len(read_log(log, "initialize")) == 1
    assert len(read_log(log, "session/new")) == 2


@pytest.mark.parametrize(
    ("change", "continues"),
    [
        ((), True),
        ((ChatMessage("user", "My name is [forgotten]."), ChatMessage("assistant", "It is 4.")), False),
        ((ChatMessage("user", "My name is Zoe."), ChatMessage("assistant", "It is 5.")), False),
        ((ChatMessage("user", "What was said before, in short: nothing."),), False),
    ],
)
async def test_a_session_goes_on_only_below_a_prompt_that_holds_it_to_the_letter(
    factory: AcpFactory, tmp_path: Path, change: tuple[ChatMessage, ...], continues: bool
) -> None:
    log = tmp_path / "log"
    provider = factory.open(backend("plain", log))
    question, answer = ChatMessage("user", "My name is Zoe."), ChatMessage("assistant", "It is 4.")
    await ask(provider, ChatRequest((question,), "answer"))
    more = ChatMessage("user", "Who am I?")
    await ask(provider, ChatRequest((*(change or (question, answer)), more), "answer"))
    assert len(read_log(log, "session/new")) == (1 if continues else 2)
    text = read_log(log, "session/prompt")[1]["prompt"][0]["text"]
    assert ("Zoe" in text) == ("Zoe" in str(change))
    await ask(provider, ChatRequest((question, answer, ChatMessage("user", "Another branch.")), "answer"))
    assert len(read_log(log, "session/new")) == 2, "each session goes on once"


async def test_files_reach_a_program_that_takes_them(factory: AcpFactory, tmp_path: Path) -> None:
    log = tmp_path / "log"
    provider = factory.open(backend("pictures", log))
    assert provider.abilities.vision is None
    shown = make_attachment("plan.png", "image/png", PNG), make_attachment("a b.pdf", PDF, b"%PDF-1.4")
    _, chunks = await collect(provider, ChatRequest((ChatMessage("user", "What is it?", attachments=shown),), "answer"))
    assert not any(isinstance(chunk, NoticeChunk) for chunk in chunks)
    _, picture, document = read_log(log, "session/prompt")[0]["prompt"]
    assert picture == {"type": "image", "mimeType": "image/png", "data": b64encode(PNG).decode()}
    assert document["resource"]["uri"] == "attachment:///a%20b.pdf"
    assert provider.abilities.vision is None, "its model may not see"
    assert factory.open(backend("pictures", vision=False)).abilities.vision is False


async def test_names_of_files_that_a_program_does_not_take(factory: AcpFactory, tmp_path: Path) -> None:
    log = tmp_path / "log"
    provider = factory.open(backend("plain", log, vision=True))
    shown = make_attachment("plan.png", "image/png", PNG)
    _, chunks = await collect(
        provider, ChatRequest((ChatMessage("user", "What is it?", attachments=(shown,)),), "answer")
    )
    assert NoticeChunk("it takes no such files, and answers without them: plan.png") in chunks
    assert len(read_log(log, "session/prompt")[0]["prompt"]) == 1
    assert provider.abilities.vision is False


async def test_sum_of_the_tokens_of_a_programs_own_requests(factory: AcpFactory) -> None:
    reply = await ask(factory.open(backend("requests")), request())
    assert (reply.usage.prompt, reply.usage.completion) == (6_000, 40)


async def test_an_agent_of_the_official_sdk_answers(factory: AcpFactory) -> None:
    reply = await ask(factory.open(backend("sdk")), request("What is that?"))
    assert reply.text.startswith("You said: What is that?")
    assert reply.text.endswith("!")


@pytest.mark.parametrize(("kind", "outcome"), [("read", "o_allow_once"), ("fetch", "o_reject_once")])
async def test_permission_needs_a_kind_that_the_configuration_allows(
    factory: AcpFactory, kind: str, outcome: str
) -> None:
    reply, chunks = await collect(factory.open(backend("permission")), request(kind))
    assert reply.text == outcome
    assert any(isinstance(chunk, ActivityChunk) and "may not" in chunk.what for chunk in chunks) == (kind != "read")


@pytest.mark.parametrize(
    ("path", "outcome"),
    [("a.py", "o_allow_once"), ("/etc/passwd", "o_reject_once"), ("~/.ssh/id_rsa", "o_reject_once"),
     ("../x", "o_reject_once"), ("link", "o_reject_once"), (".env", "o_reject_once")],
)  # fmt: skip
async def test_permission_ends_at_the_folder_and_at_secrets(
    factory: AcpFactory, tmp_path: Path, path: str, outcome: str
) -> None:
    (tmp_path / "link").symlink_to("/etc")
    provider = factory.open(backend("permission", folder=str(tmp_path)))
    assert (await ask(provider, request(f"read {path}"))).text == outcome


@pytest.mark.parametrize("kind", ["edit", "execute", "delete", "move", "other", "switch_mode"])
async def test_no_setting_allows_a_change(factory: AcpFactory, kind: str) -> None:
    allowed = backend("permission", allow=["read", "search", "fetch"])
    assert (await ask(factory.open(allowed), request(kind))).text == "o_reject_once"
    with pytest.raises(ValueError, match="allow"):
        backend("permission", allow=[kind])


async def test_files_that_a_program_reads_by_us_have_our_rules_for_secrets(factory: AcpFactory, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / ".env").write_text("KEY=secret\n")
    provider = factory.open(backend("read", folder=str(tmp_path)))
    assert (await ask(provider, request("a.py"))).text == "x = 1\ny = 2\n"
    for path in (".env", "/etc/passwd", "../x", "none.py"):
        assert "cannot be read" in (await ask(provider, request(path))).text


async def test_keys_that_massmem_was_given_stay_with_it(
    factory: AcpFactory, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    store_key(home / ".massmem", "ANTHROPIC_API_KEY", "sk-ant-of-massmem")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-shell")
    read_environment()
    assert os.environ["ANTHROPIC_API_KEY"] == "sk-ant-of-massmem"
    provider = factory.open(backend("variable"))
    assert (await ask(provider, request("ANTHROPIC_API_KEY"))).text == "not set"
    assert (await ask(provider, request("OPENAI_API_KEY"))).text == "sk-of-the-shell"


async def test_noise_and_unknown_updates_change_no_reply(factory: AcpFactory) -> None:
    assert (await ask(factory.open(backend("noise")), request())).text == "It is 4."


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("die", ProviderConnectionError, "panic: out of luck"),
        ("silent", ProviderTimeout, "nothing came for 1 s"),
        ("flood", MalformedResponse, "more than 4,000,000 characters"),
        ("endless line", ProviderConnectionError, "has ended"),
        ("next version", MalformedResponse, "version 2"),
        ("login", AuthenticationError, "Authentication required"),
        ("nothing", MalformedResponse, "has said nothing"),
    ],
)
async def test_a_program_that_misbehaves_makes_its_agent_fail(
    factory: AcpFactory, how: str, error: type[ProviderError], words: str
) -> None:
    provider = factory.open(backend(how, timeout=1 if how == "silent" else 60, deadline=120))
    with pytest.raises(error, match=words):
        await ask(provider, request())
    await factory.close()
    assert not find_programs(how)


async def test_a_program_that_has_ended_is_started_again(factory: AcpFactory, tmp_path: Path) -> None:
    log = tmp_path / "log"
    provider = factory.open(backend("die", log))
    for _ in range(2):
        with pytest.raises(ProviderConnectionError):
            await ask(provider, request())
    assert len(read_log(log, "initialize")) == 2


async def test_cancelling_a_request_ends_a_program_that_goes_on(factory: AcpFactory) -> None:
    asking = asyncio.create_task(ask(factory.open(backend("silent")), request()))
    while not find_programs("silent"):
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not find_programs("silent")


async def test_without_a_mode_that_reads_the_user_is_told_once(factory: AcpFactory) -> None:
    provider = factory.open(backend("no modes"))
    notices = [chunk for _ in range(2) for chunk in (await collect(provider, request()))[1]]
    assert [chunk.text for chunk in notices if isinstance(chunk, NoticeChunk)] == [
        "it has no mode that only reads: what it does without asking, massmem cannot prevent (sandbox: bwrap can)"
    ]


async def test_a_sandbox_keeps_a_program_from_writing(
    factory: AcpFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, written = tmp_path / "place", tmp_path / "place" / "x"
    place.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert (await ask(factory.open(backend("write", folder=str(place))), request(str(written)))).text == "wrote"
    written.unlink()
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    # The interpreter and the tests stand outside of what a sandbox shows.
    boxed = backend("write", folder=str(place), sandbox="bwrap")
    shell = ["sh", "-c", f"touch {written} || echo no >&2; ls {ROOT} >&2"]
    with pytest.raises(ProviderConnectionError, match="No such file"):
        await ask(factory.open(boxed.model_copy(update={"command": tuple(shell)})), request())
    assert not written.exists()


def test_a_missing_program_is_named_with_what_installs_it(factory: AcpFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="opencode") as caught:
        factory.open(BackendConfig(type="opencode"))
    assert "npm install -g opencode-ai" in caught.value.hint


def test_a_program_works_in_the_folder_of_the_question(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("agents: [{id: a, backend: {type: opencode}, folders: [src]}]\n")
    (agent,) = resolve_agents(load_config(str(path))[0], {})
    assert agent.backend.folder == str(tmp_path / "src")
    assert not agent.folders


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{type: acp}", "command: is missing"),
        ("{type: openai, model: m, command: [x]}", "command: does not belong to type openai"),
    ],
)
def test_settings_of_programs_are_checked(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"agents: [{{id: a, backend: {text}}}]\n")
    with pytest.raises(ConfigError, match=problem):
        load_config(str(path))


def test_results_of_tools_stand_in_the_prompt_as_such() -> None:
    messages = (ChatMessage("tool", "42"), ChatMessage("user", "So?"))
    assert write_prompt(ChatRequest(messages, "answer")).startswith("A tool:\n42\n\nSo?")


def find_programs(how: str) -> list[int]:
    """Return the programs of this test that run."""
    own = psutil.Process(os.getpid()).children(recursive=True)
    return [process.pid for process in own if process.is_running() and how in " ".join(_words(process))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()[-1:]
    except psutil.Error:
        return []
