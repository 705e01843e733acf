"""Environment variables in a configuration: references such as `${VAR}`, and variables that override keys."""

import re
from collections.abc import Mapping
from typing import Any, cast

from massmem.config.models import StoreConfig
from massmem.config.yaml import KeyPath, Report, shorten

MAX_EXPANDED = 1_000_000
"""Characters that the variables of a file may add: a file of references to one long variable must not grow forever."""

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)
_HISTORY: tuple[tuple[str, str, type], ...] = (
    ("CONVERSATION_HISTORY_ENABLED", "enabled", bool),
    ("CONVERSATION_HISTORY_MAX_MESSAGES", "max_messages", int),
    ("CONVERSATION_HISTORY_MAX_TOKENS", "max_tokens", int),
)
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def expand_variables(data: dict[str, Any], environ: Mapping[str, str], report: Report) -> dict[str, Any]:
    """Return a copy of `data` with the references in all string values replaced.

    As in a shell, `:-` also replaces a variable that is empty. The value of a variable is not expanded again. `report`
    gets the problems and the keys whose value came from the environment.
    """
    return _Expander(environ, report).expand(data, (), {})


class _Expander:
    def __init__(self, environ: Mapping[str, str], report: Report) -> None:
        self._environ = environ
        self._report = report
        self._budget = MAX_EXPANDED

    def expand(self, value: Any, path: KeyPath, local: Mapping[str, str]) -> Any:
        """local: variables that the file itself defines; they win over the environment."""
        if isinstance(value, str):
            return self._expand_text(value, path, local) if "${" in value else value
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            # MassGen's ${cwd} names the agent's own folder, which stands beside it.
            if isinstance(cwd := mapping.get("cwd"), str) and "${" not in cwd:
                local = {"cwd": cwd}
            return {key: self.expand(part, (*path, key), local) for key, part in mapping.items()}
        if isinstance(value, list):
            return [self.expand(part, (*path, i), local) for i, part in enumerate(cast("list[Any]", value))]
        return value

    def _expand_text(self, text: str, path: KeyPath, local: Mapping[str, str]) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            value = self._resolve(match[2], path, local)
            self._budget -= len(value)
            return value if self._budget >= 0 else ""

        expanded = _REFERENCE.sub(replace, text)
        if self._budget < 0:
            self._report.add(path, f"the values from the environment make more than {MAX_EXPANDED:,} characters")
        return expanded

    def _resolve(self, reference: str, path: KeyPath, local: Mapping[str, str]) -> str:
        parts = _NAME.fullmatch(reference)
        if parts is None:
            self._report.add(path, "${...} takes a variable's name or NAME:-default; write $${ for a literal ${")
            return ""
        name, has_default, default = parts[1], parts[2], parts[3]
        value = local.get(name, self._environ.get(name))
        if value is not None and not _is_unicode(value):
            self._report.add(path, f"the environment variable {shorten(name)} is not UTF-8")
            return ""
        if name not in local:
            self._report.from_environment.add(path)
        if value or (value is not None and not has_default):
            return value
        if has_default:
            return default
        self._report.add(path, f"{shorten(name)} is not set ({how_to_set(shorten(name))}; $${{ is a literal ${{)")
        return ""


def _is_unicode(text: str) -> bool:
    # Bytes of the environment that are not UTF-8 arrive as lone surrogates.
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def how_to_set(name: str) -> str:
    """Return the advice for a variable that is not set."""
    return f"set it: export {name}=..., or a line {name}=... in .env"


def read_history_overrides(environ: Mapping[str, str]) -> tuple[dict[str, bool | int | None], list[str]]:
    """Return the keys of memory.conversation_memory that the environment sets, and a problem per wrong variable.

    An empty variable counts as not set.
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


def complete_redis_url(store: StoreConfig, environ: Mapping[str, str]) -> StoreConfig:
    """Return the store with the address in REDIS_URL, or this machine, for `redis://` without a host."""
    if store.url != "redis://":
        return store
    return store.model_copy(update={"url": environ.get("REDIS_URL", "").strip() or "redis://localhost:6379"})


def get_history_variables() -> dict[str, str]:
    """Return the variable of each key of memory.conversation_memory that has one."""
    return {key: name for name, key, _ in _HISTORY}
