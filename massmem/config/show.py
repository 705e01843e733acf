"""Show a configuration: its values and where they come from, and the JSON Schema for editors."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, cast

from pydantic import SecretStr

from massmem.config import models, web_search
from massmem.config.load import LoadedConfig
from massmem.config.massgen import BACKEND_WORDS
from massmem.config.models import NO_KEYS, Section, TeamConfig
from massmem.config.yaml import HISTORY_VARIABLES, KeyPath, read_history_overrides
from massmem.core.redact import redact_values

MASKED = "[secret]"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

MODULES = (models, web_search)
"""Those that have the sections of a configuration."""


def read_field_docs(*modules: ModuleType) -> dict[tuple[str, str], str]:
    """Return the line below each field of the modules' classes, by class and field.

    It is read from the source when needed: pydantic's use_attribute_docstrings does so at import, for 0.1 s per start.
    """
    docs: dict[tuple[str, str], str] = {}
    for node in (node for module in modules for node in ast.parse(inspect.getsource(module)).body):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        docs |= {(node.name, field): text for (owner, field), text in docs.items() if owner in bases}
        for field, doc in zip(node.body, node.body[1:], strict=False):
            match field, doc:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[node.name, name] = " ".join(text.split())
                case _:
                    pass
    return docs


# Values and their origins

_ONLY_IF_GIVEN = {"session_name", "memory"}
"""Keys of a section that are shown only when they are given: left out, they mean something that no value says."""
_HISTORY = ("memory", "conversation_memory")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value, or the start of a section."""

    path: KeyPath
    value: Any
    """Empty for a section."""
    origin: str
    """`FILE:LINE`, an environment variable, or `default`."""
    opens: Literal["", "mapping", "list"] = ""
    """The settings that follow are inside this key."""


def list_settings(loaded: LoadedConfig, environ: Mapping[str, str]) -> Iterator[Setting]:
    """Yield all settings in the order of the reference, each section before its content, without secrets.

    Of an agent's `memory`, which overrides the team's, only the given keys are listed. environ: as for `load_config`.

    Raises ConfigError: a CONVERSATION_HISTORY_* variable is wrong.
    """
    return _SettingLister(loaded, environ).list_section(loaded.team, (), only_given=False)


class _SettingLister:
    def __init__(self, loaded: LoadedConfig, environ: Mapping[str, str]) -> None:
        self._loaded = loaded
        self._overrides: dict[KeyPath, Any] = {
            (*_HISTORY, key): value for key, value in read_history_overrides(environ)[0].items()
        }
        self._variables: dict[KeyPath, str] = {(*_HISTORY, key): name for name, key, _ in HISTORY_VARIABLES}

    def list_section(self, section: Section, path: KeyPath, *, only_given: bool) -> Iterator[Setting]:
        for name in type(section).model_fields:
            is_given = name in section.model_fields_set
            optional = name in _ONLY_IF_GIVEN and path != ()
            if name in NO_KEYS or (not is_given and (only_given or optional)):
                continue
            yield from self._list_value(getattr(section, name), (*path, name), only_given=only_given or optional)

    def _list_value(self, value: Any, path: KeyPath, *, only_given: bool) -> Iterator[Setting]:
        match value:
            case Section():
                yield Setting(path, {}, self._origin(path), "mapping")
                yield from self.list_section(value, path, only_given=only_given)
            case tuple() if value and isinstance(value[0], Section):
                yield Setting(path, [], self._origin(path), "list")
                for i, item in enumerate(cast("tuple[Section, ...]", value)):
                    yield Setting((*path, i), {}, self._origin((*path, i)), "mapping")
                    yield from self.list_section(item, (*path, i), only_given=only_given)
            case dict() if value:
                yield Setting(path, {}, self._origin(path), "mapping")
                for name, item in cast("dict[str, Any]", value).items():
                    yield from self._list_value(item, (*path, name), only_given=only_given)
            case _:
                yield Setting(path, _hide_secrets(self._overrides.get(path, value)), self._origin(path))

    def _origin(self, path: KeyPath) -> str:
        report, key_variable = self._loaded.report, self._loaded.key_variable
        if path in self._overrides:
            return self._variables[path]
        if key_variable and path[0] == "agents" and path[2:] in (("backend", "type"), ("backend", "model")):
            return key_variable
        written = report.path_in_file(path)
        if written not in report.lines:
            return "default"
        place = f"{report.file}:{report.lines[written]}"
        return f"environment, {place}" if written in report.from_environment else place


def _hide_secrets(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASKED
    return redact_values(list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value)


# The JSON Schema

_REFERENCE = {"type": "string", "pattern": r"\$\{", "description": "From the environment: ${VAR} or ${VAR:-default}."}
_NOT_TEXT = {"integer", "number", "boolean"}

Json = dict[str, Any]


def build_json_schema() -> Json:
    """Return the JSON Schema of a configuration file, for editors; further keys of MassGen are not in it."""
    schema: Json = TeamConfig.model_json_schema()
    definitions: dict[str, Json] = schema.pop("$defs")
    for backend in (definitions[name]["properties"]["type"] for name in ("BackendConfig", "ModelConfig")):
        backend["enum"] = [*backend["enum"], *BACKEND_WORDS]
    docs = read_field_docs(*MODULES)
    for name, section in {"TeamConfig": schema, **definitions}.items():
        _adapt_section(name, section, docs)
    properties: dict[str, Json] = schema["properties"]
    for name in NO_KEYS:
        del properties[name]
    properties["agent"] = {"$ref": "#/$defs/AgentSpec", "description": "A single agent, in place of agents."}
    return {
        "$schema": DIALECT,
        "title": "massmem configuration",
        **{key: value for key, value in schema.items() if key not in ("title", "required")},
        "oneOf": [{"required": ["agents"]}, {"required": ["agent"]}],
        "$defs": definitions,
    }


def _adapt_section(name: str, section: Json, docs: dict[tuple[str, str], str]) -> None:
    """Give each key its line of the reference, and allow what YAML and the environment make possible."""
    properties = cast("dict[str, Json]", section["properties"])
    for key, value in properties.items():
        value.pop("title", None)
        if text := docs.get((name, key)):
            value["description"] = text
        properties[key] = _allow_reference(value)
    section.pop("title", None)
    section.pop("description", None)
    if name != "TeamConfig" and not section.get("required"):
        section["type"] = ["object", "null"]  # a section whose keys are all commented out is null


def _allow_reference(value: Json) -> Json:
    """Return the schema of a key that also takes ${VAR} where it takes anything but plain text."""
    outer = {key: value[key] for key in ("description", "default") if key in value}
    inner = {key: part for key, part in value.items() if key not in outer}
    choices: list[Json] = inner.pop("anyOf") if set(inner) == {"anyOf"} else [inner]
    if any(choice.get("type") in _NOT_TEXT or "enum" in choice for choice in choices):
        return {**outer, "anyOf": [*choices, dict(_REFERENCE)]}
    return value
