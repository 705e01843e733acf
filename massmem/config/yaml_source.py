"""A YAML file as plain data that knows its lines, read so that no file can hurt.

PyYAML's own loader recurses, expands aliases without a limit and keeps the last of two equal keys. Here the parser's
events are read one by one, with limits on size, depth and number of values. Scalars follow YAML 1.2's core schema:
`no` and `12:30` are text (pydantic still takes yes and no where a field is a switch), and dates stay text.
"""

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from massmem.config.problems import KeyPath, Problem, plain
from massmem.errors import ConfigError

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_VALUES = 20_000

# The C parser is ten times faster; a PyYAML built without libyaml has only the other one.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_INT = re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_WORDS = {"": None, "~": None} | {
    form: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for form in (word, word.capitalize(), word.upper())
}


@dataclass(frozen=True, slots=True)
class Source:
    """data: the top level mapping. lines: where each key and item begins. problems: duplicate keys."""

    data: dict[str, Any]
    lines: dict[KeyPath, int]
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class _Value:
    """size and height count what is inside, aliases expanded."""

    value: Any
    size: int = 1
    height: int = 1


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been read."""

    value: dict[str, Any] | list[Any]
    path: KeyPath
    anchor: str | None
    key: str | None = None
    size: int = 1
    height: int = 1
    merges: list[tuple[dict[str, Any], int]] = field(default_factory=list[tuple[dict[str, Any], int]])


class _Refused(Exception):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(path: Path, loader: Any = LOADER) -> Source:
    """Read one YAML document whose top level is a mapping. loader: whose parser reads it.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or is more than a configuration can be.
    """
    try:
        text = _decode(_read(path))
        builder = _Builder()
        for event in _events(text, loader):
            builder.feed(event)
        root = builder.root
        if root is None:
            raise _Refused("is empty")
        if not isinstance(root, dict):
            kind = "a list" if isinstance(root, list) else "a single value"
            raise _Refused(f"the top level must be a mapping of keys such as agents, not {kind}")
    except _Refused as e:
        place = plain(str(path)) + (f":{e.line}" if e.line else "")
        raise ConfigError([f"{place}: {e}"]) from e
    return Source(cast("dict[str, Any]", root), builder.lines, builder.problems)


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _Refused("is a folder, not a configuration file")
        if not stat.S_ISREG(status.st_mode):
            raise _Refused("is not a regular file")
        with path.open("rb") as file:
            content = b"" if status.st_size > MAX_BYTES else file.read(MAX_BYTES + 1)
    except FileNotFoundError as e:
        raise _Refused("there is no such file") from e
    except OSError as e:
        raise _Refused(f"cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise _Refused("is not a possible file name") from e
    if max(status.st_size, len(content)) > MAX_BYTES:
        raise _Refused(f"is too large for a configuration: more than {MAX_BYTES:,} bytes")
    return content


def _decode(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise _Refused("is not UTF-8 text", content[: e.start].count(b"\n") + 1) from e
    if bad := _UNPRINTABLE.search(text):
        raise _Refused(f"holds the character {bad[0]!a}", text.count("\n", 0, bad.start()) + 1)
    if not text.strip():
        raise _Refused("is empty")
    return text


def _events(text: str, loader: Any) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else None
        written = text.split("\n")[line - 1] if line and line <= text.count("\n") + 1 else ""
        if "\t" in written[: len(written) - len(written.lstrip())]:
            raise _Refused("not valid YAML: a tab indents this line, use spaces", line) from e
        # What a parser quotes may be a value; a single character or a token's name is not.
        problem = re.sub(r"'[^'<]{3,}'", "this", e.problem or "cannot be parsed")
        raise _Refused(f"not valid YAML: {problem}", line) from e
    except yaml.YAMLError as e:
        raise _Refused("not valid YAML") from e


class _Builder:
    def __init__(self) -> None:
        self.root: Any = None
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, _Value | None] = {}
        self._values = 0
        self._documents = 0

    def feed(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _Refused("a second document starts here: a configuration is one document", line)
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.AliasEvent():
                self._alias(event.anchor, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._start(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end(line)
            case _:
                pass

    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _scalar(self, event: Any, line: int) -> None:
        if self._wants_key():
            self._key(event.value, line)
            return
        value = _Value(_resolve(event, line))
        if event.anchor:
            self._anchors[event.anchor] = value
        self._place(value, line)

    def _key(self, key: str, line: int) -> None:
        top = self._open[-1]
        path = (*top.path, key)
        if isinstance(top.value, dict) and key in top.value:
            self.problems.append(Problem(path, f"duplicate key, first on line {self.lines[path]}", line))
        elif key != "<<":
            self.lines[path] = line
        top.key = key

    def _alias(self, name: Any, line: int) -> None:
        if self._wants_key():
            raise _Refused("a key must be plain text, not an alias", line)
        if name not in self._anchors:
            raise _Refused(
                "this alias (*) has no anchor (&) before it; put quotes around a text that starts with *", line
            )
        value = self._anchors[name]
        if value is None:
            raise _Refused("this alias (*) stands inside what it names", line)
        self._place(value, line)

    def _start(self, event: Any, line: int) -> None:
        if self._wants_key():
            raise _Refused("a key must be plain text, not a list or a mapping; put quotes around { and [", line)
        if event.tag not in (None, "!", _TAG + "map", _TAG + "seq"):
            raise _Refused("tags (!) mean nothing here", line)
        if event.anchor:
            self._anchors[event.anchor] = None
        path: KeyPath = ()
        if self._open:
            top = self._open[-1]
            path = (*top.path, top.key if top.key is not None else len(top.value))
            self.lines.setdefault(path, line)
        container: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(container, path, event.anchor))
        self._limit(len(self._open) + 1, line)

    def _end(self, line: int) -> None:
        done = self._open.pop()
        for mapping, merge_line in done.merges:
            self._merge(done, mapping, merge_line)
        value = _Value(done.value, done.size, done.height)
        if done.anchor:
            self._anchors[done.anchor] = value
        # Its own values have been counted one by one.
        self._values -= value.size - 1
        self._place(value, line)

    def _merge(self, into: _Open, mapping: dict[str, Any], line: int) -> None:
        for key, value in mapping.items():
            if isinstance(into.value, dict) and key not in into.value:
                into.value[key] = value
                self.lines[(*into.path, key)] = line

    def _place(self, value: _Value, line: int) -> None:
        self._values += value.size
        self._limit(len(self._open) + value.height, line)
        if not self._open:
            self.root = value.value
            return
        top = self._open[-1]
        top.size += value.size
        top.height = max(top.height, value.height + 1)
        if isinstance(top.value, list):
            self.lines.setdefault((*top.path, len(top.value)), line)
            top.value.append(value.value)
            return
        key, top.key = top.key, None
        if key == "<<":
            top.merges.extend((mapping, line) for mapping in _mappings(value.value, line))
        elif key is not None:
            top.value.setdefault(key, value.value)

    def _limit(self, depth: int, line: int) -> None:
        if depth > MAX_DEPTH + 1:
            raise _Refused(f"is nested deeper than {MAX_DEPTH} levels", line)
        if self._values > MAX_VALUES:
            raise _Refused(f"holds more than {MAX_VALUES:,} values, aliases included", line)


def _resolve(event: Any, line: int) -> Any:
    text: str = event.value
    if event.tag not in (None, "!") and event.tag not in _TAGS:
        raise _Refused("tags (!) mean nothing here; put quotes around a text that starts with !", line)
    quoted = not event.implicit[0] and event.tag in (None, "!")
    if quoted or event.tag == _TAG + "str":
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if len(text) < 400 and _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _mappings(value: Any, line: int) -> list[dict[str, Any]]:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise _Refused("<< takes a mapping or a list of mappings", line)
    return parts
