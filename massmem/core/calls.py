"""How a call of a tool is named in one line, wherever people and models read of it. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from massmem.core.redact import is_secret_key, redact
from massmem.core.text import one_line

_FIRST_KEYS = ("path", "file_path", "filepath", "file", "filename", "uri", "url", "query", "q", "pattern", "command")
"""Arguments that say best what a call is about; without one of them its first argument does."""

_MAX_VALUE, _MAX_OTHERS = 120, 60
"""Characters of the main argument; of all others together."""


def shorten_tool_name(name: str) -> str:
    """Return a tool's own name, without that of its server: `read_file` of `mcp__files__read_file`."""
    return name.rpartition("__")[2] or name


def describe_call(name: str, arguments: str) -> str:
    """Return a call in one line: `read_file src/app.py (head 20)`. Secrets are left out.

    arguments: a JSON object as text; anything else is shown as it is, cut.
    """
    main, others = split_arguments(arguments)
    return " ".join(filter(None, (shorten_tool_name(name), main, others and f"({others})")))


def split_arguments(arguments: str) -> tuple[str, str]:
    """Return the main argument of a call, and the other ones as `name value, name value`; "" where there is none."""
    try:
        data: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, Mapping):
        return one_line(redact(arguments), _MAX_VALUE), ""
    values = {
        name: text
        for name, value in cast("Mapping[str, Any]", data).items()
        if not is_secret_key(name) and (text := _write_value(value))
    }
    main = next((name for name in _FIRST_KEYS if name in values), next(iter(values), ""))
    others = ", ".join(f"{name} {text}" for name, text in values.items() if name != main)
    return values.get(main, ""), one_line(others, _MAX_OTHERS)


def _write_value(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, Sequence):
        items = cast("Sequence[object]", value)
        text = ", ".join(item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items)
    else:
        text = "" if value is None else json.dumps(value, ensure_ascii=False)
    return one_line(redact(text), _MAX_VALUE)
