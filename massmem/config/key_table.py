"""The reference of all configuration keys, from the models themselves."""

import ast
import inspect
import json
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from massmem.config import models, service
from massmem.config.section import Section

_WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", SecretStr: "secret"}
_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
_MARKS = {tuple: "[]", dict: ".NAME"}
_SECTIONS = {"[]": "list of sections", ".NAME": "sections by name", "": "section"}
# Left out: what no file may set, and a second listing of all memory keys.
_HIDDEN = {"source"}
_LISTED_ELSEWHERE = {"agents[].memory"}


def key_table() -> str:
    """A Markdown table: key, type, default and meaning of everything that a configuration file may hold."""
    meanings = docstrings()
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    rows += [_row(cells) for cells in _rows(models.TeamConfig, "", meanings)]
    return "\n".join(rows) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _rows(section: type[Section], prefix: str, meanings: dict[tuple[str, str], str]) -> Iterator[tuple[str, ...]]:
    for name, info in section.model_fields.items():
        if name in _HIDDEN:
            continue
        inner, mark = _section_in(info.annotation)
        key = prefix + name + mark
        meaning = meanings[section.__name__, name]
        kind = _SECTIONS[mark] if inner else _type(info)
        yield f"`{key}`", kind, _default(info), meaning
        if inner and key not in _LISTED_ELSEWHERE:
            yield from _rows(inner, key + ".", meanings)


def _section_in(annotation: Any) -> tuple[type[Section] | None, str]:
    """The section inside a type, and how a key says that there may be several."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            return part, _MARKS.get(get_origin(annotation), "")
    return None, ""


def _type(info: FieldInfo) -> str:
    limits = [
        f"{sign} {limit}"
        for name, sign in _BOUNDS
        for part in info.metadata
        if (limit := getattr(part, name, None)) is not None
    ]
    return ", ".join([_name(info.annotation), *limits])


def _name(annotation: Any) -> str:
    arguments = get_args(annotation)
    match get_origin(annotation):
        case None:
            return _WORDS.get(annotation, "anything")
        case origin if origin is Literal:
            return ", ".join(f"`{choice}`" for choice in arguments)
        case origin if origin is Annotated:
            return _name(arguments[0])
        case origin if origin in (Union, UnionType):
            return " or ".join(_name(part) for part in arguments if part is not type(None))
        case origin if origin is tuple:
            return f"list of {_name(arguments[0])}"
        case _:
            return f"mapping to {_name(arguments[1])}"


def _default(info: FieldInfo) -> str:
    default = info.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, Section) or default in (None, "", (), {}):
        return ""
    return f"`{json.dumps(default)}`" if not isinstance(default, str) else f"`{default}`"


def docstrings() -> dict[tuple[str, str], str]:
    """(class, field) -> the line below the field.

    Read from the source when asked for: pydantic's use_attribute_docstrings does it at import, for 0.1 s of each start.
    """
    found: dict[tuple[str, str], str] = {}
    source = inspect.getsource(service) + inspect.getsource(models)
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, doc in zip(node.body, node.body[1:], strict=False):
            match field, doc:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[node.name, name] = " ".join(text.split())
                case _:
                    pass
    return found
