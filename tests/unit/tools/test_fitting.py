"""Schemas that nothing fits are found, and no other one is accused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.validators import validator_for

from massmem.core.errors import InputError
from massmem.tools.answer_schema import check_schema
from massmem.tools.fitting import Comparison, find_contradiction

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
DRAFT_7, DRAFT_2020 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


def require(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


EMPTY: dict[str, tuple[dict[str, Any], str]] = {
    "not anything": ({"not": {}}, "not"),
    "not what it is": ({"type": "string", "not": {"type": "string"}}, "not"),
    "no choice": ({"enum": []}, "none of the values"),
    "types that differ": ({"allOf": [TEXT, WHOLE]}, "no type"),
    "whole number between two": ({**WHOLE, "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "multiple of 1"),
    "minimum above maximum": ({**NUMBER, "minimum": 5, "maximum": 3}, "minimum of 5 above"),
    "minimum that is excluded": ({**NUMBER, "exclusiveMinimum": 3, "maximum": 3}, "minimum of 3"),
    "no multiple": ({**NUMBER, "minimum": 1, "maximum": 4, "multipleOf": 5}, "multiple of 5"),
    "text too long": ({**TEXT, "minLength": 5, "maxLength": 3}, "minLength of 5"),
    "bounds that come together": ({**TEXT, "minLength": 1, "allOf": [{"maxLength": 0}]}, "minLength of 1"),
    "list too long": ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems of 3"),
    "no items": ({"type": "array", "items": False, "minItems": 1}, "no value is allowed for 0"),
    "more items than there may be": (
        {"type": "array", "prefixItems": [TEXT], "items": False, "minItems": 2},
        "no value is allowed for 1",
    ),
    "too few different items": (
        {"type": "array", "uniqueItems": True, "items": {"enum": [1, 1.0, 2]}, "minItems": 3},
        "there are 2",
    ),
    "item that it contains": ({"type": "array", "contains": WHOLE, "items": TEXT}, "no type"),
    "contains too much": ({"type": "array", "contains": TEXT, "minContains": 3, "maxItems": 2}, "3 items"),
    "closed object": ({"type": "object", "required": ["a"], "additionalProperties": False}, "allowed for a"),
    "closed by unevaluated": ({"type": "object", "required": ["a"], "unevaluatedProperties": False}, "allowed for a"),
    "name that is forbidden": ({**require(a=TEXT), "propertyNames": {"pattern": "^b"}}, "propertyNames"),
    "property that is empty": (require(a=require(b={"allOf": [TEXT, {"type": "null"}]})), "no type is left for a/b"),
    "required by another": (
        {"type": "object", "required": ["a"], "dependentRequired": {"a": ["b"]}, "properties": {"b": False}},
        "allowed for b",
    ),
    "too many required": ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, "maxProperties of 1"),
    "too few names": ({"type": "object", "propertyNames": {"enum": ["a"]}, "minProperties": 2}, "minProperties of 2"),
    "too few properties": (
        {"type": "object", "properties": {"a": TEXT, "b": False}, "additionalProperties": False, "minProperties": 2},
        "1 can be there",
    ),
    "value of another type": ({"const": 1, "type": "string"}, "none of the values"),
    "choices that are too short": ({"enum": ["a", "b"], "minLength": 2}, "none of the values"),
    "choices without the pattern": ({"enum": ["b"], "pattern": "^a"}, "none of the values"),
    "all alternatives empty": ({"anyOf": [False, {"allOf": [TEXT, WHOLE]}]}, "no type"),
    "twice the same": ({"oneOf": [TEXT, TEXT], "type": "string"}, "no alternative"),
    "then false": ({"if": True, "then": False}, "no value is allowed"),
    "then and else false": ({"if": TEXT, "then": False, "else": False}, "no value is allowed"),
    "object in itself": (require(a={"$ref": "#"}), "without end"),
    "list in itself": ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "without end"),
    "node after node": ({"$defs": {"node": NODE}, "$ref": "#/$defs/node"}, "without end"),
    "draft 7: items": ({"$schema": DRAFT_7, "type": "array", "items": [False], "minItems": 1}, "allowed for 0"),
    "draft 7: dependencies": (
        {"$schema": DRAFT_7, "required": ["a"], "type": "object", "dependencies": {"a": {"required": ["c"]}}}
        | {"properties": {"c": False}},
        "allowed for c",
    ),
}


@pytest.mark.parametrize(("schema", "reason"), EMPTY.values(), ids=EMPTY)
def test_schema_that_nothing_fits_is_refused_with_the_reason(schema: dict[str, Any], reason: str):
    with pytest.raises(InputError) as error:
        check_schema(schema)
    assert error.value.message.startswith("no value fits the schema: ")
    assert reason in error.value.message


names = st.sampled_from(["a", "b", "next", ""])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([0.5, -2.25, 1.0, 0.3])
    | st.text("ab1 é", max_size=3)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
bounds = st.integers(0, 3)


def name_type(value: Any) -> str:
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


class Around:
    """Makes schemas that a value fits."""

    def __init__(self, draw: Callable[[Any], Any], *, is_old: bool) -> None:
        self.draw = draw
        self.is_old = is_old
        self.definitions: dict[str, Any] = {}

    def write(self, value: Any, depth: int = 0) -> Any:
        if depth > 4:
            return True
        schema: dict[str, Any] = {}
        rows = [self.say_type, self.say_values, self.say_size, self.say_inner, self.combine, self.refer]
        for row in self.draw(st.lists(st.sampled_from(rows), max_size=4, unique=True)):
            schema |= row(value, depth + 1)
        return {"$ref": schema["$ref"]} if "$ref" in schema else schema

    def say_type(self, value: Any, _: int) -> dict[str, Any]:
        name = name_type(value)
        wide = "number" if name == "integer" and self.draw(st.booleans()) else name
        return {
            "type": self.draw(st.sampled_from([wide, [wide, "null"], ["array", wide] if wide != "array" else wide]))
        }

    def say_values(self, value: Any, _: int) -> dict[str, Any]:
        other = self.draw(values)
        is_other = validator_for({})({"const": value}).is_valid(other) is False
        choices: list[dict[str, Any]] = [{"const": value}, {"enum": [other, value]}]
        choices += [{"not": {"const": other}}, {"not": {"enum": [other]}}] if is_other else []
        choices += [{"not": {"type": "null"}}] if value is not None else []
        return self.draw(st.sampled_from(choices))

    def say_size(self, value: Any, _: int) -> dict[str, Any]:
        less, more = self.draw(bounds), self.draw(bounds)
        match value:
            case bool() | None:
                return {"minLength": 4, "maxLength": 1}  # for other types
            case int() | float():
                low = {"exclusiveMinimum": value - less} if less else {"minimum": value}
                high = {"exclusiveMaximum": value + more} if more else {"maximum": value}
                return low | high | ({"multipleOf": value} if value > 0 else {})
            case str():
                return {"minLength": max(0, len(value) - less), "maxLength": len(value) + more, "pattern": f"^{value}"}
            case list():
                return {"minItems": max(0, len(value) - less), "maxItems": len(value) + more}
            case _:
                return {"minProperties": max(0, len(value) - less), "maxProperties": len(value) + more}

    def say_inner(self, value: Any, depth: int) -> dict[str, Any]:
        if isinstance(value, list):
            return self.say_items(value, depth)
        if not isinstance(value, dict):
            return {}
        fields: dict[str, Any] = value
        own = self.draw(st.lists(st.sampled_from([*fields]), unique=True)) if fields else []
        others = [inner for name, inner in fields.items() if name not in own]
        schema: dict[str, Any] = {
            "properties": {name: self.write(fields[name], depth) for name in own} | {"unused": False},
            "required": [*fields][: self.draw(bounds)],
            "additionalProperties": self.any_of(others, depth) if others else False,
        }
        if self.draw(st.booleans()):
            schema["propertyNames"] = {"enum": [*fields, "z"]}
        if self.draw(st.booleans()) and fields:
            kind = "dependencies" if self.is_old else "dependentRequired"
            schema[kind] = {next(iter(fields)): [*fields], "unused": ["none"]}
        return schema

    def say_items(self, items: list[Any], depth: int) -> dict[str, Any]:
        count = self.draw(st.integers(0, len(items)))
        first, others = [self.write(item, depth) for item in items[:count]], items[count:]
        rest = self.any_of(others, depth) if others else False
        schema: dict[str, Any] = {"items": rest}
        if first:
            schema = {"items": first, "additionalItems": rest} if self.is_old else {"prefixItems": first, "items": rest}
        if items and self.draw(st.booleans()):
            schema["contains"] = self.write(items[-1], depth)
        if validator_for({})({"uniqueItems": True}).is_valid(items):
            schema["uniqueItems"] = True
        return schema

    def any_of(self, items: list[Any], depth: int) -> dict[str, Any]:
        return {"anyOf": [*(self.write(item, depth) for item in items), False]}

    def combine(self, value: Any, depth: int) -> dict[str, Any]:
        first, other = self.write(value, depth), self.draw(st.sampled_from([False, {"type": "null"}, TEXT, {}]))
        combined: list[dict[str, Any]] = [
            {"allOf": [first, self.write(value, depth)]},
            {"anyOf": self.draw(st.permutations([first, other]))},
            {"oneOf": [False, first]},
            {"if": other, "then": first, "else": first},
            {"if": first, "then": self.write(value, depth), "else": False},
            {"if": False, "then": False, "else": first},
            {"not": {"not": first}},
        ]
        return self.draw(st.sampled_from(combined))

    def refer(self, value: Any, depth: int) -> dict[str, Any]:
        name = f"d{len(self.definitions)}"
        self.definitions[name] = True
        self.definitions[name] = self.write(value, depth)
        return {"$ref": f"#/$defs/{name}"}


@st.composite
def fitting(draw: Any) -> tuple[Any, dict[str, Any]]:
    """A value, and a schema that it fits."""
    around = Around(draw, is_old=draw(st.booleans()))
    value = draw(values)
    schema = {"allOf": [around.write(value)], "$defs": around.definitions}
    return value, {**schema, "$schema": DRAFT_7 if around.is_old else DRAFT_2020}


def check_fitting_schema(case: tuple[Any, dict[str, Any]]) -> None:
    value, schema = case
    assert Comparison(schema, 60).explain(value) == ""
    assert find_contradiction(schema) == ""
    assert check_schema(schema) == schema


slowly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@settings(slowly, max_examples=150)
@given(fitting())
def test_schema_that_a_value_fits_is_not_accused(case: tuple[Any, dict[str, Any]]):
    check_fitting_schema(case)


@pytest.mark.full
@settings(slowly, max_examples=10_000)
@given(fitting())
def test_schema_that_a_value_fits_is_not_accused_in_many_cases(case: tuple[Any, dict[str, Any]]):
    check_fitting_schema(case)
