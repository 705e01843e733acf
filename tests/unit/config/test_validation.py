from pathlib import Path
from typing import get_args

import pytest

from massmem.config.models import BackendType
from massmem.config.validation import NEEDS_MODEL
from massmem.providers.presets import PRESETS
from tests.support.configs import AGENT, load, problems

STORES = "is no supported store; supported: sqlite://, postgresql://, redis://, rediss://, unix://"
ADDRESS = "must be an address such as http://localhost:8080"
ID = "must be 1 to 64 letters, digits, '_', '-' or '.', with no '-' or '.' first"
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
def test_rules_outside_the_backend(tmp_path: Path, text: str, expected: str) -> None:
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
def test_rules_of_a_backend(tmp_path: Path, backend: str, expected: str) -> None:
    text = f"agent:\n  id: a\n  backend: {{{backend}}}\n"
    assert problems(tmp_path, text) == [f"team.yaml:3: agent.backend.{expected}"]


@pytest.mark.parametrize(
    "url",
    ["sqlite:///x.db", "postgresql://h/x", "redis://h:6379/0", "rediss://h", "unix:///run/redis.sock?db=1", "memory:"],
)
def test_supported_stores_are_accepted(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, AGENT + f"store: {{url: '{url}'}}\n").store.url == url


def test_types_that_need_a_model_match_the_presets() -> None:
    no_default = {kind for kind, preset in PRESETS.items() if not preset.default_model}
    assert no_default - {"local", "scripted"} == NEEDS_MODEL
    assert set(PRESETS) == set(get_args(BackendType))


def test_all_problems_are_reported_at_once_with_lines_and_suggestions(tmp_path: Path) -> None:
    text = """\
agents:
  - id: a
    backend: {type: opnai}
    temperature: 1
  - id: a
    backend:
      type: openai
      temprature: 3
      max_tokens: none
    memory:
      retrieval: {limitt: 3}
cordination: {}
memory:
  enabled: maybe
  retrieval: [5]
server:
  port: 70000
"""
    messages = problems(tmp_path, text)
    assert messages[0].startswith("team.yaml:3: agents.0.backend.type: 'opnai' is not one of openai, anthropic, local,")
    assert messages[0].endswith(" (did you mean 'openai'?)")
    assert messages[1:] == [
        "team.yaml:4: agents.0.temperature: unknown key (did you mean 'backend.temperature'?)",
        "team.yaml:5: agents.1.id: 'a' is already the id of the agent on line 2",
        "team.yaml:8: agents.1.backend.temprature: unknown key (did you mean 'temperature'?)",
        "team.yaml:9: agents.1.backend.max_tokens: must be a whole number, not 'none'",
        "team.yaml:11: agents.1.memory.retrieval.limitt: unknown key (did you mean 'limit'?)",
        "team.yaml:12: cordination: unknown key (did you mean 'coordination'?)",
        "team.yaml:14: memory.enabled: must be true or false, not 'maybe'",
        "team.yaml:15: memory.retrieval: must be a mapping, not a list",
        "team.yaml:17: server.port: must be less than or equal to 65535, not 70000",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory: {}\n", "1: agents: is missing: give agents (a list) or agent"),
        ("agents: []\n", "1: agents: must not be empty"),
        ("agents: {a: 1}\n", "1: agents: must be a list, not a mapping"),
        ("agents: [7]\n", "1: agents.0: must be a mapping, not 7"),
        ("agents:\n  - id: a\n", "2: agents.0.backend: is missing"),
        ("agents:\n  - backend: {type: scripted}\n", "2: agents.0.id: is missing"),
        ("agent:\n  id: a b\n  backend: {type: scripted}\n", f"2: agent.id: {ID}, not 'a b'"),
        ("agent:\n  id: 7\n  backend: {type: scripted}\n", "2: agent.id: must be text (put it in quotes), not 7"),
        ("agent:\n  id: a\n  backend: scripted\n", "3: agent.backend: must be a mapping, not 'scripted'"),
        ("agent: {id: a, backend: {type: openai, api_key: ''}}\n", "1: agent.backend.api_key: must not be empty"),
        (
            "agents:\n" + "".join(f"  - {{id: a{i}, backend: {{type: scripted}}}}\n" for i in range(101)),
            "1: agents: must have at most 100 entries",
        ),
        (AGENT + "source: x\n", "4: source: unknown key"),
        (AGENT + "a b: x\n", "4: 'a b': unknown key"),
        (AGENT + "memory:\n  retrieval:\n    limit: true\n", "6: memory.retrieval.limit: must be a number"),
        (
            AGENT + "memory:\n  retrieval:\n    max_tokens:\n",
            "6: memory.retrieval.max_tokens: must be a whole number, not null",
        ),
        (
            AGENT + "memory:\n  retrieval:\n    limit: -1\n",
            "6: memory.retrieval.limit: must be greater than or equal to 0, not -1",
        ),
        (AGENT + "coordination:\n  timeout: .inf\n", "5: coordination.timeout: must be a finite number, not inf"),
        (AGENT + "coordination:\n  timeout: .nan\n", "5: coordination.timeout: must be a finite number, not nan"),
        (
            AGENT + "coordination:\n  presentation: synthesise\n",
            "5: coordination.presentation: 'synthesise' is not one of synthesize, as_is (did you mean 'synthesize'?)",
        ),
        (
            AGENT + "coordination: {max_rounds: " + "x" * 90 + "}\n",
            "4: coordination.max_rounds: must be a whole number, not '" + "x" * 56 + "...",
        ),
    ],
)
def test_message_of_one_problem(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text) == [f"team.yaml:{expected}"]


def test_massgen_words_are_suggested(tmp_path: Path) -> None:
    messages = problems(tmp_path, "agent: {id: a, backend: {type: chatcompletions}}\n")
    assert messages[0].endswith("(did you mean 'chatcompletion'?)")


def test_at_most_fifty_problems_are_listed(tmp_path: Path) -> None:
    text = AGENT + "".join(f"key{i}: 1\n" for i in range(5_000))
    messages = problems(tmp_path, text)
    assert len(messages) == 51
    assert messages[-1] == "team.yaml: and 4,950 more problems"


def test_empty_section_means_the_defaults(tmp_path: Path) -> None:
    team = load(tmp_path, AGENT + "memory:\n  # enabled: false\nstore:\n")
    assert team.memory.enabled
    assert team.store.url.startswith("sqlite")
