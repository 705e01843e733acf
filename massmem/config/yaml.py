"""Read a YAML file as plain data that knows its lines, so that no file can do harm; and what the environment adds.

PyYAML's loader would expand aliases without a limit and keep the last of two equal keys. Here its nodes become
data, with limits on size, depth and number of values. Scalars follow the core schema of YAML 1.2: `no` and
`12:30` are text (pydantic still takes yes and no for a switch), and dates stay text.
"""

import codecs
import difflib
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from massmem.config.models import StoreConfig
from massmem.core.errors import ConfigError
from massmem.core.redact import is_secret_key, redact
from massmem.core.text import shorten, trim_value

# Problems, each as `file:line: dotted.key: message`, with no secret in any of them

KeyPath = tuple[str | int, ...]
"""Where a value stands: `("agents", 0, "id")`."""

MAX_SHOWN = 50
"""Problems of one file; the rest are counted."""

_MAX_SHOWN_LENGTH = 60
_PLAIN_KEY = re.compile(r"[\w-]{1,60}", re.ASCII)
_SECRET_SECTIONS = ("env", "headers")


@dataclass(frozen=True, slots=True)
class Problem:
    path: KeyPath
    message: str
    line: int | None = None
    """None: the line of the key."""


@dataclass(slots=True)
class Report:
    """Places of the keys of a configuration file, and its problems, collected while it is read."""

    file: str
    lines: dict[KeyPath, int]
    """The line of each key, by its path in the file."""
    problems: list[Problem] = field(default_factory=list[Problem])
    moved: dict[KeyPath, KeyPath] = field(default_factory=dict[KeyPath, KeyPath])
    """Paths in the configuration -> in the file, for keys that were moved to another place."""
    from_environment: set[KeyPath] = field(default_factory=set[KeyPath])
    """Paths in the file whose value came from the environment."""
    ignored: set[KeyPath] = field(default_factory=set[KeyPath])
    """Paths in the file that mean nothing here, or that the file goes on without."""
    has_missing: bool = False
    """A problem is that the file asks for something that is missing here."""

    def add(self, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.path_in_file(path), message))

    def add_missing(self, path: KeyPath, message: str) -> None:
        self.has_missing = True
        self.add(path, message)

    def path_in_file(self, path: KeyPath) -> KeyPath:
        """Return the path as the user wrote it: the longest moved part is replaced first, then shorter ones."""
        for length in range(len(path), 0, -1):
            target = self.moved.get(path[:length])
            if target is not None:
                path = (*target, *path[length:])
        return path

    def find_line(self, path: KeyPath) -> int:
        """Return the line of a path in the file, or of its nearest parent that is there, or 1."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1

    def describe_value(self, path: KeyPath, value: Any) -> str:
        """Return `value` as a message may name it: never a secret, never text from the environment, never long."""
        written = self.path_in_file(path)
        if any(written[:length] in self.from_environment for length in range(len(written) + 1)):
            return "the value from the environment"
        names = [part for part in (*path, *written) if isinstance(part, str)]
        if any(is_secret_key(name) or name in _SECRET_SECTIONS for name in names):
            return "the value"
        return describe_value(value)

    def render(self) -> list[str]:
        """Return a line per problem in the order of the file, at most MAX_SHOWN and a count of the others."""
        problems = {
            (problem.line or self.find_line(problem.path), format_path(problem.path), problem.message)
            for problem in self.problems
            if not any(problem.path[:length] in self.ignored for length in range(1, len(problem.path) + 1))
        }
        lines = [f"{self.file}:{line}: {f'{key}: ' if key else ''}{message}" for line, key, message in sorted(problems)]
        if len(lines) > MAX_SHOWN:
            lines[MAX_SHOWN:] = [f"{self.file}: and {len(lines) - MAX_SHOWN:,} more problems"]
        return lines


def describe_value(value: Any) -> str:
    """Return a scalar with !r, redacted and shortened; of anything else only its kind."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Redacted before it is shortened: half a key is no longer recognised as one.
    return shorten(repr(redact(value[:2000])) if isinstance(value, str) else repr(value), _MAX_SHOWN_LENGTH)


