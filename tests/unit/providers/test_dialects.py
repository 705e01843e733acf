"""Conversations and tools as servers take them."""

import json
import re
from typing import Any

import pytest

from massmem.core.messages import ChatMessage, ToolCall, ToolSpec
from massmem.providers.dialects import (
    MAX_STATE,
    ToolDialect,
    UnusableSchema,
    join_state,
    make_calls_portable,
    read_state,
    sign_call,
    tidy_schema,
    write_state,
)

HERE, ELSEWHERE = "api.example:443 m", "api.example:443 other"


def ask(*calls: ToolCall, results: tuple[str, ...] = ()) -> list[ChatMessage]:
    messages = [ChatMessage("tool", f"result of {id_}", tool_call_id=id_, calls=(id_,)) for id_ in results]
    return [ChatMessage("user", "?"), ChatMessage("assistant", "", calls), *messages]


def test_a_call_has_one_id_one_form_and_one_result():
    calls = (
        ToolCall("functions.look:0", "look it.up/ü", '{"a": 1}'),
        ToolCall("functions.look:0", "", "{oops"),
        ToolCall("call00002", "x" * 90, '{"a": NaN}'),
        ToolCall("", "vote", '{"half": "\\ud83d"}'),
    )
    again = ask(calls[0], results=("functions.look:0",))
    settled = make_calls_portable([*ask(*calls, results=("functions.look:0", "", "unknown")), *again], HERE)
    sent = [call for message in settled for call in message.tool_calls]
    assert len({call.id for call in sent}) == len(sent) == 5
    assert all(re.fullmatch("[A-Za-z0-9]{9}", call.id) for call in sent)
    assert sent[2].id == "call00002"
    assert [call.name for call in sent] == ["look_it_up__", "unknown", "x" * 64, "vote", "look_it_up__"]
    assert [json.loads(call.arguments) for call in sent] == [
        {"a": 1}, {"unusable": "{oops"}, {"unusable": '{"a": NaN}'}, {"half": "�"}, {"a": 1},
    ]  # fmt: skip
    answered = [message.tool_call_id for message in settled if message.role == "tool"]
    assert sorted(filter(None, answered)) == sorted(call.id for call in sent), "each has exactly one result"
    assert ChatMessage("user", "result of unknown") in settled, "a result of no call is a text"


def test_a_state_goes_to_its_own_model_alone():
    signed = sign_call(ToolCall("call00001", "look", "{}", write_state({"message": {"reasoning_content": "hm"}})), HERE)
    assert sign_call(ToolCall("call00001", "look", "{}"), HERE).state == ""

    for owner, state in ((HERE, {"message": {"reasoning_content": "hm"}}), (ELSEWHERE, {}), ("", {})):
        assert [read_state(c) for m in make_calls_portable(ask(signed), owner) for c in m.tool_calls] == [state]
    assert "hm" not in repr(signed)


def test_a_state_is_bounded_and_what_is_damaged_is_none(caplog: pytest.LogCaptureFixture):
    assert write_state({"message": {}}) == ""
    assert not caplog.records
    assert write_state({"items": ["x" * MAX_STATE]}) == ""
    assert "what the provider gave with a call is not kept" in caplog.text
    assert read_state(ToolCall("1", "f", "{}", "{oops")) == read_state(ToolCall("1", "f", "{}", "[1]")) == {}


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([{"reasoning_content": "I "}, {"reasoning_content": None}, {"reasoning_content": "look"}], "I look"),
        (
            [{"type": "text", "text": "I ", "index": 0}, {"type": "text", "text": "look", "index": 0},
             {"type": "text", "signature": "s", "text": None, "index": 0}, {"type": "text", "text": "Then", "index": 1},
             {"type": "sealed", "data": "A"}, {"type": "sealed", "data": "B"}],
            [{"type": "text", "text": "I look", "index": 0, "signature": "s"},
             {"type": "text", "text": "Then", "index": 1},
             {"type": "sealed", "data": "A"}, {"type": "sealed", "data": "B"}],
        ),
        ([{"type": "text", "text": "I look up"}, {"type": "text", "text": "I look up it."}],
         [{"type": "text", "text": "I look up it."}]),
    ],
    ids=["texts", "parts", "parts that are sent whole again"],
)  # fmt: skip
def test_pieces_of_a_state_are_joined(pieces: list[dict[str, Any]], whole: object):
    state: dict[str, Any] = {}
    for piece in pieces:
        join_state(state, piece if "reasoning_content" in piece else {"reasoning_content": [piece]})
    assert state == {"reasoning_content": whole}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


