"""The JSON Schema of a configuration file, for editors that check and complete while one types."""

from typing import Any, cast

from massmem.config.key_table import docstrings
from massmem.config.massgen import TYPE_WORDS
from massmem.config.models import TeamConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REFERENCE = {"type": "string", "pattern": r"\$\{", "description": "From the environment: ${VAR} or ${VAR:-default}."}
_NOT_TEXT = {"integer", "number", "boolean"}

Json = dict[str, Any]


def json_schema() -> Json:
    """What `massmem.config.load` accepts in massmem's own words; MassGen's further keys are not in it."""
    schema: Json = TeamConfig.model_json_schema()
    definitions: dict[str, Json] = schema.pop("$defs")
    backend = definitions["BackendConfig"]["properties"]["type"]
    backend["enum"] = [*backend["enum"], *TYPE_WORDS]
    for name, section in {"TeamConfig": schema, **definitions}.items():
        _describe(name, section)
    properties: dict[str, Json] = schema["properties"]
    del properties["source"]
    properties["agent"] = {"$ref": "#/$defs/AgentSpec", "description": "One agent alone, in the place of agents."}
    return {
        "$schema": DIALECT,
        "title": "massmem configuration",
        **{key: value for key, value in schema.items() if key not in ("title", "required")},
        "oneOf": [{"required": ["agents"]}, {"required": ["agent"]}],
        "$defs": definitions,
    }


def _describe(name: str, section: Json) -> None:
    """Give each key its line of the reference, and let it be what YAML and the environment make possible."""
    properties = cast("dict[str, Json]", section["properties"])
    said = docstrings()
    for key, value in properties.items():
        value.pop("title", None)
        if text := said.get((name, key)):
            value["description"] = text
        properties[key] = _widened(value)
    section.pop("title", None)
    section.pop("description", None)
    if name != "TeamConfig" and not section.get("required"):
        section["type"] = ["object", "null"]  # one whose keys are all commented out is null


def _widened(value: Json) -> Json:
    """What is no plain text may also be ${VAR}."""
    outer = {key: value[key] for key in ("description", "default") if key in value}
    inner = {key: part for key, part in value.items() if key not in outer}
    choices: list[Json] = inner.pop("anyOf") if set(inner) == {"anyOf"} else [inner]
    if any(choice.get("type") in _NOT_TEXT or "enum" in choice for choice in choices):
        return {**outer, "anyOf": [*choices, dict(_REFERENCE)]}
    return value
