"""A configuration as it counts: every value with where it comes from, and no secret among them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import SecretStr

from massmem.config.environment import history_origins, history_overrides
from massmem.config.load import Loaded
from massmem.config.problems import KeyPath
from massmem.config.section import Section
from massmem.redact import redact_values

MASKED = "[secret]"

# Left out means something that no value says, or the value is no key of a file.
_UNLESS_GIVEN = {"session_name", "memory"}
_HIDDEN = {"source"}
_HISTORY = ("memory", "conversation_memory")
_RATIO = ("memory", "compression", "target_ratio")
_SECOND_RATIO = ("coordination", "compression_target_ratio")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value, or the beginning of what is nested in a key (opens: of which kind; its value is empty then).

    origin: `FILE:LINE`, an environment variable, or `default`.
    """

    path: KeyPath
    value: Any
    origin: str
    opens: Literal["", "mapping", "list"] = ""


def settings(loaded: Loaded, environ: Mapping[str, str]) -> Iterator[Setting]:
    """All settings in the order of the reference, each section before what is in it.

    Of an agent's `memory`, which is laid over the team's, only the keys that were given. environ: as for load.

    Raises ConfigError when a CONVERSATION_HISTORY_* variable is wrong.
    """
    return _Walk(loaded, environ).section(loaded.team, (), only_given=False)


class _Walk:
    def __init__(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        self._loaded = loaded
        self._overrides: dict[KeyPath, Any] = {
            (*_HISTORY, key): value for key, value in history_overrides(environ)[0].items()
        }
        self._variables: dict[KeyPath, str] = {(*_HISTORY, key): name for key, name in history_origins().items()}

    def section(self, section: Section, path: KeyPath, *, only_given: bool) -> Iterator[Setting]:
        for name in type(section).model_fields:
            given = name in section.model_fields_set
            optional = name in _UNLESS_GIVEN and path != ()
            if name in _HIDDEN or (not given and (only_given or optional)):
                continue
            yield from self._value(getattr(section, name), (*path, name), only_given=only_given or optional)

    def _value(self, value: Any, path: KeyPath, *, only_given: bool) -> Iterator[Setting]:
        match value:
            case Section():
                yield Setting(path, {}, self._origin(path), "mapping")
                yield from self.section(value, path, only_given=only_given)
            case tuple() if value and isinstance(value[0], Section):
                yield Setting(path, [], self._origin(path), "list")
                for i, item in enumerate(cast("tuple[Section, ...]", value)):
                    yield Setting((*path, i), {}, self._origin((*path, i)), "mapping")
                    yield from self.section(item, (*path, i), only_given=only_given)
            case dict() if value:
                yield Setting(path, {}, self._origin(path), "mapping")
                for name, item in cast("dict[str, Any]", value).items():
                    yield from self._value(item, (*path, name), only_given=only_given)
            case _:
                shown, decides = self._decided(value, path)
                yield Setting(path, _plain(shown), self._origin(decides))

    def _decided(self, value: Any, path: KeyPath) -> tuple[Any, KeyPath]:
        """The value that counts, and the key that says so."""
        if path == _RATIO and "target_ratio" not in self._loaded.team.memory.compression.model_fields_set:
            return self._loaded.team.target_ratio, _SECOND_RATIO
        return self._overrides.get(path, value), path

    def _origin(self, path: KeyPath) -> str:
        report = self._loaded.report
        if path in self._overrides:
            return self._variables[path]
        if self._loaded.chosen and path[0] == "agents" and path[2:] in (("backend", "type"), ("backend", "model")):
            return self._loaded.chosen
        written = report.written(path)
        if written not in report.lines:
            return "default"
        where = f"{report.file}:{report.lines[written]}"
        return f"environment, {where}" if written in report.environment else where


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASKED
    return redact_values(list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value)