CYCLE = {"$ref": "#/$defs/n", "$defs": {"n": of(next={"$ref": "#/$defs/n"}, text={"type": "string"})}}
EITHER = {
    "anyOf": [
        of(a={"type": "string"}) | {"required": ["a"]},
        of(a={"type": "integer"}, b={}) | {"required": ["a", "b"]},
    ]
}
BOTH = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
SCHEMAS: dict[str, tuple[object, dict[str, Any], dict[str, Any]]] = {
    "nothing": (None, of(), of()),
    "true": (True, of(), of()),
    "no properties": ({"type": "object"}, of(), of()),
    "an object or null": ({"type": ["object", "null"]}, of(), of()),
    "a meta schema": ({"$schema": "x", "$id": "y", **of()}, of(), of()),
    "a reference to itself": (CYCLE, of(next={"type": "object"}, text={"type": "string"}),
                              of(next={"type": "object"}, text={"type": "string"})),
    "a reference to nowhere": (of(a={"$ref": "#/gone"}, b={"$ref": "http://x/y"}), of(a={}, b={}),
                               of(a={"type": "string"}, b={"type": "string"})),
    "a choice at the root": (EITHER, of(a=BOTH, b={}) | {"required": ["a"]},
                             of(a=BOTH, b={"type": "string"}) | {"required": ["a"]}),
    "all of several": ({"allOf": [of(a={"type": "str"}) | {"required": ["a"]}, of(b={})]},
                       of(a={"type": "string"}, b={}) | {"required": ["a"]},
                       of(a={"type": "string"}, b={"type": "string"}) | {"required": ["a"]}),
    "booleans for schemas": (of(a=True, b=False), of(a={}), of(a={"type": "string"})),
    "a type or null": (of(a={"type": ["string", "null"]}, b={"oneOf": [{"type": "integer"}, {"type": "null"}]}),
                       of(a={"type": ["string", "null"]}, b={"type": ["integer", "null"]}),
                       of(a={"type": "string", "nullable": True}, b={"type": "integer", "nullable": True})),
    "several types": (of(a={"type": ["string", "integer"]}), of(a={"type": ["string", "integer"]}),
                      of(a={"anyOf": [{"type": "string"}, {"type": "integer"}]})),
    "constants": (of(a={"const": "x"}, b={"enum": [1, 2]}, c={"enum": []}),
                  of(a={"type": "string", "enum": ["x"]}, b={"type": "integer", "enum": [1, 2]}, c={}),
                  of(a={"type": "string", "enum": ["x"]}, b={"type": "integer", "description": "One of: 1, 2"},
                     c={"type": "string"})),
    "bounds": (of(a={"type": "number", "exclusiveMinimum": 1, "maximum": "9"}, b={"type": "integer", "minimum": 1,
                     "exclusiveMinimum": True}),
               of(a={"type": "number", "exclusiveMinimum": 1}, b={"type": "integer", "minimum": 1}),
               of(a={"type": "number"}, b={"type": "integer", "minimum": 1})),
    "words of few": (of(a={"type": "string", "format": "date", "if": {}, "title": 5},
                        m={"additionalProperties": {"type": "int"}, "type": "dict"}),
                     of(a={"type": "string", "format": "date"},
                        m={"type": "object", "additionalProperties": {"type": "integer"}}),
                     of(a={"type": "string"}, m={"type": "object"})),
    "lists": (of(a={"type": "array"}, b={"items": [{"type": "string"}]}),
              of(a={"type": "array", "items": {}}, b={"type": "array", "items": {}}),
              of(a={"type": "array", "items": {"type": "string"}}, b={"type": "array", "items": {"type": "string"}})),
    "required of nothing": (of(a={}) | {"required": ["a", "b", "a", 3]}, of(a={}) | {"required": ["a"]},
                            of(a={"type": "string"}) | {"required": ["a"]}),
    "malformed": ({"type": 5, "properties": [], "required": "a", "anyOf": {}, "enum": 3}, of(), of()),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "wide", "narrow"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_is_as_servers_take_it(schema: object, wide: dict[str, Any], narrow: dict[str, Any]):
    assert tidy_schema(schema) == wide
    assert tidy_schema(wide, narrow=True) == narrow
    assert tidy_schema(narrow, narrow=True) == narrow


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": ["array", "null"]}, {"enum": [1, 2]}])
def test_arguments_that_are_no_object_cannot_be_described(schema: dict[str, Any]):
    with pytest.raises(UnusableSchema, match="no object"):
        tidy_schema(schema)


def test_a_schema_without_end_has_one():
    deep = of()
    for _ in range(500):
        deep = of(a=deep, b=deep)
    assert len(json.dumps(tidy_schema(deep))) < 200_000
    twice = {
        "allOf": [{"$ref": "#/$defs/0"}] * 3,
        "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 3} for n in range(50)},
    }
    assert tidy_schema(twice) == of()


def tools(*names: str, **schema: Any) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(name, "", of(**schema)) for name in names)


