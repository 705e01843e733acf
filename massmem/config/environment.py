"""`${VAR}` and `${VAR:-default}` in values, and the variables that override settings."""

import re
from collections.abc import Mapping
from typing import Any, cast

from massmem.config.problems import KeyPath, Report, cut

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)
# A file of references to one long variable must not grow without end.
MAX_EXPANDED = 1_000_000

_HISTORY: tuple[tuple[str, str, type], ...] = (
    ("CONVERSATION_HISTORY_ENABLED", "enabled", bool),
    ("CONVERSATION_HISTORY_MAX_MESSAGES", "max_messages", int),
    ("CONVERSATION_HISTORY_MAX_TOKENS", "max_tokens", int),
)
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class _Expansion:
    def __init__(self, environ: Mapping[str, str], report: Report) -> None:
        self._environ = environ
        self._report = report
        self._budget = MAX_EXPANDED

    def value(self, value: Any, path: KeyPath, local: Mapping[str, str]) -> Any:
        if isinstance(value, str):
            return self._text(value, path, local) if "${" in value else value
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            # MassGen's ${cwd} names the agent's own folder, which stands beside it.
            if isinstance(cwd := mapping.get("cwd"), str) and "${" not in cwd:
                local = {"cwd": cwd}
            return {key: self.value(part, (*path, key), local) for key, part in mapping.items()}
        if isinstance(value, list):
            return [self.value(part, (*path, i), local) for i, part in enumerate(cast("list[Any]", value))]
        return value

    def _text(self, text: str, path: KeyPath, local: Mapping[str, str]) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            found = self._lookup(match[2], path, local)
            self._budget -= len(found)
            return found if self._budget >= 0 else ""

        expanded = _REFERENCE.sub(replace, text)
        if self._budget < 0:
            self._report.add(path, f"the values from the environment make more than {MAX_EXPANDED:,} characters")
        return expanded

    def _lookup(self, reference: str, path: KeyPath, local: Mapping[str, str]) -> str:
        parts = _NAME.fullmatch(reference)
        if parts is None:
            self._report.add(path, "${...} takes a variable's name or NAME:-default; write $${ for a literal ${")
            return ""
        name, has_default, default = parts[1], parts[2], parts[3]
        found = local.get(name, self._environ.get(name))
        if found is not None and not found.isascii() and not _is_unicode(found):
            self._report.add(path, f"the environment variable {cut(name)} is not UTF-8")
            return ""
        if name not in local:
            self._report.environment.add(path)
        if found or (found is not None and not has_default):
            return found
        if has_default:
            return default
        self._report.add(path, f"{cut(name)} is not set ({how_to_set(cut(name))}; $${{ is a literal ${{)")
        return ""


def expand(data: dict[str, Any], environ: Mapping[str, str], report: Report) -> dict[str, Any]:
    """A copy of `data` with the references in all string values replaced, once: what a variable holds is not expanded.

    As in a shell, `:-` also stands in for a variable that is empty. Problems go to `report`, which also learns which
    values came from the environment.
    """
    return _Expansion(environ, report).value(data, (), {})


def how_to_set(name: str) -> str:
    return f"set it: export {name}=..., or a line {name}=... in .env"


def history_overrides(environ: Mapping[str, str]) -> tuple[dict[str, bool | int | None], list[str]]:
    """Keys of memory.conversation_memory that the environment sets, and one line for each variable that is wrong.

    An empty variable counts as not given.
    """
    values: dict[str, bool | int | None] = {}
    problems: list[str] = []
    for name, key, kind in _HISTORY:
        text = environ.get(name, "").strip()
        if not text:
            continue
        if kind is bool and text.lower() in _SWITCH:
            values[key] = _SWITCH[text.lower()]
        elif kind is int and re.fullmatch(r"[0-9]{1,12}", text):
            values[key] = int(text)
        else:
            problems.append(f"environment: {name}: must be {'true or false' if kind is bool else 'a whole number'}")
    return values, problems


def history_origins() -> dict[str, str]:
    """The variable for each key of memory.conversation_memory that has one."""
    return {key: name for name, key, _ in _HISTORY}


def _is_unicode(text: str) -> bool:
    """Bytes of the environment that are no UTF-8 arrive as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in text)
