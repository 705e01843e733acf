import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from massmem.config.json_schema import json_schema
from massmem.config.models import TeamConfig
from massmem.config.yaml_source import read_yaml

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
AGENT = {"id": "a", "backend": {"type": "scripted"}}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(json_schema())
    return Draft202012Validator(json_schema())


def problems(validator: Draft202012Validator, config: Any) -> list[str]:
    return [error.json_path for error in validator.iter_errors(config)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_ships_is_valid(validator: Draft202012Validator, path: Path):
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
def test_what_massmem_reads_is_valid(validator: Draft202012Validator, config: Any):
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
def test_a_mistake_is_found(validator: Draft202012Validator, config: Any, where: list[str]):
    found = problems(validator, config)
    assert found
    assert all(path.startswith(tuple(where)) for path in found)


def test_every_key_is_explained():
    schema = json_schema()
    for name, section in {"": schema, **schema["$defs"]}.items():
        for key, value in section["properties"].items():
            assert value.get("description"), f"{name}.{key}"
    assert set(schema["properties"]) == (set(TeamConfig.model_fields) - {"source"}) | {"agent"}
    assert json.dumps(schema)
