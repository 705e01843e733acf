"""Problems of a configuration, each as `file:line: dotted.key: message`, with no secret in any of them."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from massmem.core.redact import is_secret_key, redact

KeyPath = tuple[str | int, ...]
"""Where a value stands: `("agents", 0, "id")`."""

MAX_SHOWN = 50
"""Problems of one file; the rest are counted."""

_MAX_SHOWN_LENGTH = 60
_PLAIN_KEY = re.compile(r"[\w-]{1,60}", re.ASCII)
_SECRET_SECTIONS = ("env", "headers")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a file."""

    path: KeyPath
    message: str
    line: int | None = None
    """None: the line of the key."""


@dataclass(slots=True)
class Report:
    """What is known of a configuration file while it is read: where its keys stand, and its problems."""

    file: str
    lines: dict[KeyPath, int]
    """The line of each key, by its path in the file."""
    problems: list[Problem] = field(default_factory=list[Problem])
    moved: dict[KeyPath, KeyPath] = field(default_factory=dict[KeyPath, KeyPath])
    """Paths in the configuration -> in the file, for keys that were moved to another place."""
    from_environment: set[KeyPath] = field(default_factory=set[KeyPath])
    """Paths in the file whose value came from the environment."""
    ignored: set[KeyPath] = field(default_factory=set[KeyPath])
    """Paths in the file that mean nothing here."""

    def add(self, path: KeyPath, message: str) -> None:
        """Add a problem of the key at `path` in the configuration."""
        self.problems.append(Problem(self.path_in_file(path), message))

    def path_in_file(self, path: KeyPath) -> KeyPath:
        """Return the path as the user wrote it: the longest moved part is replaced first, until nothing moves."""
        for length in range(len(path), 0, -1):
            target = self.moved.get(path[:length])
            if target is not None:
                return self.path_in_file((*target, *path[length:]))
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
    return shorten(repr(redact(value[:2000])) if isinstance(value, str) else repr(value))


def shorten(text: str) -> str:
    """Return `text` cut to 60 characters."""
    return text if len(text) <= _MAX_SHOWN_LENGTH else text[: _MAX_SHOWN_LENGTH - 3] + "..."


def escape_unprintable(text: str) -> str:
    """Return `text` with control characters and lone surrogates escaped."""
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
