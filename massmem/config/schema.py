"""Pydantic's errors in the words of a configuration file, with suggestions for what was mistyped."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from massmem.config.massgen import NO_BACKEND, SERVICES, TYPE_WORDS
from massmem.config.models import TeamConfig
from massmem.config.problems import MAX_SHOWN, KeyPath, Report, suggestion
from massmem.config.section import Section

# By the first word of pydantic's error types: int_type, int_parsing, int_from_float, ...
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "tuple": "a list",
}
_WANTED_TEXT = {
    "string_type": "text (put it in quotes)",
    "string_pattern_mismatch": "1 to 64 letters, digits, '_', '-' or '.', with no '-' or '.' first",
}


def validate(data: Mapping[str, Any], report: Report) -> TeamConfig | None:
    """The configuration, or None with every problem in `report`."""
    try:
        return TeamConfig.model_validate({**data, "source": report.file})
    except ValidationError as e:
        known = {problem.path for problem in report.problems}
        # The input is needed to name it; `Report.show` decides what of it may be seen.
        for error in e.errors(include_url=False, include_context=True, include_input=True):
            path: KeyPath = error["loc"]
            items_refused = error["type"] == "too_short" and error["input"]
            if items_refused or report.written(path) in known:
                # Only what follows from a problem that is already told.
                continue
            report.add(path, _message(path, error["type"], error, report))
        return None


def _message(path: KeyPath, kind: str, error: Mapping[str, Any], report: Report) -> str:
    # A file that is something else altogether has thousands of problems, and finding similar words takes its time.
    suggesting = len(report.problems) < 4 * MAX_SHOWN
    if kind == "extra_forbidden":
        return "unknown key" + (_known_key(path) if suggesting else "")
    if fixed := _fixed(path, kind, error.get("ctx", {})):
        return fixed
    shown = report.show(path, error["input"])
    if kind == "literal_error":
        near = _near_choice(path, error["input"]) if suggesting else ""
        return f"{shown} is not one of {', '.join(_choices(path))}{near}"
    wanted = _WANTED_TEXT.get(kind) or _WANTED.get(kind.split("_")[0])
    # Pydantic's own words are of the form "Input should be less than or equal to 1".
    return f"must {f'be {wanted}' if wanted else re.sub(r'^[A-Z][a-z]+ should ', '', str(error['msg']))}, not {shown}"


def _fixed(path: KeyPath, kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "missing":
            return "is missing: give agents (a list) or agent" if path == ("agents",) else "is missing"
        case "too_short" | "string_too_short":
            return "must not be empty"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "value_error":
            return str(context["error"])
        case _:
            return ""


def _near_choice(path: KeyPath, value: Any) -> str:
    if not isinstance(value, str):
        return ""
    words = (*TYPE_WORDS, *SERVICES, *NO_BACKEND) if path[-2:] == ("backend", "type") else ()
    return suggestion(value, [*_choices(path), *words])


def _known_key(path: KeyPath) -> str:
    section, key = _inner(_annotation(path[:-1])), str(path[-1])
    if section is None:
        return ""
    fields = {name: info.annotation for name, info in section.model_fields.items() if name != "source"}
    if near := suggestion(key, fields):
        return near
    inside = [f"{name}.{key}" for name, annotation in fields.items() if key in _fields(annotation)]
    return f" (did you mean {inside[0]!r}?)" if inside else ""


def _fields(annotation: Any) -> Mapping[str, Any]:
    inner = _inner(annotation)
    return inner.model_fields if inner is not None else {}


def _inner(annotation: Any) -> type[Section] | None:
    """The section inside `Section | None` or `tuple[Section, ...]`."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


def _annotation(path: KeyPath) -> Any:
    annotation: Any = TeamConfig
    for part in path:
        model = _inner(annotation)
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]  # the part is a name that the user chose
        elif isinstance(part, str) and model is not None:
            annotation = model.model_fields[part].annotation if part in model.model_fields else None
    return annotation


def _choices(path: KeyPath) -> tuple[str, ...]:
    annotation = _annotation(path)
    return get_args(annotation) if get_origin(annotation) is Literal else ()
