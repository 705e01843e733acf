from pathlib import Path
from typing import get_args

import pytest

from massmem.config.checks import NEEDS_MODEL
from massmem.config.models import BackendType
from massmem.providers.presets import PRESETS
from tests.support.configs import AGENT, load, problems

STORES = "is no supported store; supported: sqlite://, postgresql://, redis://, rediss://, unix://"
ADDRESS = "must be an address such as http://localhost:8080"
TRANSPORT = "give either command (stdio) or url (HTTP)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            AGENT + "  - {id: a, backend: {type: local}}\n",
            "4: agents.1.id: 'a' is already the id of the agent on line 2",
        ),
        ("session_id: ../etc\n", "4: session_id: '../etc' must be 1 to 128 letters, digits, '_', '-' or '.'"),
        ("session_id: a..b\n", "4: session_id: 'a..b' must be 1 to 128 letters, digits, '_', '-' or '.'"),
        ("store: {url: postgrsql://db/x}\n", f"4: store.url: 'postgrsql://' {STORES} (did you mean 'postgresql'?)"),
        ("store: {url: mysql://me:hunter2hunter2@db/x}\n", f"4: store.url: 'mysql://' {STORES}"),
        ("store: {url: /tmp/x.db}\n", f"4: store.url: '/tmp/x.db' {STORES}"),
        ("server: {jwt: {secret: short}}\n", "4: server.jwt.secret: must be at least 32 bytes"),
        ("    mcp_servers: [{name: f}]\n", f"4: agents.0.mcp_servers.0: {TRANSPORT}"),
        ("    mcp_servers: [{name: f, command: x, url: 'http://x'}]\n", f"4: agents.0.mcp_servers.0: {TRANSPORT}"),
        ("    mcp_servers: [{name: f, url: here}]\n", f"4: agents.0.mcp_servers.0.url: 'here' {ADDRESS}"),
        (
            "memory:\n  persistent_memory:\n    llm: {model: x}\n",
            "6: memory.persistent_memory.llm.provider: is missing",
        ),
        (
            "    memory: {persistent_memory: {llm: {model: x}}}\n",
            "4: agents.0.memory.persistent_memory.llm.provider: is missing",
        ),
        (
            "memory: {persistent_memory: {qdrant: {url: 'qdrant:6333'}}}\n",
            f"4: memory.persistent_memory.qdrant.url: 'qdrant:6333' {ADDRESS}",
        ),
    ],
)
def test_beside_the_backend(tmp_path: Path, text: str, expected: str) -> None:
    text = text if text.startswith("agents") else AGENT + text
    assert problems(tmp_path, text) == [f"team.yaml:{expected}"]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("type: openai, script: {}", "script: does not belong to type openai; only scripted has it"),
        (
            "type: openai, thinking_tokens: 2048",
            "thinking_tokens: does not belong to type openai; only anthropic has it",
        ),
        ("type: local, base_url: 'http://x'", "base_url: does not belong to type local"),
        ("type: scripted, api_key: k", "api_key: does not belong to type scripted"),
        (
            "type: anthropic, thinking_tokens: 2048, max_tokens: 2048",
            "thinking_tokens: must be less than max_tokens, which counts thinking too",
        ),
        ("type: groq", "model: is missing: type groq needs the name of a model"),
        ("type: openai, base_url: 'localhost:11434'", f"base_url: 'localhost:11434' {ADDRESS}"),
        ("type: openai, base_url: 'http://[::1'", f"base_url: 'http://[::1' {ADDRESS}"),
    ],
)
def test_backend(tmp_path: Path, backend: str, expected: str) -> None:
    text = f"agent:\n  id: a\n  backend: {{{backend}}}\n"
    assert problems(tmp_path, text) == [f"team.yaml:3: agent.backend.{expected}"]


@pytest.mark.parametrize(
    "url",
    ["sqlite:///x.db", "postgresql://h/x", "redis://h:6379/0", "rediss://h", "unix:///run/redis.sock?db=1", "memory:"],
)
def test_supported_stores(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, AGENT + f"store: {{url: '{url}'}}\n").store.url == url


def test_types_without_a_usual_model_are_those_of_the_providers() -> None:
    no_default = {kind for kind, preset in PRESETS.items() if not preset.default_model}
    assert no_default - {"local", "scripted"} == NEEDS_MODEL
    assert set(PRESETS) == set(get_args(BackendType))