REFUSALS = {
    "by name": "Invalid schema for function 'mcp__d__b': In context=(), 'x' is not permitted.",
    "by number": "tools.2.custom.input_schema: JSON schema is invalid",
    "by index": "Invalid 'tools[2].function.name': string does not match pattern.",
    "by declaration": "Invalid JSON payload: Unknown name at 'tools[0].function_declarations[2].parameters'",
    "by path": "('body', 'tools', 2, 'function', 'parameters'): value is not a valid dict",
}


@pytest.mark.parametrize("text", REFUSALS.values(), ids=REFUSALS)
def test_a_tool_that_is_refused_is_left_out_alone(text: str):
    dialect = ToolDialect("m")
    sent = tools("vote", "mcp__d__a", "mcp__d__b", "mcp__d__c", when={"type": "string", "format": "date"})
    assert dialect.learn(text, dialect.write(sent), named=True), "it is sent in fewer words first"
    assert dialect.write(sent)[2].parameters == of(when={"type": "string"})
    assert dialect.take_notices() == []
    assert dialect.learn(text, dialect.write(sent), named=True)
    assert [tool.name for tool in dialect.write(sent)] == ["vote", "mcp__d__a", "mcp__d__c"]
    (notice,) = dialect.take_notices()
    assert "mcp__d__b" in notice
    assert dialect.take_notices() == []


LIMITS = {
    "Invalid 'tools': array too long. Expected an array with maximum length 4, but got an array with length 6.": 4,
    "'tools' : maximum number of items is 4": 4,
    "You may not include more than 4 tools in your request.": 4,
    "body -> tools: List should have at most 4 items after validation, not 6": 4,
    "too many tools": 3,
}


@pytest.mark.parametrize(("text", "limit"), LIMITS.items())
def test_a_server_that_takes_few_tools_is_sent_the_first(text: str, limit: int):
    dialect = ToolDialect("m")
    sent = tools("mcp__d__a", "mcp__d__b", "mcp__d__c", "mcp__d__d", "vote", "new_answer")
    assert dialect.learn(text, sent, named=True)
    assert [tool.name for tool in dialect.write(sent)] == [tool.name for tool in sent if tool.name not in
                                                           [f"mcp__d__{n}" for n in "abcd"[limit - 2 :]]]  # fmt: skip
    assert dialect.write(sent) == dialect.write(sent)
    assert len(dialect.take_notices()) == 1


def test_other_refusals_change_no_tools():
    dialect, sent = ToolDialect("m"), tools("vote", "mcp__d__a", a={"format": "x"})
    for text in ("max_tokens is too large: 128", "Rate limit of 3 requests", "tool_choice 'required' is not supported"):
        assert dialect.learn(text, sent, named=True) == ""
    assert dialect.learn("tools are not supported", sent, named=False) == ""
    assert dialect.learn("failed to parse the JSON schema", sent, named=False), "of all tools, since none is named"
    assert dialect.learn("failed to parse the JSON schema", dialect.write(sent), named=False)
    assert [tool.name for tool in dialect.write(sent)] == ["vote"]
