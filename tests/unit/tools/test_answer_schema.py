import json
import re
from typing import Any

import pytest

from massmem.core.errors import InputError
from massmem.tools.answer_schema import MAX_CHARACTERS, FormError, check_schema, native_schema, read_value

PORT = {"type": "object", "properties": {"port": {"type": "integer", "minimum": 1}}, "required": ["port"]}


TEXT = {"type": "string"}
DOUBLING = {
    "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": TEXT},
    "$ref": "#/$defs/d0",
}
DEEP = json.loads('{"items": ' * 80 + "{}" + "}" * 80)

REFUSED: dict[str, tuple[Any, str]] = {
    "no schema": ("text", "no JSON object"),
    "refers to itself": ({"$ref": "#"}, "refers to itself"),
    "refers to itself through others": (
        {"$defs": {"a": {"anyOf": [TEXT, {"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}
        | {"$ref": "#/$defs/a"},
        "refers to itself",
    ),
    "refers to itself dynamically": ({"$dynamicRef": "#"}, "refers to itself"),
    "refers to another file": ({"items": {"$ref": "https://example.org/a.json"}}, "refers to https://example"),
    "refers to nothing": ({"properties": {"a": {"$ref": "#/$defs/a"}}}, "which it does not have"),
    "references that multiply": (DOUBLING, "takes longer"),
    "too deep": (DEEP, "64 levels"),
    "too large a constant": ({"const": "x" * 200_000}, "100,000 characters"),
    "too many values": ({"enum": [*range(30_000)]}, "20,000 values"),
    "factor of nothing": ({"multipleOf": 0}, "multipleOf: 0 is"),
    "length that is none": ({"minLength": -1}, "minLength: -1 is"),
    "keyword of a wrong type": ({"properties": {"a": {"required": True}}}, "properties/a/required: True is not"),
    "unknown type": ({"type": "objekt"}, "type: 'objekt' is not"),
    "unknown dialect": ({"$schema": "https://example.org/schema"}, "$schema"),
    "pattern that is none": ({"properties": {"a": {"pattern": "("}}}, "properties/a/pattern: '(' is not a 'regex'"),
    "text that is too long": ({"description": "x" * MAX_CHARACTERS}, f"{MAX_CHARACTERS:,}"),
    "list of properties": ({"properties": []}, "properties: []"),
    "relative reference": ({"allOf": [{"$ref": "other.json#/a"}]}, "refers to other.json"),
    "pattern of a name": ({"patternProperties": {"(": {}}}, "patternProperties"),
    "pattern where nobody looks": ({"$defs": {"a": {"pattern": "("}}}, "$defs/a/pattern"),
}


@pytest.mark.parametrize(("schema", "reason"), REFUSED.values(), ids=REFUSED)
def test_schema_that_is_none_is_refused_with_the_reason(schema: object, reason: str):
    with pytest.raises(InputError, match=re.escape(reason)) as error:
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
        ('The answer is {"port": 80}, as [1] says.', PORT, {"port": 80}),
        ('<think>{"port": 79}?</think>\nHere:\n```json\n{"port": 80}\n```\nDone.', PORT, {"port": 80}),
        ("It is:\n80", {"type": "integer"}, 80),
        ('{"risk": "High"}', {"properties": {"risk": {"enum": ["low", "high"]}}}, {"risk": "high"}),
        ('["LOW "]', {"items": {"$ref": "#/$defs/Risk"}, "$defs": {"Risk": {"enum": ["low"]}}}, ["low"]),
    ],
)
def test_value_that_fits_is_read(text: str, schema: dict[str, Any], value: object):
    assert read_value(text, schema) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The port is 80.", "not JSON"),
        ('{"port": 80', "not JSON"),
        ('{"ports": [{"port": 80}, {"po', "not JSON"),
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


ITEM = {"type": "array", "allOf": [{"items": {"$ref": "#/$defs/item"}}] * 3}


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("[" * 40 + "]" * 40, {"$defs": {"item": ITEM}, "allOf": [{"$ref": "#/$defs/item"}]}),
        (json.dumps("a" * 40 + "!"), {"pattern": "^(a+)+$"}),
        (json.dumps({"a" * 40 + "!": 1}), {"patternProperties": {"^(a+)+$": False}}),
    ],
)
def test_value_that_takes_too_long_to_compare_is_given_up_after_seconds(text: str, schema: dict[str, Any]):
    check_schema(schema)
    with pytest.raises(FormError, match="longer than"):
        read_value(text, schema)


def test_schema_that_contradicts_itself_is_refused_with_the_first_answer():
    schema = check_schema({"type": "integer", "minimum": 5, "maximum": 3})
    with pytest.raises(FormError, match=r"4 is greater than the maximum of 3|4 is less than the minimum of 5"):
        read_value("4", schema)


@pytest.mark.parametrize(
    ("text", "schema", "fits"),
    [
        (json.dumps({"a1": 1, "b": 2}), {"patternProperties": {"^a": {}}, "additionalProperties": False}, False),
        (json.dumps({"b": 1}), {"additionalProperties": {"type": "string"}}, False),
        ("[1, 1.0]", {"uniqueItems": True}, False),
        ("[1, true]", {"uniqueItems": True}, True),
        ("19.99", {"multipleOf": 0.01}, True),
        ("19.995", {"multipleOf": 0.01}, False),
        ("7" * 4_000, {"multipleOf": 0.5}, True),
        ("2.0", {"type": "integer"}, True),
        ("0.5", {"enum": [0.5]}, True),
        ("1e999", {"type": "number"}, False),
        ("NaN", {}, False),
        ("```" + "\n" * 100_000 + "```", {}, False),
        ("[" * 900 + "]" * 900, {"items": {"$ref": "#"}}, False),
    ],
    ids=range(13),
)
def test_value_is_compared_exactly(text: str, schema: dict[str, Any], *, fits: bool):
    check_schema(schema)
    try:
        read_value(text, schema)
    except FormError as error:
        assert not fits
        assert "Decimal" not in str(error)
    else:
        assert fits


@pytest.mark.parametrize(
    "draft", ["draft-04/schema#", "draft-07/schema", "draft/2019-09/schema", "draft/2020-12/schema"]
)
def test_schema_of_a_known_draft_is_read(draft: str):
    schema = {"$schema": f"http://json-schema.org/{draft}", "type": "array", "items": PORT, "uniqueItems": True}
    assert read_value('[{"port": 80}]', check_schema(schema)) == [{"port": 80}]
    with pytest.raises(FormError):
        read_value('[{"port": 80}, {"port": 80}]', schema)


def test_names_of_properties_are_no_keywords():
    names = {name: {"type": "string"} for name in ("$ref", "$id", "$schema", "enum", "pattern", "properties")}
    schema = check_schema({"type": "object", "properties": names, "required": ["$ref"]})
    assert read_value('{"$ref": "#", "pattern": "("}', schema) == {"$ref": "#", "pattern": "("}
