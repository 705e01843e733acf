"""Every file in configs/ loads, and names models that exist."""

from pathlib import Path
from typing import get_args

import pytest
import yaml
from anthropic.types.model import Model as AnthropicModel
from openai.types.shared.chat_model import ChatModel

from massmem.config.load import default_config, find_config, load_config, resolve_agents
from massmem.config.yaml_source import read_yaml
from massmem.providers.scripted import read_script

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
KNOWN = {
    "openai": set(get_args(ChatModel)),
    "anthropic": set(get_args(get_args(AnthropicModel)[0])),
}


def test_they_are_all_there() -> None:
    assert {"anthropic", "local", "mixed", "ollama", "openai", "order", "scripted", "tools"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_loads_without_a_key_or_a_warning(name: str) -> None:
    team, warnings = load_config(find_config(f"@examples/{name}"), {})
    assert warnings == []
    assert len(resolve_agents(team, {})) == 3
    for agent in team.agents:
        if agent.backend.type in KNOWN:
            assert agent.backend.model in KNOWN[agent.backend.type]
        if agent.backend.script is not None:
            assert read_script(agent.backend.script).latency == 0.3


@pytest.mark.parametrize("name", NAMES)
def test_both_parsers_of_yaml_read_the_same(name: str) -> None:
    path = CONFIGS / f"{name}.yaml"
    assert read_yaml(path, yaml.SafeLoader).data == read_yaml(path).data


@pytest.mark.parametrize("name", NAMES)
def test_says_how_it_is_used(name: str) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    assert f"massmem --config @examples/{name}" in text


def test_local_is_the_default(tmp_path: Path) -> None:
    team, _ = default_config({}, tmp_path)
    assert [agent.backend.type for agent in team.agents] == ["local"] * 3
