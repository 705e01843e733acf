"""Which tool a call names, and how a call is named in one line, wherever people and models read of it. Pure."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from massmem.core.redact import is_secret_key, redact
from massmem.core.text import one_line

_FIRST_KEYS = ("path", "file_path", "filepath", "file", "filename", "uri", "url", "query", "q", "pattern", "command")
"""Arguments that say best what a call is about; without one of them its first argument does."""

_OTHER_NAMES = {
    "search_text": ("grep", "rg", "ripgrep", "search", "grepsearch", "searchfiles", "findtext"),
    "read_file": ("read", "cat", "view", "openfile"), "list_files": ("ls", "glob", "list", "listdir", "findfiles"),
}  # fmt: skip
"""How coding agents call massmem's own tools, as `_split_name` returns it."""

_MAX_VALUE, _MAX_OTHERS = 120, 60
"""Characters of the main argument; of all others together."""


def shorten_tool_name(name: str) -> str:
    """Return a tool's own name, without that of its server: `read_file` of `mcp__files__read_file`."""
    return name.rpartition("__")[2] or name


def find_tool_name(name: str, names: Collection[str]) -> str:
    """Return the one name of these that a model means, `name` itself where none or several fit.

    Models write `functions.vote`, `default_api:vote`, `Vote`, ` vote`, `vote:0`, `grep`, or no name of a server.
    """
    if name in names:
        return name
    parts = _split_name(name)
    fitting = [
        known
        for known in names
        for others in [_split_name(known)]
        if parts and (parts[-len(others) :] == others or others[-len(parts) :] == parts)
    ]
    fitting = fitting or [own for own, others in _OTHER_NAMES.items() if own in names and "".join(parts[-1:]) in others]
    return fitting[0] if len(fitting) == 1 else name


def _split_name(name: str) -> list[str]:
    """Return the parts of a name in small letters, without a number or a mark of a chat template at its end."""
    words = re.split(r"__|[^\w-]+", name.partition("<|")[0].casefold())
    parts = [re.sub("[_-]", "", word) for word in words if word]
    return parts[:-1] if len(parts) > 1 and parts[-1].isdecimal() else parts


def parse_json(text: str) -> Any:
    """Return the JSON object or list that `text` is, None when it is something else."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_object(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object that `text` is, None when it is something else."""
    data = parse_json(text)
    return cast("Mapping[str, Any]", data) if isinstance(data, dict) else None


def describe_call(name: str, arguments: str) -> str:
    """Return a call in one line: `read_file src/app.py (head 20)`. Secrets are left out.

    arguments: a JSON object as text; anything else is shown as it is, cut.
    """
    main, others = split_arguments(arguments)
    return " ".join(filter(None, (shorten_tool_name(name), main, others and f"({others})")))


def split_arguments(arguments: str) -> tuple[str, str]:
    """Return the main argument of a call, and the other ones as `name value, name value`; "" where there is none."""
    data = parse_object(arguments or "{}")
    if data is None:
        return one_line(redact(arguments), _MAX_VALUE), ""
    values = {name: text for name, value in data.items() if not is_secret_key(name) and (text := _write_value(value))}
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
