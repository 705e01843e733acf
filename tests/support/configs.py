"""Configuration files written by tests."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from massmem.config.load import load_config
from massmem.config.models import TeamConfig
from massmem.core.errors import ConfigError

SECRET = "hunter2hunter2"
AGENT = "agents:\n  - id: a\n    backend: {type: scripted}\n"


def load(folder: Path, text: str, environ: dict[str, str] | None = None) -> TeamConfig:
    path = folder / "team.yaml"
    path.write_text(text)
    return load_config(path, environ or {})[0]


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    """What is wrong with `text`, each problem without the folder's name and none with SECRET in it."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, environ)
    assert SECRET not in str(caught.value)
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


def read_example(name: str) -> dict[str, Any]:
    """Return a configuration that massmem ships, without a memory: it costs half of a short run."""
    text = (Path(__file__).parents[2] / "configs" / f"{name}.yaml").read_text()
    return yaml.safe_load(text) | {"memory": {"enabled": False}}
