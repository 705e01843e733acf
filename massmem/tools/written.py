"""Tool calls of models that take none: a JSON Schema that constrains their reply, the words for it, and its reading."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from massmem.core.messages import ToolCall, ToolSpec

ANSWER = "answer_now"
"""Instead of a tool."""

_KEPT = ("type", "enum", "const", "description", "minimum", "maximum", "maxLength")
_DEEPEST = 6
_ONE_LINE = 300


def decision_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """A reply is the call of one tool, or says that no call is needed."""
    return {"anyOf": [*call_schemas(tools), _object({"action": {"const": ANSWER}})]}


def call_schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The call of each tool. Arguments come after the name, since the name decides what they are."""
    return [_object({"action": {"const": tool.name}, "arguments": simple(tool.parameters)}) for tool in tools]


def described(tools: Sequence[ToolSpec]) -> str:
    """One line for each: its name, its arguments and what it does."""
    return "\n".join(f"{tool.name}({', '.join(_arguments(tool))}): {_short(tool.description)}" for tool in tools)


def written_call(call: ToolCall) -> str:
    """A call as such a model writes it."""
    return f'{{"action": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'


def read_call(text: str, names: frozenset[str]) -> ToolCall | None:
    """The call in a reply that is one; None for any other."""
    start, end = text.find("{"), text.rfind("}")
    try:
        data = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    said = cast("Mapping[str, Any]", data)
    name = said.get("action")
    if not isinstance(name, str) or name not in names:
        return None
    return ToolCall("", name, json.dumps(said.get("arguments", {}), ensure_ascii=False))


def simple(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The schema without what grammars are not made of: references, patterns, formats, combinations."""
    if depth > _DEEPEST:
        return {}
    kept = {key: schema[key] for key in _KEPT if key in schema}
    if isinstance(kept.get("type"), list):
        del kept["type"]
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        inner = cast("Mapping[str, Any]", properties)
        kept["properties"] = {
            name: simple(cast("Mapping[str, Any]", each), depth + 1) if isinstance(each, Mapping) else {}
            for name, each in inner.items()
        }
        kept["required"] = [name for name in cast("list[str]", schema.get("required", [])) if name in inner]
        kept["additionalProperties"] = False
    if isinstance(schema.get("items"), Mapping):
        kept["items"] = simple(cast("Mapping[str, Any]", schema["items"]), depth + 1)
    return kept


def _arguments(tool: ToolSpec) -> list[str]:
    properties = cast("Mapping[str, Any]", tool.parameters.get("properties") or {})
    required = cast("Sequence[str]", tool.parameters.get("required") or ())
    return [name if name in required else f"{name}?" for name in properties]


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _ONE_LINE else f"{folded[: _ONE_LINE - 3]}..."


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