def escape_unprintable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def format_path(path: KeyPath) -> str:
    """Return `agents.0.id` for `("agents", 0, "id")`."""
    return ".".join(
        str(part) if isinstance(part, int) or _PLAIN_KEY.fullmatch(part) else describe_value(part) for part in path
    )


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known word that is most like `word`, or an empty text."""
    close = difflib.get_close_matches(word[:_MAX_SHOWN_LENGTH].lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


# The reader

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_VALUES = 20_000
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"

_EMPTY = (
    "is empty: a team needs at least `agent:` with an id and a backend (`massmem init` writes one), a job `summary:`"
)

# The C parser is ten times faster; a PyYAML built without libyaml has only the other one.
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"", *(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))}
_TEXT = "tag:yaml.org,2002:str"
_INT = re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_BARE_REFERENCE = re.compile(r"[{\[,:]\s*\$\{([A-Za-z_][A-Za-z0-9_]{0,63})")
"""A variable inside of { } or [ ] without quotes."""
_CONSTANTS = {"": None, "~": None} | {
    form: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for form in (word, word.capitalize(), word.upper())
}


@dataclass(frozen=True, slots=True)
class ParsedFile:
    data: dict[str, Any]
    lines: dict[KeyPath, int]
    """Where each key and each item of a list begins."""
    problems: list[Problem]
    """Duplicate keys."""


class _YamlError(Exception):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(path: Path) -> ParsedFile:
    """Read one YAML document whose top level is a mapping.

    Raises ConfigError: the file cannot be read, is not YAML, or is more than a configuration can be.
    """
    try:
        reader, node = _Reader(), _compose(_decode(_read_file(path)))
        root = None if node is None else reader.read(node, ())
        if root is None:
            raise _YamlError(_EMPTY)
        if not isinstance(root, dict):
            kind = "a list" if isinstance(root, list) else "a single value"
            raise _YamlError(f"the top level must be a mapping of keys such as agents, not {kind}")
    except _YamlError as e:
        place = escape_unprintable(str(path)) + (f":{e.line}" if e.line else "")
        raise ConfigError([f"{place}: {e}"]) from e
    return ParsedFile(cast("dict[str, Any]", root), reader.lines, reader.problems)


def _read_file(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _YamlError("is a folder, not a configuration file")
        if not stat.S_ISREG(status.st_mode):
            raise _YamlError("is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as e:
        raise _YamlError("there is no such file") from e
    except OSError as e:
        raise _YamlError(f"cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise _YamlError("is not a possible file name") from e
    if len(content) > MAX_BYTES:
        raise _YamlError(f"is too large for a configuration: more than {MAX_BYTES:,} bytes")
    return content


def _decode(content: bytes) -> str:
    try:
        text = decode_settings(content)
    except UnicodeDecodeError as e:
        raise _YamlError("is not UTF-8 text", content[: e.start].count(b"\n") + 1) from e
    if bad := _UNPRINTABLE.search(text):
        raise _YamlError(f"holds the character {bad[0]!a}", text.count("\n", 0, bad.start()) + 1)
    if not text.strip():
        raise _YamlError(_EMPTY)
    return text


def decode_settings(content: bytes) -> str:
    """Return the text of a file of settings: UTF-8, or UTF-16 with its mark, as PowerShell writes it.

    Raises UnicodeDecodeError: it is neither.
    """
    is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf_16 else "utf-8-sig")


_EXPLAINED = {
    "undefined alias": "this alias (*) has no anchor (&) before it; put quotes around a text that starts with *",
    "second occurrence": "an anchor (&) of this name is there before: give it another one",
    "another document": "a second document starts here: a configuration is one document",
    "nesting depth": _TOO_DEEP,
}
"""By words of PyYAML."""


class _Loader(_BASE):
    def resolve(self, kind: Any, _value: Any, implicit: Any) -> str:
        """Return the tag of a node without one: text when it is quoted, else "", for `_read_scalar` to decide."""
        return _TEXT if kind is yaml.ScalarNode and not implicit[0] else ""


def _compose(text: str) -> Any:
    """Return the node of the only document; None when there is none."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else None
        content = text.split("\n")[line - 1] if line and line <= text.count("\n") + 1 else ""
        raise _YamlError(_explain(e.problem or "cannot be parsed", content), line) from e
    except yaml.YAMLError as e:
        raise _YamlError("not valid YAML") from e
    except RecursionError as e:
        raise _YamlError(_TOO_DEEP) from e


def _explain(problem: str, content: str) -> str:
    """Return a problem of PyYAML in words that help. content: its line."""
    for words, message in _EXPLAINED.items():
        if words in problem:
            return message
    if "\t" in content[: len(content) - len(content.lstrip())]:
        return "not valid YAML: a tab indents this line, use spaces"
    if reference := _BARE_REFERENCE.search(content):
        return f'put quotes around the variable: "${{{reference[1]}}}"; without them YAML reads a mapping'
    # The parser may quote a value; a single character or the name of a token is none.
    return "not valid YAML: " + re.sub(r"'[^'<]{3,}'", "this", problem)


