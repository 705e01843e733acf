"""Answers in the form of a JSON Schema: the schema is checked before anything is paid, the answer when it is there.

A schema is a stranger's: it may be very large, refer to itself without end, or hold patterns that take hours. All that
is looked at before the library sees it, which follows a schema wherever it leads. What is left can still be slow with
some values: a reply that is not compared with it in a moment is compared in a worker process.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from massmem.core.errors import InputError, MassmemError
from massmem.core.messages import WRAPPER
from massmem.core.patterns import PatternError, compile_pattern
from massmem.isolation import call_isolated
from massmem.providers.dialects import tidy_schema
from massmem.tools.actions import simplify_schema
from massmem.tools.fitting import DRAFTS, REFERENCES, SAME_VALUE, Comparison, Json, find_contradiction, resolve

MAX_CHARACTERS = 100_000
"""Of a schema as JSON: it is part of a prompt."""
MAX_DEPTH, MAX_VALUES, MAX_CHOICES = 64, 20_000, 2_000
"""Levels and values of a schema as JSON; values of one `enum`."""
MAX_PARTS = 2_000
"""Schemas within a schema, and how many of them a value may be compared with."""
_MAX_PATTERNS, _COST_OF_PATTERN = 40_000, 400
"""Steps of all patterns together, and how many a small one counts for."""

_MAX_HERE, _SECONDS_HERE, _SECONDS = 100_000, 0.2, 3.0
"""Characters of a reply that is compared in this process, seconds for that, and seconds of a worker process."""

_HINT = 'a small one: {"type": "object", "properties": {"city": {"type": "string"}}}'
_LESS = "leave out what is not needed"

_NATIVE_KEYS = {
    *("type", "properties", "required", "items", "enum", "const", "description", "title", "default"),
    *("additionalProperties", "$schema", "$id"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}
"""Keywords that providers can hold a reply to, the bounds excepted, which are checked afterwards."""

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_SCHEMA, _ITEMS = "a schema", "a schema or a list of them"
_SCHEMAS, _NAMED = "a list of schemas, with one at least", "an object of schemas"
_COUNTS = tuple(f"{end}{of}" for end in ("min", "max") for of in ("Length", "Items", "Contains", "Properties"))
_WITH_SCHEMA = (
    *("additionalProperties", "propertyNames", "additionalItems", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_WITH_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))


_FORMS: Mapping[str, tuple[Callable[[Any], bool], tuple[str, ...]]] = {
    "a number": (_is_number, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "a number above 0": (lambda value: _is_number(value) and value > 0, ("multipleOf",)),
    "a whole number from 0 on": (lambda value: _is_number(value) and value >= 0 and value == int(value), _COUNTS),
    "true or false": (lambda value: isinstance(value, bool), ("uniqueItems",)),
    "a text": (lambda value: isinstance(value, str), ("pattern", "format", "title", "description", *REFERENCES)),
    "a list": (lambda value: isinstance(value, list), ("enum",)),
    "a list of names": (_are_names, ("required",)),
    "an object of lists of names": (
        lambda value: isinstance(value, dict) and all(map(_are_names, cast("Json", value).values())),
        ("dependentRequired",),
    ),
    "a type of JSON": (
        lambda value: all(name in _TYPES for name in (value if _are_names(value) and value else [value])),
        ("type",),
    ),
    _SCHEMA: (lambda value: isinstance(value, dict | bool), _WITH_SCHEMA),
    _ITEMS: (lambda value: isinstance(value, dict | bool | list), ("items",)),
    _SCHEMAS: (lambda value: isinstance(value, list) and value != [], ("allOf", "anyOf", "oneOf", "prefixItems")),
    _NAMED: (lambda value: isinstance(value, dict), _WITH_NAMED),
}
"""The form of a value in words -> whether a value has it, and the keywords whose value must."""
_FORM_OF = {name: form for form, (_, names) in _FORMS.items() for name in names}


class FormError(ValueError):
    """Why a reply does not have the form; the model is shown it."""


def check_schema(schema: object) -> dict[str, Any]:
    """Return the JSON Schema that an answer is to follow.

    Raises InputError: it is no JSON Schema, is too large, refers to other files or to itself without end, has a pattern
    that is not matched here, or no value fits it.
    """
    if not isinstance(schema, dict):
        raise InputError("the schema is no JSON object", _HINT)
    checked = cast("dict[str, Any]", schema)
    check_size(checked)
    _SchemaCheck(checked).run()
    if reason := find_contradiction(checked):
        raise InputError(f"no value fits the schema: {reason}", "correct the schema")
    return checked


def check_size(schema: Json) -> None:
    """Raises InputError: the schema is too large, too deep, or cannot be written as JSON."""
    rows: list[tuple[object, int]] = [(schema, 1)]
    count = 1
    while rows:
        value, depth = rows.pop()
        if depth > MAX_DEPTH:
            raise InputError(f"the schema has more than {MAX_DEPTH} levels", "write a flatter one")
        if isinstance(value, dict | list):
            inner = cast("dict[str, object] | list[object]", value)
            count += len(inner)
            if count > MAX_VALUES:
                raise InputError(f"the schema has more than {MAX_VALUES:,} values", _LESS)
            rows.extend((part, depth + 1) for part in (inner.values() if isinstance(inner, dict) else inner))
        elif isinstance(value, float | int) and not -1e308 <= value <= 1e308:  # NaN is not, either
            raise InputError("the schema has a number that is too large", "write a smaller one")
    try:
        text = json.dumps(schema, ensure_ascii=False)
        text.encode()  # fails for half of a character
    except (TypeError, ValueError) as e:
        raise InputError(f"the schema cannot be written as JSON: {e}", _HINT) from e
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"the schema has more than {MAX_CHARACTERS:,} characters", _LESS)


def list_parts(schema: Json) -> Iterator[tuple[str, Any]]:
    """Yield the schemas that stand directly in a schema, with where they stand."""
    value: Any
    for name, value in schema.items():
        form = _FORM_OF.get(name)
        if form == _SCHEMA or (form == _ITEMS and not isinstance(value, list)):
            yield name, value
        elif form in (_SCHEMAS, _ITEMS):
            yield from ((f"{name}/{number}", part) for number, part in enumerate(cast("list[Any]", value)))
        elif form == _NAMED:
            parts = cast("Json", value).items()
            yield from ((f"{name}/{key}", part) for key, part in parts if not isinstance(part, list))


def check_tool_schema(schema: object) -> dict[str, Any]:
    """Return the schema of a tool's arguments as servers read it.

    Raises:
        InputError: it is too large, or no arguments fit it.
        UnusableSchema: the arguments are no object.
    """
    if isinstance(schema, dict):
        check_size(cast("Json", schema))
    tidy = tidy_schema(cast("object", schema))
    if reason := find_contradiction(tidy):
        raise InputError(f"no arguments fit its schema: {reason}")
    return tidy


class _SchemaCheck:
    """Looks at every part of a schema once, also at those that only references lead to."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._is_old = "$schema" in root and "2020-12" not in str(root["$schema"])
        self._costs: dict[int, int] = {}
        """With how many schemas a part compares one value, by its id; 0: being counted."""
        self._cost_of_patterns = 0
        self._has_unevaluated = "unevaluatedProperties" in str(root)

    def run(self) -> None:
        dialect = str(self._root.get("$schema"))
        if "$schema" in self._root and not dialect.rstrip("#").endswith(tuple(DRAFTS)):
            raise InputError(f"the schema's $schema is {dialect[:100]!r}, which is not read", "leave it out")
        rows: list[tuple[str, Any]] = [("", self._root)]
        parts: dict[int, tuple[str, Json]] = {}
        while rows:
            where, part = rows.pop()
            if isinstance(part, bool) or id(part) in parts:
                continue
            if not isinstance(part, dict):
                raise _refuse(where, "is not a schema")
            fields = parts[id(cast("object", part))] = where, cast("Json", part)
            if len(parts) > MAX_PARTS:
                raise InputError(f"the schema has more than {MAX_PARTS:,} schemas in it", _LESS)
            self._check_part(*fields)
            rows += [(f"{where}/{place}".lstrip("/"), inner) for place, inner in list_parts(fields[1])]
            rows += self._follow(*fields)
        for where, part in parts.values():
            self._count(where, part, 0)

    def _check_part(self, where: str, part: Json) -> None:
        for name, value in part.items():
            form = _FORM_OF.get(name)
            if form is None or (self._is_old and isinstance(value, bool) and name.startswith("exclusive")):
                continue
            form = _SCHEMA if form == _ITEMS and not self._is_old else form
            if not _FORMS[form][0](value):
                raise _refuse(f"{where}/{name}", f"is not {form}")
        if any(isinstance(part.get(name), str) for name in ("$id", "$schema")) and where:
            raise _refuse(where, "has a $schema or $id of its own, which only the whole schema may have")
        if len(cast("Any", part).get("enum", ())) > MAX_CHOICES:
            raise _refuse(f"{where}/enum", f"has more than {MAX_CHOICES:,} values")
        named = [f"patternProperties/{text}" for text in part.get("patternProperties", ())]
        for place in [*(["pattern"] if "pattern" in part else []), *named]:
            try:
                pattern = compile_pattern(part["pattern"] if place == "pattern" else place[18:], javascript=True)
            except PatternError as e:
                raise _refuse(f"{where}/{place}", f"is no pattern that is matched here: {e}") from e
            self._cost_of_patterns += pattern.size + _COST_OF_PATTERN
        if self._cost_of_patterns > _MAX_PATTERNS:
            raise InputError("the patterns of the schema are too many, or too large together", _LESS)
        if named and self._has_unevaluated:
            raise _refuse(where, "has patternProperties beside unevaluatedProperties: write additionalProperties")

    def _follow(self, where: str, part: Json) -> list[tuple[str, Any]]:
        """Return what the references of a part point to."""
        targets: list[tuple[str, Any]] = []
        for name in REFERENCES:
            if (reference := part.get(name)) is None:
                continue
            if not reference.startswith(("#/", "#")) or reference[1:2] not in ("", "/"):
                raise _refuse(f"{where}/{name}", f"refers to {reference[:100]}, which is not read: put it below $defs")
            try:
                targets.append((reference[1:].lstrip("/"), resolve(self._root, reference)))
            except (LookupError, ValueError) as e:
                raise _refuse(f"{where}/{name}", f"refers to {reference[:100]}, which the schema does not have") from e
        return targets

    def _count(self, where: str, part: Any, depth: int) -> int:
        """Return with how many schemas a part compares one value."""
        if isinstance(part, bool):
            return 1
        cost = self._costs.get(id(part))
        if cost == 0:
            raise _refuse(where, "refers to itself without going into a value, so that it says nothing")
        if cost is not None:
            return cost
        if depth > MAX_DEPTH:
            raise _refuse(where, f"is at the end of a chain of more than {MAX_DEPTH} references")
        self._costs[id(part)] = 0
        inner = [(f"{where}/{place}", p) for place, p in list_parts(part) if place.partition("/")[0] in SAME_VALUE]
        total = 1 + sum(self._count(place, p, depth + 1) for place, p in [*inner, *self._follow(where, part)])
        if total > MAX_PARTS:
            raise _refuse(where, f"refers to others so often that a value is compared with {total:,} schemas")
        self._costs[id(part)] = total
        return total


