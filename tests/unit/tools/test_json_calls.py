import json
from typing import Any

import pytest

from massmem.core.messages import ToolCall, ToolSpec
from massmem.tools.json_calls import (
    ANSWER,
    build_call_schemas,
    build_decision_schema,
    describe_tools,
    format_call,
    read_call,
    simplify_schema,
)

READ = ToolSpec(
    "mcp__f__read",
    "Read a\n file.",
    {"type": "object", "properties": {"path": {"type": "string"}, "head": {"type": "integer"}}, "required": ["path"]},
)
NAMES = frozenset({"mcp__f__read"})


def test_a_line_for_each_tool():
    assert describe_tools([READ]) == "mcp__f__read(path, head?): Read a file."


def test_a_reply_is_a_call_or_says_that_none_is_needed():
    call, answer = build_decision_schema([READ])["anyOf"]
    assert call["properties"]["action"] == {"const": "mcp__f__read"}
    assert call["properties"]["arguments"]["required"] == ["path"]
    assert answer["properties"] == {"action": {"const": ANSWER}}
    assert build_call_schemas([READ]) == [call]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"action": "mcp__f__read", "arguments": {"path": "a"}}', {"path": "a"}),
        ('Sure:\n```json\n{"action": "mcp__f__read"}\n```', {}),
    ],
)
def test_a_call_is_read(text: str, arguments: dict[str, Any]):
    call = read_call(text, NAMES)
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == ("mcp__f__read", arguments)
    assert read_call(format_call(call), NAMES) == call


@pytest.mark.parametrize("text", ["no", '{"action": "answer_now"}', '{"action": "x"}', "{[}", "[1]", '{"action": 1}'])
def test_anything_else_is_no_call(text: str):
    assert read_call(text, NAMES) is None


def test_a_schema_is_reduced_to_what_a_grammar_is_made_of():
    schema = {
        "type": "object",
        "$defs": {"x": {}},
        "properties": {
            "when": {"type": ["string", "null"], "format": "date", "pattern": "^x$", "description": "a day"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "ref": {"$ref": "#/$defs/x"},
        },
        "required": ["when", "gone"],
    }
    assert simplify_schema(schema) == {
        "type": "object",
        "properties": {
            "when": {"description": "a day"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "ref": {},
        },
        "required": ["when"],
        "additionalProperties": False,
    }
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(json.dumps(simplify_schema(deep))) < 2_000


def test_a_call_without_arguments_is_written_as_one_that_can_be_read():
    assert format_call(ToolCall("1", "mcp__f__read", "")) == '{"action": "mcp__f__read", "arguments": {}}'
