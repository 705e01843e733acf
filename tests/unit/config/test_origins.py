from pathlib import Path

import pytest

from massmem.config.load import find_config, load, load_default
from massmem.config.origins import MASKED, settings

TEAM = """\
agents:
  - id: a
    backend: {type: openai, model: "${MODEL:-m}", api_key: "${KEY}"}
    memory: {retrieval: {limit: 20}}
    mcp_servers: [{name: f, command: x, env: {TOKEN: abc}}]
  - {id: b, backend: {type: claude}}
coordination: {compression_target_ratio: 0.3}
params:
  order_id: {type: date}
"""
KEY = "sk-proj-0123456789abcdefghij"


def found(path: Path, environ: dict[str, str]) -> dict[tuple[str | int, ...], tuple[object, str]]:
    return {s.path: (s.value, s.origin) for s in settings(load(path, environ), environ) if not s.opens}


def test_every_value_says_where_it_comes_from(tmp_path: Path):
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    values = found(path, {"KEY": KEY, "CONVERSATION_HISTORY_MAX_TOKENS": "77"})
    backend = ("agents", 0, "backend")
    assert values[(*backend, "type")] == ("openai", f"{path}:3")
    assert values[(*backend, "model")] == ("m", f"environment, {path}:3")
    assert values[(*backend, "api_key")] == (MASKED, f"environment, {path}:3")
    assert values[(*backend, "timeout")] == (120, "default")
    assert values["agents", 1, "backend", "type"] == ("anthropic", f"{path}:6")
    assert values["memory", "conversation_memory", "max_tokens"] == (77, "CONVERSATION_HISTORY_MAX_TOKENS")
    assert values["memory", "compression", "target_ratio"] == (0.3, f"{path}:7")
    assert values["params", "order_id", "type"] == ("date", f"{path}:9")
    assert values["agents", 0, "mcp_servers", 0, "env", "TOKEN"] == (MASKED, f"{path}:5")
    assert not [value for value, _ in values.values() if KEY in str(value)]


def test_what_means_something_by_being_left_out_is_left_out(tmp_path: Path):
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    values = found(path, {"KEY": KEY})
    assert [key for key in values if key[:2] == ("agents", 0) and "memory" in key] == [
        ("agents", 0, "memory", "retrieval", "limit")
    ]
    assert not [key for key in values if "session_name" in key or "source" in key]
    path.write_text(f"{TEAM}memory: {{persistent_memory: {{session_name: null}}}}\n")
    given = found(path, {"KEY": KEY})
    assert given["memory", "persistent_memory", "session_name"] == (None, f"{path}:10")


def test_a_key_that_chose_the_provider_is_named(tmp_path: Path):
    environ = {"GROQ_API_KEY": "x"}
    values = {s.path: (s.value, s.origin) for s in settings(load_default(environ, tmp_path), environ)}
    assert values["agents", 0, "backend", "type"] == ("groq", "GROQ_API_KEY")
    assert values["agents", 0, "backend", "model"] == ("openai/gpt-oss-120b", "GROQ_API_KEY")


@pytest.mark.parametrize("name", ["local", "scripted", "order"])
def test_a_section_comes_before_what_is_in_it(name: str):
    opened = {()}
    for setting in settings(load(find_config(f"@examples/{name}"), {}), {}):
        assert setting.path[:-1] in opened
        if setting.opens:
            opened.add(setting.path)
    assert len(opened) > 10
