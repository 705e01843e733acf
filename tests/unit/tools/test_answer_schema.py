import json
from typing import Any

import pytest

from massmem.core.errors import InputError
from massmem.tools.answer_schema import MAX_CHARACTERS, FormError, check_schema, native_schema, read_value

PORT = {"type": "object", "properties": {"port": {"type": "integer", "minimum": 1}}, "required": ["port"]}


@pytest.mark.parametrize(
    "schema",
    [
        "object",
        [PORT],
        {"type": "objekt"},
        {"properties": []},
        {"type": "object", "properties": {"a": {"minimum": "1"}}},
        {"properties": {"a": {"$ref": "https://example.org/a.json"}}},
        {"allOf": [{"$ref": "other.json#/a"}]},
        {"description": "x" * MAX_CHARACTERS},
    ],
)
def test_schema_that_is_none_is_refused(schema: object):
    with pytest.raises(InputError) as error:
        check_schema(schema)
    assert error.value.hint


def test_schema_with_references_into_itself_is_taken():
    schema = {"$defs": {"port": {"type": "integer"}}, "properties": {"port": {"$ref": "#/$defs/port"}}}
    assert check_schema(schema) == schema
    assert read_value('{"port": 80}', schema) == {"port": 80}
    with pytest.raises(FormError, match="at port"):
        read_value('{"port": "80"}', schema)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ('{"port": 80}', PORT, {"port": 80}),
        (' \n```json\n{"port": 80}\n```\n', PORT, {"port": 80}),
        ("[1, 2]", {"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ('{"reply": [1]}', {"type": "array"}, [1]),
        ("null", {}, None),
    ],
)
def test_value_that_fits_is_read(text: str, schema: dict[str, Any], value: object):
    assert read_value(text, schema) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The port is 80.", "not JSON"),
        ('{"port": 80', "not JSON"),
        ('{"port": "80"}', "at port"),
        ('{"port": 0}', "minimum"),
        ("{}", "port"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_value_that_does_not_fit_is_refused_with_the_reason(text: str, problem: str):
    with pytest.raises(FormError, match=problem):
        read_value(text, PORT)


def test_provider_is_sent_a_schema_that_it_can_hold_the_reply_to():
    assert native_schema(PORT) == {
        "type": "object",
        "properties": {"port": {"type": "integer", "minimum": 1}},
        "required": ["port"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"type": ["string", "null"]},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {"type": "array", "items": True},
        {"type": "object", "patternProperties": {"^a": {}}},
        {},
    ],
)
def test_schema_that_providers_differ_in_is_left_to_the_prompt(schema: dict[str, Any]):
    assert native_schema(check_schema(json.loads(json.dumps(schema)))) is None
