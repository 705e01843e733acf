"""`massmem init` as a process: what it finds, asks, writes and tries."""

import asyncio
import json
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from massmem.cli.candidates import Draft, Found, find
from massmem.cli.config_text import EXTRACTORS, config_text
from massmem.config.load import KEYED, load_config
from massmem.providers.loopback import LocalServer
from massmem.providers.offers import Offered
from tests.support.cli import massmem
from tests.support.loopback import skip_beside_model_servers
from tests.support.provider_stub import Http, OpenAIWire, Say, Stub, running_stub

KEY = "sk-proj-0123456789abcdefghijklmnop"


def says(value: object) -> Http:
    return Http(headers={"content-type": "application/json"}, parts=[json.dumps(value).encode()])


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model on disk, and no server on this machine but those of a test."""
    skip_beside_model_servers()
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@pytest.fixture
async def ollama(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stub]:
    async with running_stub() as stub:
        stub.routes = {
            "/v1/models": says({"data": [{"id": "nomic-embed-text:latest"}, {"id": "small:1b"}, {"id": "big:8b"}]}),
            "/api/ps": says({"models": [{"name": "big:8b", "context_length": 8192}]}),
            "/api/show": says({}),
            "/v1/chat/completions": OpenAIWire().stream(Say(["ready"])),
        }
        monkeypatch.setenv("OLLAMA_HOST", stub.url)
        yield stub


async def init(*arguments: str, **options: Any) -> tuple[int, str, str]:
    ran = await asyncio.to_thread(massmem, "init", *arguments, **options)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


async def test_a_server_on_this_machine_becomes_a_team_that_answers(ollama: Stub, home: Path):
    code, out, err = await init("--yes")
    path = home / ".massmem" / "config.yaml"
    assert (code, out) == (0, f"{path}\n"), err
    assert f"found Ollama at {ollama.url}/v1: small:1b, big:8b\n" in err
    assert re.search(r"ollama big:8b answered in \d+\.\d s\n", err), "the one that is loaded already"
    assert err.endswith('massmem: ask with: massmem "your question"\n')
    team, warnings = load_config(path, {})
    assert warnings == []
    assert [(a.backend.type, a.backend.model, a.backend.base_url) for a in team.agents] == [
        ("ollama", "big:8b", f"{ollama.url}/v1")
    ] * 3
    assert len([r for r in ollama.requests if r.path == "/v1/chat/completions"]) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_it_does_not_ask_where_nobody_can_answer(ollama: Stub, home: Path):
    assert (await init("--no-try"))[0] == 0
    assert (home / ".massmem" / "config.yaml").exists()


async def test_the_editors_line_leads_to_the_schema(ollama: Stub, home: Path):
    await init("--yes", "--no-try")
    first = (home / ".massmem" / "config.yaml").read_text().splitlines()[0]
    name = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert name
    assert json.loads((home / ".massmem" / name[1]).read_text())["title"] == "massmem configuration"


async def test_a_file_that_is_there_stays_or_is_kept_beside_the_new_one(ollama: Stub, home: Path):
    path = home / ".massmem" / "config.yaml"
    path.parent.mkdir()
    path.write_text("mine: 1\n")
    code, _, err = await init("--yes", "--no-try")
    assert code == 2
    assert f"{path} exists already\n  add --force" in err
    assert path.read_text() == "mine: 1\n"
    assert (await init("--yes", "--no-try", "--force"))[0] == 0
    (kept,) = path.parent.glob("config.yaml.bak-*")
    assert kept.read_text() == "mine: 1\n"
    assert "big:8b" in path.read_text()
    assert not list(path.parent.glob(".config*"))


async def test_another_place(ollama: Stub, tmp_path: Path, home: Path):
    path = tmp_path / "team.yaml"
    code, out, err = await init("--yes", "--no-try", "--output", str(path))
    assert (code, out) == (0, f"{path}\n")
    assert f'massmem --config {path} "your question"' in err
    assert sorted(tmp_path.iterdir()) == sorted([home, path])
    code, _, err = await init("--yes", "--output", str(tmp_path / "no" / "team.yaml"))
    assert code == 2
    assert "cannot be written" in err


async def test_nothing_that_could_answer(home: Path):
    code, out, err = await init("--yes")
    assert (code, out) == (2, "")
    assert "there is no key, no model server and no model on this machine that could answer" in err
    assert "massmem models fetch" in err
    assert "export OPENAI_API_KEY" in err
    assert not (home / ".massmem").exists()


async def test_json(ollama: Stub, home: Path):
    code, out, _ = await init("--json")
    said = json.loads(out)
    assert (code, said["path"]) == (0, str(home / ".massmem" / "config.yaml"))
    assert said["found"] == {
        "keys": [],
        "servers": [
            {
                "type": "ollama",
                "base_url": f"{ollama.url}/v1",
                "models": ["nomic-embed-text:latest", "small:1b", "big:8b"],
            }
        ],
        "embedded": False,
    }
    assert [(a["id"], a["model"]) for a in said["agents"]] == [
        ("researcher", "big:8b"), ("skeptic", "big:8b"), ("editor", "big:8b")
    ]  # fmt: skip
    assert said["tried"][0]["ok"] is True


async def test_a_model_that_does_not_answer_is_told_and_the_file_stays(ollama: Stub, home: Path):
    ollama.routes["/v1/chat/completions"] = OpenAIWire().error(404, "model not found")
    code, _, err = await init("--yes")
    assert code == 2
    assert "ollama big:8b: " in err
    assert "mend that, then run: massmem doctor\n" in err
    assert (home / ".massmem" / "config.yaml").exists()


async def test_a_key_never_reaches_the_file_and_is_tried(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    async with running_stub() as stub:
        stub.routes = {"/v1/chat/completions": OpenAIWire().stream(Say(["ready"]))}
        (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        code, out, err = await init("--yes", cwd=tmp_path)
    assert code == 0, err
    assert "found the key OPENAI_API_KEY (in ./.env, which counts in this folder only)" in err
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"
    text = (home / ".massmem" / "config.yaml").read_text()
    assert "api_key: ${OPENAI_API_KEY}" in text
    for shown in (text, out, err):
        assert KEY[8:20] not in shown


def terminal(*arguments: str) -> "pexpect.spawn[str]":
    return pexpect.spawn(
        sys.executable, ["-m", "massmem", "init", "--no-try", *arguments], env=dict(os.environ), encoding="utf-8",
        timeout=30, dimensions=(40, 200),
    )  # fmt: skip


async def test_three_questions_at_most(ollama: Stub, home: Path, monkeypatch: pytest.MonkeyPatch):
    path = home / ".massmem" / "config.yaml"
    path.parent.mkdir()
    path.write_text("mine: 1\n")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def talk() -> str:
        child = terminal()
        child.expect(r"Replace it \(the old one is kept\)\? \[y/N\]")
        child.sendline("y")
        child.expect(r"1  openai .* \(OPENAI_API_KEY\)\r\n  2  big:8b of Ollama on this machine\r\n")
        child.expect(r"Which models\? \[1\]")
        child.sendline("7")
        child.expect("a number from 1 to 2")
        child.expect(r"Which models\? \[1\]")
        child.sendline("2")
        child.expect(r"1  big:8b\r\n  2  small:1b\r\n")
        child.expect(r"Which model\? \[1\]")
        child.sendline("2")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        return child.before or ""

    rest = await asyncio.to_thread(talk)
    assert "?" not in rest
    assert {agent.backend.model for agent in load_config(path, {})[0].agents} == {"small:1b"}


async def test_a_no_leaves_everything_as_it_was(ollama: Stub, home: Path):
    path = home / ".massmem" / "config.yaml"
    path.parent.mkdir()
    path.write_text("mine: 1\n")

    def talk() -> int | None:
        child = terminal()
        child.expect(r"\[y/N\]")
        child.sendline("")
        child.expect(pexpect.EOF)
        child.close()
        return child.exitstatus

    assert await asyncio.to_thread(talk) == 2
    assert path.read_text() == "mine: 1\n"


async def test_control_c_is_130(ollama: Stub, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def talk() -> int | None:
        child = terminal()
        child.expect(r"Which models\?")
        child.sendintr()
        child.expect(pexpect.EOF)
        child.close()
        return child.exitstatus

    assert await asyncio.to_thread(talk) == 130
    assert not (home / ".massmem" / "config.yaml").exists()


# What is chosen, and what is written


def test_keys_of_several_makers_become_one_council():
    keys = (Draft("openai", "a", "OPENAI_API_KEY"), Draft("anthropic", "b", "ANTHROPIC_API_KEY"))
    first, *others = Found(keys, (), embedded=True).choices()
    assert [draft.type for draft in first.backends] == ["openai", "anthropic", "openai"]
    assert [choice.backends[0].type for choice in others] == ["openai", "anthropic", "local"]


def test_a_server_that_only_embeds_is_no_choice():
    servers = (LocalServer("ollama", "http://localhost:11434/v1", (Offered("nomic-embed-text"),)),)
    assert Found((), servers, embedded=False).choices() == []


async def test_the_usual_model_of_every_key():
    environ = {variable: "x" for variable, _, _ in KEYED} | {"OLLAMA_HOST": "127.0.0.1:9"}
    found = await find(environ)
    assert len(found.keys) == len({kind for _, kind, _ in KEYED})
    assert all(draft.model for draft in found.keys)


CASES = {
    "one key": (Draft("openai", "gpt-5.4-mini", "OPENAI_API_KEY"),),
    "three makers": tuple(Draft(kind, "m", f"{kind.upper()}_API_KEY") for kind in ("openai", "anthropic", "gemini")),
    "two makers": (Draft("openai", "m", "A_KEY"), Draft("groq", "openai/gpt-oss-120b", "B_KEY")),
    "embedded": (Draft("local"),),
    "a server": (Draft("vllm", 'odd "name": #1 ${x}', base_url="http://localhost:8001/v1", window=4096),),
}


@pytest.mark.parametrize("backends", CASES.values(), ids=CASES)
@pytest.mark.parametrize("extracting", [False, True])
def test_what_is_written_is_valid(backends: tuple[Draft, ...], extracting: bool, tmp_path: Path):
    able = next((draft for draft in backends if draft.type in EXTRACTORS), None)
    text = config_text(backends, "team.yaml", "schema.json", able if extracting else None)
    path = tmp_path / "team.yaml"
    path.write_text(text)
    environ = {draft.key: "k" for draft in backends if draft.key}
    team, warnings = load_config(path, environ)
    assert warnings == []
    assert [agent.id for agent in team.agents] == ["researcher", "skeptic", "editor"]
    used = [(agent.backend.type, agent.backend.model, agent.backend.base_url or "") for agent in team.agents]
    assert used == [(d.type, d.model, d.base_url) for d in (backends * 3)[:3]]
    assert (team.memory.persistent_memory.llm is not None) == (extracting and able is not None)
    assert all(len(line) <= 125 for line in text.splitlines())
    # Every setting that is commented out can be switched on as it stands there.
    path.write_text(re.sub(r"(?m)^( *)# (?=(context_window|max_tokens): )", r"\1", text))
    load_config(path, environ)
