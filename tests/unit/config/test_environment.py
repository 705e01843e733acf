import json
import os
from pathlib import Path

import pytest

from massmem.config.load import resolve_agents
from massmem.core.errors import ConfigError
from tests.support.configs import AGENT, SECRET, load, problems


def test_numbers_and_switches_from_the_environment(tmp_path: Path) -> None:
    text = AGENT + "server: {port: '${PORT}'}\nmemory: {enabled: '${ON:-no}'}\n"
    team = load(tmp_path, text, {"PORT": "8080"})
    assert (team.server.port, team.memory.enabled) == (8080, False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${NAME}", "Ada"),
        ("Hello ${NAME}!", "Hello Ada!"),
        ("${NONE:-you}", "you"),
        ("${EMPTY:-you}", "you"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("$${NAME}", "${NAME}"),
        ("$NAME costs $5 and ${", "$NAME costs $5 and ${"),
        ("${NESTED}", "${NAME}"),
        ("${YAML}", "x: [1\n- {"),
    ],
)
def test_expansion(tmp_path: Path, value: str, expected: str) -> None:
    environ = {"NAME": "Ada", "EMPTY": "", "NESTED": "${NAME}", "YAML": "x: [1\n- {"}
    team = load(tmp_path, AGENT + f"    system_message: {json.dumps(value)}\n", environ)
    assert team.agents[0].system_message == expected


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("redis://", {"REDIS_URL": "redis://cache:6380/2"}, "redis://cache:6380/2"),
        ("redis://", {}, "redis://localhost:6379"),
        ("redis://host/1", {"REDIS_URL": "redis://cache:6380/2"}, "redis://host/1"),
    ],
)
def test_address_of_redis_is_read_where_the_configuration_has_none(
    tmp_path: Path, url: str, environ: dict[str, str], expected: str
) -> None:
    assert load(tmp_path, AGENT + f"store: {{url: '{url}'}}\n", environ).store.url == expected


def test_unset_variables_are_all_named(tmp_path: Path) -> None:
    text = """\
agent:
  id: a
  backend:
    type: openai
    api_key: ${OPENAI_API_KEY}
  system_message: ${WHO} ${a b}
"""
    assert problems(tmp_path, text) == [
        "team.yaml:5: agent.backend.api_key: OPENAI_API_KEY is not set (set it: export OPENAI_API_KEY=..., or a line "
        "OPENAI_API_KEY=... in .env; $${ is a literal ${)",
        "team.yaml:6: agent.system_message: ${...} takes a variable's name or NAME:-default; "
        "write $${ for a literal ${",
        "team.yaml:6: agent.system_message: WHO is not set (set it: export WHO=..., or a line WHO=... in .env; "
        "$${ is a literal ${)",
    ]


def test_expansion_cannot_fill_the_memory(tmp_path: Path) -> None:
    text = AGENT + f"    system_message: '{'${BIG}' * 100_000}'\n"
    found = problems(tmp_path, text, {"BIG": "x" * 100_000})
    assert found == [
        "team.yaml:4: agents.0.system_message: the values from the environment make more than 1,000,000 characters"
    ]


def test_bytes_in_the_environment_that_are_no_text(tmp_path: Path) -> None:
    found = problems(tmp_path, AGENT + "    system_message: ${BAD}\n", {"BAD": os.fsdecode(b"\xff")})
    assert found == ["team.yaml:4: agents.0.system_message: the environment variable BAD is not UTF-8"]


def test_environment_overrides_the_history_settings(tmp_path: Path) -> None:
    text = AGENT + "    memory: {conversation_memory: {max_messages: 9}}\n"
    environ = {
        "CONVERSATION_HISTORY_ENABLED": "False",
        "CONVERSATION_HISTORY_MAX_MESSAGES": "4",
        "CONVERSATION_HISTORY_MAX_TOKENS": "",
    }
    team = load(tmp_path, text, environ)
    history = resolve_agents(team, environ)[0].memory.conversation_memory
    assert (history.enabled, history.max_messages, history.max_tokens) == (False, 4, None)


def test_wrong_environment_overrides_are_problems(tmp_path: Path) -> None:
    environ = {"CONVERSATION_HISTORY_ENABLED": SECRET, "CONVERSATION_HISTORY_MAX_TOKENS": "-1"}
    assert problems(tmp_path, AGENT + "x: 1\n", environ) == [
        "team.yaml:4: x: unknown key",
        "environment: CONVERSATION_HISTORY_ENABLED: must be true or false",
        "environment: CONVERSATION_HISTORY_MAX_TOKENS: must be a whole number",
    ]
    with pytest.raises(ConfigError):
        resolve_agents(load(tmp_path, AGENT), environ)
