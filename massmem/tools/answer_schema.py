"""Answers in the form of a JSON Schema: the schema is checked before anything is paid, the answer when it is there.

A schema is a stranger's: it may refer to itself without end, or hold patterns that take hours. The library follows it
wherever it leads, in a worker process with limits. Its size is looked at before, since it is part of a prompt.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, cast

from massmem.core.errors import InputError, MassmemError
from massmem.core.messages import WRAPPER
from massmem.isolation import call_isolated
from massmem.providers.dialects import tidy_schema
from massmem.tools.actions import list_values, simplify_schema

Json = Mapping[str, Any]

MAX_CHARACTERS = 100_000
"""Of a schema as JSON: it is part of a prompt."""
MAX_DEPTH, MAX_VALUES = 64, 20_000
"""Levels and values of a schema as JSON."""
_SECONDS = 10.0
"""Of a worker process, for a schema or a reply: on a busy machine it loads the library for some of them."""
_MAX_PROBLEM = 500
"""Characters of why a value does not validate: the library quotes the value."""
_DRAFTS = {
    "draft-04/schema": "Draft4Validator",
    "draft-06/schema": "Draft6Validator",
    "draft-07/schema": "Draft7Validator",
    "draft/2019-09/schema": "Draft201909Validator",
    "draft/2020-12/schema": (_NEWEST := "Draft202012Validator"),
}
"""How the `$schema` of a draft ends, and what the library calls its validator."""
_NOT_JSON = "it is not JSON"
_DIGITS = 5_000
"""Of numbers that are compared: `json` reads no longer ones."""
_DECIMAL = re.compile(r"Decimal\('([^']*)'\)")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_HINT = 'a small one: {"type": "object", "properties": {"city": {"type": "string"}}}'
_LESS = "leave out what is not needed"

_NATIVE_KEYS = {
    *("type", "properties", "required", "items", "enum", "const", "description", "title", "default"),
    *("additionalProperties", "$schema", "$id"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}
"""Keywords that providers can hold a reply to, the bounds excepted, which are checked afterwards."""


class FormError(ValueError):
    """Why a reply does not have the form; the model is shown it."""


def check_schema(schema: object, caller: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema that an answer is to follow. May take seconds.

    A schema that contradicts itself is one: no answer will validate.

    caller: who sent it, as for `run_isolated`.

    Raises:
        InputError: it is no JSON Schema, is too large, refers to other files or to itself without end, or takes too
            long to be looked at.
        BusyError: see `run_isolated`.
    """
    if not isinstance(schema, dict):
        raise InputError("the schema is no JSON object", _HINT)
    checked = cast("dict[str, Any]", schema)
    check_size(checked)
    if problem := call_isolated(_find_problem, checked, what="the schema", seconds=_SECONDS, caller=caller):
        raise InputError(f"the schema cannot be used: {problem}", _HINT)
    return checked


def _find_problem(schema: Json) -> str:
    """Return why a schema cannot be used, "" when it can. Runs in a worker process."""
    from jsonschema import SchemaError
    from referencing.exceptions import Unresolvable

    dialect = str(schema.get("$schema", _NEWEST))
    if "$schema" in schema and not dialect.rstrip("#").endswith(tuple(_DRAFTS)):
        return f"its $schema is {dialect[:100]!r}, which is not read: leave it out"
    kind = _find_validator(schema)
    try:
        kind.check_schema(schema, format_checker=kind.FORMAT_CHECKER)  # the format: patterns are patterns
        for reference, resolver in _list_references(kind, schema):
            resolver.lookup(reference)
        validator = kind(schema, registry=_no_files())
        for value in ("null", "true", "0", '""', "[]", "{}"):
            next(validator.iter_errors(json.loads(value)), None)
    except SchemaError as e:
        return f"{'/'.join(map(str, e.absolute_path))[:300] or 'all of it'}: {e.message[:_MAX_PROBLEM]}"
    except Unresolvable as e:
        return f"it refers to {str(e.ref)[:100]}, which it does not have: put it below $defs"
    except RecursionError:
        return "it refers to itself without going into a value, so that it says nothing"
    return ""


def _list_references(kind: Any, schema: Json) -> Iterator[tuple[str, Any]]:
    """Yield the references in a schema, with what looks each of them up."""
    from referencing.jsonschema import specification_with

    specification = specification_with(kind.META_SCHEMA["$schema" if "$schema" in kind.META_SCHEMA else "id"])
    root = specification.create_resource(schema)
    rows = [(root, _no_files().resolver_with_root(root))]
    while rows:
        resource, resolver = rows.pop()
        contents: Any = resource.contents
        if isinstance(contents, dict):
            yield from ((contents[name], resolver) for name in _REFERENCES if name in contents)
        rows += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]


