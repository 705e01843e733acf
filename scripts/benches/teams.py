"""The teams that are measured, as configurations in this process and as files for another one."""

import json
from pathlib import Path
from typing import Any

from massmem.config.models import TeamConfig
from scripts.benches.stub import Stub, number_answer

MOST_AGENTS = 32


def scripted(agents: int, home: Path, latency: float) -> dict[str, Any]:
    """Scripted agents that answer after `latency` seconds; nobody improves, everybody votes."""
    scripts = ({"latency": latency, "answer": number_answer(number)} for number in range(agents))
    return _team([{"type": "scripted", "script": script} for script in scripts], home)


def over_http(agents: int, home: Path, server: Stub) -> dict[str, Any]:
    """Agents on one server that speaks the OpenAI protocol."""
    backend = {"type": "openai", "model": "stub", "base_url": server.base_url, "api_key": "sk-none", "max_retries": 0}
    return _team([backend] * agents, home)


def config(team: dict[str, Any]) -> TeamConfig:
    return TeamConfig.model_validate(team)


def write(team: dict[str, Any], folder: Path) -> Path:
    """The team as a file. JSON is YAML."""
    path = folder / f"{team['agents'][0]['backend']['type']}.yaml"
    path.write_text(json.dumps(team), encoding="utf-8")
    return path


def _team(backends: list[dict[str, Any]], home: Path) -> dict[str, Any]:
    return {
        "agents": [{"id": f"agent_{i}", "backend": backend} for i, backend in enumerate(backends, start=1)],
        # As wide as the council: with a narrower gate the critical path itself is longer.
        "coordination": {"max_concurrency": MOST_AGENTS},
        "memory": {"persistent_memory": {"enabled": False}},
        "store": {"url": f"sqlite:///{home / 'massmem.db'}"},
    }