class _Reader:
    """Turns nodes into data. Recursion ends at MAX_DEPTH."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._seen: set[Any] = set()
        """Nodes: one that comes again is an alias."""
        self._open: list[Any] = []
        """Mappings and lists around what is read."""
        self._values = 0

    def read(self, node: Any, path: KeyPath, alias_line: int = 0) -> Any:
        """Return the value of the node. alias_line: where the alias stands that brought it; 0: none did."""
        self._seen.add(node)
        self._values += 1
        line = alias_line or _line(node)
        if self._values > MAX_VALUES:
            raise _YamlError(f"holds more than {MAX_VALUES:,} values, aliases included", line)
        if isinstance(node, yaml.ScalarNode):
            return _read_scalar(node)
        if node.tag not in _TAGS:
            raise _YamlError("tags (!) mean nothing here", line)
        if node in self._open:
            raise _YamlError("this alias (*) stands inside what it names", line)
        if len(path) >= MAX_DEPTH:
            raise _YamlError(_TOO_DEEP, line)
        self._open.append(node)
        read = self._read_mapping if isinstance(node, yaml.MappingNode) else self._read_list
        value = read(node.value, path, alias_line)
        self._open.pop()
        return value

    def _read_mapping(self, pairs: list[tuple[Any, Any]], path: KeyPath, alias_line: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merges: list[tuple[dict[str, Any], int]] = []
        for key_node, node in pairs:
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be plain text, not a list or a mapping; put quotes around { and ["
                raise _YamlError(message, _line(key_node))
            key, line = key_node.value, alias_line or _line(key_node)
            key_path = (*path, key)
            if key in mapping:
                self.problems.append(Problem(key_path, f"duplicate key, first on line {self.lines[key_path]}", line))
            elif key != "<<":
                self.lines[key_path] = line
            value = self.read(node, key_path, line if node in self._seen else alias_line)
            if key == "<<":
                merges += [(merged, line) for merged in _list_mappings(value, line)]
            else:
                mapping.setdefault(key, value)
        for merged, line in merges:
            for key in merged.keys() - mapping.keys():
                mapping[key] = merged[key]
                self._add_lines(merged[key], (*path, key), line)
        return mapping

    def _read_list(self, nodes: list[Any], path: KeyPath, alias_line: int) -> list[Any]:
        items: list[Any] = []
        for i, node in enumerate(nodes):
            # PyYAML does not tell where an alias stands in a list: its item has the line of what it names.
            self.lines.setdefault((*path, i), alias_line or _line(node))
            items.append(self.read(node, (*path, i), alias_line))
        return items

    def _add_lines(self, value: Any, path: KeyPath, line: int) -> None:
        """Give a merged value and everything in it the line of the merge."""
        self.lines[path] = line
        parts = enumerate(cast("list[Any]", value)) if isinstance(value, list) else ()
        for key, part in cast("dict[str, Any]", value).items() if isinstance(value, dict) else parts:
            self._add_lines(part, (*path, key), line)


def _line(node: Any) -> int:
    return node.start_mark.line + 1


def _read_scalar(node: Any) -> Any:
    """Return the value of a scalar by the core schema of YAML 1.2."""
    text: str = node.value
    if node.tag not in _TAGS:
        raise _YamlError("tags (!) mean nothing here; put quotes around a text that starts with !", _line(node))
    if node.tag == _TEXT:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if len(text) < 400 and _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _list_mappings(value: Any, line: int) -> list[dict[str, Any]]:
    """Return the mappings that `<<` merges."""
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise _YamlError("<< takes a mapping or a list of mappings", line)
    return parts


# Environment variables: references such as `${VAR}`, and variables that override keys

MAX_EXPANDED = 1_000_000
"""Characters that the variables of a file may add: a file of references to one long variable must not grow forever."""

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)
HISTORY_VARIABLES: tuple[tuple[str, str, type], ...] = (
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
            value = self._resolve(match[2], path, local) if self._budget >= 0 else ""
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
        # Bytes of the environment that are not UTF-8 arrive as lone surrogates.
        if value is not None and any("\ud800" <= char <= "\udfff" for char in value):
            self._report.add(path, f"the environment variable {shorten(name, _MAX_SHOWN_LENGTH)} is not UTF-8")
            return ""
        if name not in local:
            self._report.from_environment.add(path)
            value = value.rstrip("\r\n") if value is not None else None  # as a shell does with $(...)
        if value or (value is not None and not has_default):
            return value
        if has_default:
            return default
        name = shorten(name, _MAX_SHOWN_LENGTH)
        self._report.add(path, f"{name} is not set ({how_to_set(name)}; $${{ is a literal ${{)")
        return ""


def how_to_set(name: str) -> str:
    return f"set it: export {name}=..., or a line {name}=... in .env"


def read_history_overrides(environ: Mapping[str, str]) -> tuple[dict[str, bool | int | None], list[str]]:
    """Return the keys of memory.conversation_memory that the environment sets, and a problem per wrong variable.

    An empty variable counts as not set.
    """
    values: dict[str, bool | int | None] = {}
    problems: list[str] = []
    for name, key, kind in HISTORY_VARIABLES:
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
    return store.model_copy(update={"url": trim_value(environ.get("REDIS_URL", "")) or "redis://localhost:6379"})
