"""Answers in the form of a JSON Schema: the schema is checked before anything is paid, the answer when it is there."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from massmem.core.errors import InputError
from massmem.core.messages import WRAPPER
from massmem.tools.actions import simplify_schema

MAX_CHARACTERS = 100_000
"""Of a schema as JSON: it is part of a prompt."""

_NATIVE_KEYS = {
    *("type", "properties", "required", "items", "enum", "const", "description", "title", "default"),
    *("additionalProperties", "$schema", "$id"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}
"""What providers can hold a reply to, the bounds excepted, which are checked afterwards."""

_FENCE = re.compile(r"\A```\w*[^\S\n]*\n(.*)\n```\Z", re.DOTALL)


class FormError(ValueError):
    """Why a reply does not have the form; the model is shown it."""


def check_schema(schema: object) -> dict[str, Any]:
    """Return the JSON Schema that an answer is to follow.

    Raises:
        InputError: it is no JSON Schema, is too large, or refers to other files.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    hint = 'a small one: {"type": "object", "properties": {"city": {"type": "string"}}}'
    if not isinstance(schema, dict):
        raise InputError("the schema is no JSON object", hint)
    checked = cast("dict[str, Any]", schema)
    if len(json.dumps(checked)) > MAX_CHARACTERS:
        raise InputError(f"the schema has more than {MAX_CHARACTERS:,} characters", "leave out what is not needed")
    try:
        validator_for(checked).check_schema(checked)
    except SchemaError as e:
        where = "/".join(map(str, e.absolute_path)) or "its top"
        raise InputError(f"the schema is no JSON Schema: {e.message} (at {where})", hint) from e
    if other := next((ref for ref in _list_references(checked) if not ref.startswith("#")), None):
        raise InputError(f"the schema refers to {other}, which is not read", "put it below $defs in the same file")
    return checked


def native_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a provider is sent to hold the reply to, None when the prompt alone has to say it."""
    return simplify_schema(schema) if _is_native(schema) else None


def read_value(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the JSON value that a reply consists of; a code fence around it is skipped.

    Raises:
        FormError: it is no JSON, or does not fit the schema.
    """
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    fence = _FENCE.match(text.strip())
    try:
        value: Any = json.loads(fence[1] if fence else text)
    except (ValueError, RecursionError) as e:
        raise FormError(f"it is not JSON: {e}") from e
    match value:
        case {**fields} if schema.get("type") != "object" and [*fields] == [WRAPPER]:
            value = fields[WRAPPER]  # an API that takes only objects was sent the value in one
        case _:
            pass
    validator = validator_for(schema)(schema, registry=Registry[Any]())
    try:
        error = next(validator.iter_errors(value), None)
    except Unresolvable as e:
        raise FormError(f"the schema refers to something that it does not have: {e}") from e
    if error is not None:
        where = "/".join(map(str, error.absolute_path))
        raise FormError(f"{error.message}{f' (at {where})' if where else ''}")
    return value


def _is_native(schema: object) -> bool:
    """Return whether all of the schema can be said in the part of JSON Schema that providers share."""
    if not isinstance(schema, Mapping):
        return False
    fields = cast("Mapping[str, Any]", schema)
    parts = [*fields.get("properties", {}).values(), *([fields["items"]] if "items" in fields else [])]
    return fields.keys() <= _NATIVE_KEYS and isinstance(fields.get("type"), str) and all(map(_is_native, parts))


def _list_references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [ref for part in cast("list[object]", schema) for ref in _list_references(part)]
    if not isinstance(schema, dict):
        return []
    fields = cast("dict[str, object]", schema)
    own = [ref for key in ("$ref", "$dynamicRef") if isinstance(ref := fields.get(key), str)]
    return own + [ref for part in fields.values() for ref in _list_references(part)]