def _refuse(where: str, problem: str) -> InputError:
    return InputError(f"the schema cannot be used: {where.lstrip('/')[:300] or 'all of it'} {problem}", _HINT)


def native_schema(schema: Json) -> dict[str, Any] | None:
    """Return what a provider is sent to hold the reply to, None when the prompt alone has to say it."""
    return simplify_schema(schema) if _is_native(schema) else None


def read_value(text: str, schema: Json) -> Any:
    """Return the JSON value that a reply consists of; a code fence around it is skipped. May take seconds.

    Raises FormError: it is no JSON, does not fit the schema, or is not compared with it in time.
    """
    outcome = _compare(text, schema, _SECONDS_HERE) if len(text) <= _MAX_HERE else None
    if outcome is None:
        try:
            outcome = call_isolated(_compare, text, schema, math.inf, what="comparing the reply", seconds=_SECONDS)
        except MassmemError as e:
            raise FormError(e.message) from e
    value, problem = outcome or (None, "it was not compared")
    if problem:
        raise FormError(problem)
    return value


def _compare(text: str, schema: Json, seconds: float) -> tuple[Any, str] | None:
    """Return the value of a reply and why it does not fit, "" when it does; None when that takes longer."""
    from referencing.exceptions import Unresolvable

    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].partition("\n")[2]
    try:
        value: Any = json.loads(text, parse_constant=_read_float, parse_float=_read_float)
    except (ValueError, RecursionError) as e:
        return None, f"it is not JSON: {e}"
    match value:
        case {**fields} if schema.get("type") != "object" and [*fields] == [WRAPPER]:
            value = fields[WRAPPER]  # an API that takes only objects was sent the value in one
        case _:
            pass
    try:
        return value, Comparison(schema, seconds).explain(value)
    except TimeoutError:
        return None
    except RecursionError:
        return None, "it is nested too deeply"
    except (PatternError, Unresolvable) as e:  # of a turn that was begun before schemas were checked as they are now
        return None, f"the schema cannot be used: {e}"


def _read_float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number of JSON")
    return number


def _is_native(schema: object) -> bool:
    """Return whether all of the schema can be said in the part of JSON Schema that providers share."""
    if not isinstance(schema, Mapping):
        return False
    fields = cast("Json", schema)
    parts = [*fields.get("properties", {}).values(), *([fields["items"]] if "items" in fields else [])]
    return fields.keys() <= _NATIVE_KEYS and isinstance(fields.get("type"), str) and all(map(_is_native, parts))
