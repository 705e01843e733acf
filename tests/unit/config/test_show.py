import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from massmem.config.load import find_config, load_default, load_file
from massmem.config.models import NO_KEYS, AgentConfig, Section, TeamConfig
from massmem.config.show import MASKED, MODULES, build_json_schema, list_settings, read_field_docs
from massmem.config.yaml import read_yaml
from scripts.docs import config_table

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
AGENT = {"id": "a", "backend": {"type": "scripted"}}
TEAM = """\
agents:
  - id: a
    backend: {type: openai, model: "${MODEL:-m}", api_key: "${KEY}"}
    memory: {retrieval: {limit: 20}}
    mcp_servers: [{name: f, command: x, env: {TOKEN: abc}}]
  - {id: b, backend: {type: claude}}
coordination: {max_rounds: 3}
params:
  order_id: {type: date}
"""
KEY = "sk-proj-0123456789abcdefghij"


def read_settings(path: Path, environ: dict[str, str]) -> dict[tuple[str | int, ...], tuple[object, str]]:
    return {s.path: (s.value, s.origin) for s in list_settings(load_file(path, environ), environ) if not s.opens}


def test_every_setting_has_its_origin(tmp_path: Path):
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    values = read_settings(path, {"KEY": KEY, "CONVERSATION_HISTORY_MAX_TOKENS": "77"})
    backend = ("agents", 0, "backend")
    assert values[(*backend, "type")] == ("openai", f"{path}:3")
    assert values[(*backend, "model")] == ("m", f"environment, {path}:3")
    assert values[(*backend, "api_key")] == (MASKED, f"environment, {path}:3")
    assert values[(*backend, "timeout")] == (120, "default")
    assert values["agents", 1, "backend", "type"] == ("anthropic", f"{path}:6")
    assert values["memory", "conversation_memory", "max_tokens"] == (77, "CONVERSATION_HISTORY_MAX_TOKENS")
    assert values["coordination", "max_rounds"] == (3, f"{path}:7")
    assert values["params", "order_id", "type"] == ("date", f"{path}:9")
    assert values["agents", 0, "mcp_servers", 0, "env", "TOKEN"] == (MASKED, f"{path}:5")
    assert not [value for value, _ in values.values() if KEY in str(value)]


def test_keys_that_mean_something_when_left_out_are_listed_only_if_given(tmp_path: Path):
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    values = read_settings(path, {"KEY": KEY})
    assert [key for key in values if key[:2] == ("agents", 0) and "memory" in key] == [
        ("agents", 0, "memory", "retrieval", "limit")
    ]
    assert not [key for key in values if "session_name" in key or "source" in key]
    path.write_text(f"{TEAM}memory: {{persistent_memory: {{session_name: null}}}}\n")
    settings = read_settings(path, {"KEY": KEY})
    assert settings["memory", "persistent_memory", "session_name"] == (None, f"{path}:10")


def test_key_variable_is_the_origin_of_the_provider(tmp_path: Path):
    environ = {"GROQ_API_KEY": "x"}
    values = {s.path: (s.value, s.origin) for s in list_settings(load_default(environ, tmp_path), environ)}
    assert values["agents", 0, "backend", "type"] == ("groq", "GROQ_API_KEY")
    assert values["agents", 0, "backend", "model"] == ("openai/gpt-oss-120b", "GROQ_API_KEY")


@pytest.mark.parametrize("name", ["local", "scripted", "order"])
def test_section_comes_before_its_content(name: str):
    opened = {()}
    for setting in list_settings(load_file(find_config(f"@examples/{name}"), {}), {}):
        assert setting.path[:-1] in opened
        if setting.opens:
            opened.add(setting.path)
    assert len(opened) > 10


def test_every_field_has_its_line() -> None:
    docs = read_field_docs(*MODULES)
    for section in Section.__subclasses__():
        is_of_a_team = section.__module__ in {module.__name__ for module in MODULES}  # jobs and tasks are other files
        if section is not AgentConfig and is_of_a_team:
            for name in section.model_fields:
                assert docs[section.__name__, name]


def test_key_table_lists_every_kind_of_key() -> None:
    text = config_table()
    lines = text.splitlines()
    assert lines[0] == "| key | type | default | meaning |"
    assert all(line.replace(r"\|", "").count("|") == 5 for line in lines)
    assert "| `agents[]` | list of sections | required | The council; `agent:` for one. |" in lines
    assert any(line.startswith("| `server.port` | whole number, >= 0, <= 65535 | `4000` |") for line in lines)
    assert any(line.startswith("| `agents[].mcp_servers[].env` | mapping to secret |  |") for line in lines)
    assert "`source`" not in text


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(build_json_schema())
    return Draft202012Validator(build_json_schema())


def problems(validator: Draft202012Validator, config: Any) -> list[str]:
    return [error.json_path for error in validator.iter_errors(config)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_schema_accepts_shipped_configurations(validator: Draft202012Validator, path: Path):
    assert problems(validator, read_yaml(path).data) == []


@pytest.mark.parametrize(
    "config",
    [
        {"agent": AGENT},
        {"agents": [{"id": "a", "backend": {"type": "claude", "model": "${M}", "max_tokens": "${N}"}}]},
        {"agents": [AGENT], "memory": None, "coordination": {"max_rounds": "${ROUNDS:-3}", "ask_user": "${ASK}"}},
        {"agents": [{**AGENT, "backend": {"type": "${KIND}"}}]},
        {"agents": [AGENT], "params": {"order_id": {"type": "date"}}},
    ],
)
def test_schema_accepts_what_massmem_reads(validator: Draft202012Validator, config: Any):
    assert problems(validator, config) == []


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({}, ["$"]),
        ({"agents": [AGENT], "agent": AGENT}, ["$"]),
        ({"agents": [AGENT], "cordination": {}}, ["$"]),
        ({"agents": [{**AGENT, "backend": {"type": "opnai"}}]}, ["$.agents[0].backend.type"]),
        ({"agents": [AGENT], "coordination": {"max_rounds": "3"}}, ["$.coordination.max_rounds"]),
        ({"agents": [AGENT], "coordination": {"max_rounds": 0}}, ["$.coordination.max_rounds"]),
        ({"agents": [AGENT], "source": "x"}, ["$"]),
    ],
)
def test_schema_finds_mistakes(validator: Draft202012Validator, config: Any, where: list[str]):
    paths = problems(validator, config)
    assert paths
    assert all(path.startswith(tuple(where)) for path in paths)


def test_schema_explains_every_key():
    schema = build_json_schema()
    for name, section in {"": schema, **schema["$defs"]}.items():
        for key, value in section["properties"].items():
            assert value.get("description"), f"{name}.{key}"
    assert set(schema["properties"]) == (set(TeamConfig.model_fields) - NO_KEYS) | {"agent"}
    assert json.dumps(schema)
