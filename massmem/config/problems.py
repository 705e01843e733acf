"""What is wrong in a configuration, each as `file:line: dotted.key: message`, and nothing secret in it."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from massmem.redact import is_secret_key, redact

KeyPath = tuple[str | int, ...]

MAX_SHOWN = 50
_PLAIN_KEY = re.compile(r"[\w-]{1,60}", re.ASCII)
_SECRET_SECTIONS = ("env", "headers")


@dataclass(frozen=True, slots=True)
class Problem:
    """line: only where it is not that of the key."""

    path: KeyPath
    message: str
    line: int | None = None


@dataclass(slots=True)
class Report:
    """Collects problems by key path and knows where each key stands in the file.

    lines: key path as written -> line. moved: where a key was understood -> where it was written.
    environment: written paths whose value came from the environment. ignored: written paths that mean nothing here.
    """

    file: str
    lines: dict[KeyPath, int]
    problems: list[Problem] = field(default_factory=list[Problem])
    moved: dict[KeyPath, KeyPath] = field(default_factory=dict[KeyPath, KeyPath])
    environment: set[KeyPath] = field(default_factory=set[KeyPath])
    ignored: set[KeyPath] = field(default_factory=set[KeyPath])

    def add(self, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.written(path), message))

    def written(self, path: KeyPath) -> KeyPath:
        """The path as the user wrote it: longest moved part first, until nothing moves."""
        for length in range(len(path), 0, -1):
            target = self.moved.get(path[:length])
            if target is not None:
                return self.written((*target, *path[length:]))
        return path

    def line(self, path: KeyPath) -> int:
        """Of the key, or of the nearest parent that is in the file, or 1."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1

    def show(self, path: KeyPath, value: Any) -> str:
        """`value` as an error may name it: never a secret, never what came from the environment, never long."""
        written = self.written(path)
        if any(written[:length] in self.environment for length in range(len(written) + 1)):
            return "the value from the environment"
        names = [part for part in (*path, *written) if isinstance(part, str)]
        if any(is_secret_key(name) or name in _SECRET_SECTIONS for name in names):
            return "the value"
        return shown(value)

    def rendered(self) -> list[str]:
        """One line per problem in the order of the file, at most MAX_SHOWN and a count of the others."""
        relevant = {
            (problem.line or self.line(problem.path), dotted(problem.path), problem.message)
            for problem in self.problems
            if not any(problem.path[:length] in self.ignored for length in range(1, len(problem.path) + 1))
        }
        lines = [f"{self.file}:{line}: {f'{key}: ' if key else ''}{message}" for line, key, message in sorted(relevant)]
        if len(lines) > MAX_SHOWN:
            lines[MAX_SHOWN:] = [f"{self.file}: and {len(lines) - MAX_SHOWN:,} more problems"]
        return lines


def shown(value: Any) -> str:
    """A scalar with !r, redacted and cut to 60 characters; of anything else only its kind."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Redacted before it is cut: half a key is no longer recognised as one.
    text = repr(redact(value[:2000])) if isinstance(value, str) else repr(value)
    return cut(text)


def cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def plain(text: str) -> str:
    """`text` for a terminal: control characters and lone surrogates escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def dotted(path: KeyPath) -> str:
    return ".".join(str(part) if isinstance(part, int) or _PLAIN_KEY.fullmatch(part) else shown(part) for part in path)


def suggestion(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` or nothing."""
    close = difflib.get_close_matches(word[:60].lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
