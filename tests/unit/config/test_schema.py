from pathlib import Path

import pytest

from tests.support.configs import AGENT, load, problems


def test_all_problems_at_once_with_lines_and_suggestions(tmp_path: Path) -> None:
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
    found = problems(tmp_path, text)
    assert found[0].startswith("team.yaml:3: agents.0.backend.type: 'opnai' is not one of openai, anthropic, local,")
    assert found[0].endswith(" (did you mean 'openai'?)")
    assert found[1:] == [
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


ID = "must be 1 to 64 letters, digits, '_', '-' or '.', with no '-' or '.' first"


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
def test_one_problem(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text) == [f"team.yaml:{expected}"]


def test_massgens_words_are_suggested_too(tmp_path: Path) -> None:
    found = problems(tmp_path, "agent: {id: a, backend: {type: chatcompletions}}\n")
    assert found[0].endswith("(did you mean 'chatcompletion'?)")


def test_at_most_fifty_problems_are_listed(tmp_path: Path) -> None:
    text = AGENT + "".join(f"key{i}: 1\n" for i in range(5_000))
    found = problems(tmp_path, text)
    assert len(found) == 51
    assert found[-1] == "team.yaml: and 4,950 more problems"


def test_a_section_that_is_all_comments_means_the_defaults(tmp_path: Path) -> None:
    team = load(tmp_path, AGENT + "memory:\n  # enabled: false\nstore:\n")
    assert team.memory.enabled
    assert team.store.url.startswith("sqlite")