@cache
def _no_files() -> Any:
    """Return the library's registry of other schemas: there are none."""
    from referencing import Registry

    return Registry[Any]()


def _find_validator(schema: Json) -> Any:
    """Return the library's validator for the draft of a schema, the newest where it names none."""
    from jsonschema import validators

    named = str(schema.get("$schema")).rstrip("#")
    return getattr(validators, next((kind for draft, kind in _DRAFTS.items() if named.endswith(draft)), _NEWEST))


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


def check_tool_schema(schema: object) -> dict[str, Any]:
    """Return the schema of a tool's arguments as servers read it.

    Raises:
        InputError: it is too large.
        UnusableSchema: the arguments are no object.
    """
    if isinstance(schema, dict):
        check_size(cast("Json", schema))
    return tidy_schema(cast("object", schema))


def native_schema(schema: Json) -> dict[str, Any] | None:
    """Return what a provider is sent to hold the reply to, None when the prompt alone has to say it."""
    return simplify_schema(schema) if _is_native(schema) else None


def read_value(text: str, schema: Json) -> Any:
    """Return the JSON value in a reply that fits, the last of several. May take seconds.

    Prose, thoughts and code fences around it are skipped, and names and values that differ by case alone are mended.

    Raises FormError: it is no JSON, does not validate, or is not compared with the schema in time.
    """
    try:
        value, problem = call_isolated(_compare, text, schema, what="comparing the reply", seconds=_SECONDS)
    except MassmemError as e:
        raise FormError(e.message) from e
    if problem:
        raise FormError(problem)
    return value


def _compare(text: str, schema: Json) -> tuple[Any, str]:
    """Return the value of a reply and why it does not validate, "" when it does. Runs in a worker process."""
    text = text.strip()
    whole = text[3:-3].partition("\n")[2] if text.startswith("```") and text.endswith("```") else text
    # An object in one that is cut off is none.
    inner = list_values(text) if text.count("{") == text.count("}") else []
    read = [_check(written, schema) for written in dict.fromkeys([whole, *inner, whole.rpartition("\n")[2]])]
    return min(read, key=lambda one: (bool(one[1]), one[1].startswith(_NOT_JSON)))


def _check(text: str, schema: Json) -> tuple[Any, str]:
    """Return the value that a text is, and why it does not validate, "" when it does."""
    try:
        value: Any = json.loads(text, parse_constant=_read_float, parse_float=_read_float)
        exact: Any = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as e:
        return None, f"{_NOT_JSON}: {e}"
    match value:
        case {**fields} if schema.get("type") != "object" and [*fields] == [WRAPPER]:
            value, exact = fields[WRAPPER], exact[WRAPPER]  # an API that takes only objects was sent it in one
        case _:
            pass
    try:
        numbers = json.loads(json.dumps(schema), parse_float=Decimal)
        if not (problem := _explain(exact, numbers)):
            return value, ""
        return _mend(value, schema, schema), problem and _explain(_mend(exact, schema, schema), numbers)
    except RecursionError:
        return None, "it is nested too deeply"


def _mend(value: Any, schema: Any, root: Any) -> Any:
    """Return the value with its texts in the case of those that the schema lists."""
    match value, schema:
        case _, {"$ref": str(reference)} if reference.startswith("#/$defs/"):
            return _mend(value, root["$defs"].get(reference.removeprefix("#/$defs/")), root)
        case str(), {"enum": [*listed]}:
            return next((one for one in listed if str(one).casefold() == value.strip().casefold()), value)
        case [*items], {"items": inner}:
            return [_mend(one, inner, root) for one in items]
        case {**fields}, {"properties": {**inner}}:
            return {key: _mend(one, inner.get(key), root) for key, one in fields.items()}
        case _:
            return value


def _explain(value: Any, schema: Json) -> str:
    """Return why a value does not validate, "" when it does. Its numbers are decimal: 19.99 is a multiple of 0.01."""
    from jsonschema import validators
    from referencing.exceptions import Unresolvable

    kind = _find_validator(schema)
    types = kind.TYPE_CHECKER.redefine("integer", _is_whole)
    validator = cast("Any", validators).extend(kind, type_checker=types)(schema, registry=_no_files())
    try:
        with localcontext(prec=_DIGITS):
            error = next(validator.iter_errors(value), None)
    except (re.error, Unresolvable) as e:  # of a turn that was begun before schemas were checked as they are now
        return f"the schema cannot be used: {e}"
    if error is None:
        return ""
    where = "/".join(map(str, error.absolute_path))
    message = _DECIMAL.sub(r"\1", error.message)
    return f"{message[:_MAX_PROBLEM]}{f' (at {where})' if where else ''}"


def _is_whole(_: object, number: object) -> bool:
    return (isinstance(number, int) and not isinstance(number, bool)) or (
        isinstance(number, Decimal) and number == number.to_integral_value()
    )


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
