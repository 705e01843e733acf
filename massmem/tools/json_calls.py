"""JSON that models write as text: finding it in a reply, and tool calls of models that have no tool calls."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from massmem.core.messages import WRAPPER, ChatMessage, ToolCall, ToolSpec
from massmem.core.text import one_line

ANSWER = "answer_now"
"""The action of a reply that calls no tool."""

_SIMPLE_KEYS = ("type", "enum", "const", "description", "minimum", "maximum", "maxLength")
_MAX_DEPTH = 6
_MAX_DESCRIPTION = 300
"""Characters of a tool's description in a list of tools."""


def find_object(text: str, max_beside: int | None = None) -> Mapping[str, Any] | None:
    """Return the JSON object in `text`, None when there is none; prose or a code fence around it is skipped.

    max_beside: characters of the text that may stand beside the object.
    """
    start, end = text.find("{"), text.rfind("}") + 1
    if start < 0 or end <= start or (max_beside is not None and len(text) - (end - start) > max_beside):
        return None
    written = text[start:end]
    data = parse_object(written)
    if data is None and written.startswith("{{") and written.endswith("}}"):  # as in the template that the model read
        data = parse_object(written[1:-1])
    inner = data.get(WRAPPER) if data is not None and len(data) == 1 else None
    return cast("Mapping[str, Any]", inner) if isinstance(inner, dict) else data


def parse_object(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object that `text` is, None when it is something else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", data) if isinstance(data, dict) else None


def build_object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object that has exactly these properties, in this order."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def build_decision_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the schema of a reply that calls one tool, or says that it needs none."""
    return {"anyOf": [*build_call_schemas(tools), build_object_schema({"action": {"const": ANSWER}})]}


def build_call_schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the schema of a call for each tool. Arguments come after the name, which decides what they are."""
    return [
        build_object_schema({"action": {"const": tool.name}, "arguments": simplify_schema(tool.parameters)})
        for tool in tools
    ]


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Return one line for each tool: its name, its arguments and what it does."""
    return "\n".join(
        f"{tool.name}({', '.join(_list_arguments(tool))}): {one_line(tool.description, _MAX_DESCRIPTION)}"
        for tool in tools
    )


def format_call(call: ToolCall) -> str:
    """Return a call as a model without tool calls writes it."""
    return f'{{"action": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'


def write_calls(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return messages with their tool calls and results as text, for a model that is not sent tools."""
    written: list[ChatMessage] = []
    results = {call: message.content for message in messages for call in message.calls}
    for message in messages:
        if message.same_as in results:  # a text that holds several results can point to none
            message = replace(message, content=results[message.same_as], same_as="")
        if message.role == "tool" and written and written[-1].role == "user":
            tools = ", ".join(dict.fromkeys(filter(None, (*written[-1].tool.split(", "), message.tool))))
            content, calls = f"{written[-1].content}\n{message.content}", (*written[-1].calls, *message.calls)
            written[-1] = replace(written[-1], content=content, tool=tools, calls=calls)
        elif message.role == "tool":
            written.append(ChatMessage("user", message.content, tool=message.tool, calls=message.calls))
        else:
            text = "\n".join(filter(None, (message.content, *map(format_call, message.tool_calls))))
            written.append(ChatMessage(message.role, text, tool=message.tool))
    return tuple(written)


def read_call(text: str, names: frozenset[str]) -> ToolCall | None:
    """Return the call of one of the named tools that a reply consists of, None for any other reply."""
    data = find_object(text) or {}
    name = data.get("action")
    if not isinstance(name, str) or name not in names:
        return None
    return ToolCall("", name, json.dumps(data.get("arguments", {}), ensure_ascii=False))


def simplify_schema(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return the schema without what grammars cannot express: references, patterns, formats, combinations."""
    if depth > _MAX_DEPTH:
        return {}
    simple = {key: schema[key] for key in _SIMPLE_KEYS if key in schema}
    if isinstance(simple.get("type"), list):
        del simple["type"]
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        inner = cast("Mapping[str, Any]", properties)
        simple["properties"] = {
            name: simplify_schema(cast("Mapping[str, Any]", value), depth + 1) if isinstance(value, Mapping) else {}
            for name, value in inner.items()
        }
        simple["required"] = [name for name in cast("list[str]", schema.get("required", [])) if name in inner]
        simple["additionalProperties"] = False
    if isinstance(schema.get("items"), Mapping):
        simple["items"] = simplify_schema(cast("Mapping[str, Any]", schema["items"]), depth + 1)
    return simple


def _list_arguments(tool: ToolSpec) -> list[str]:
    properties = cast("Mapping[str, Any]", tool.parameters.get("properties") or {})
    required = cast("Sequence[str]", tool.parameters.get("required") or ())
    return [name if name in required else f"{name}?" for name in properties]
