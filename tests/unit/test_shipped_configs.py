"""Every file in configs/ loads, and names models that exist."""

from pathlib import Path
from typing import get_args

import pytest
from anthropic.types.model import Model as AnthropicModel
from openai.types.shared.chat_model import ChatModel

from massmem.config.load import find_config, load_config, load_default, resolve_agents
from massmem.providers.scripted import parse_script

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
OF_MEMORY = sorted(f"memory/{path.stem}" for path in CONFIGS.glob("memory/*.yaml"))
KNOWN = {
    "openai": set(get_args(ChatModel)),
    "anthropic": set(get_args(get_args(AnthropicModel)[0])),
}


def test_all_examples_are_shipped() -> None:
    assert {"anthropic", "local", "mixed", "ollama", "openai", "order", "scripted", "tools"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_example_loads_without_a_key_or_a_warning(name: str) -> None:
    team, warnings = load_config(find_config(f"@examples/{name}"), {})
    assert warnings == []
    assert len(resolve_agents(team, {})) == 3
    for agent in team.agents:
        if agent.backend.type in KNOWN:
            assert agent.backend.model in KNOWN[agent.backend.type]
        if agent.backend.script is not None:
            assert parse_script(agent.backend.script).latency == 0.3


@pytest.mark.parametrize("name", OF_MEMORY)
def test_example_of_memory_loads_without_a_key_or_a_warning(name: str) -> None:
    team, warnings = load_config(find_config(f"@examples/{name}.yaml"), {})
    assert warnings == []
    assert team.memory.model_fields_set >= {"persistent_memory"}
    assert all(a.backend.model in KNOWN["openai"] for a in team.agents if a.backend.type == "openai")


@pytest.mark.parametrize("name", [*NAMES, *OF_MEMORY])
def test_example_says_how_it_is_used(name: str) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    assert f"massmem --config @examples/{name}" in text


def test_local_example_is_the_default(tmp_path: Path) -> None:
    team = load_default({}, tmp_path).team
    assert [agent.backend.type for agent in team.agents] == ["local"] * 3
