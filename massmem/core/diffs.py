"""Diffs: what has changed, with the lines of the new side, cut into parts that fit a prompt, and places in them.

`unidiff` reads the section of one file. Sections are told apart here: one that cannot be read takes no other with it.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import Line, PatchSet

from massmem.core.errors import InputError

_GIT_SECTION = re.compile(r"^diff --(?:git|cc|combined) ", re.MULTILINE)
_PLAIN_SECTION = re.compile(r"^--- .*\n\+\+\+ .*\n@@ -", re.MULTILINE)
_HEADING = re.compile(r"(.+), (?:lines \d+ to \d+|removed lines)")
_ROW = re.compile(r"([ \d]{6,9}) ([-+ ]) (.*)", re.DOTALL)
_QUOTED_NAME = re.compile(r'^"((?:[^"\\]|\\.)*)"$')


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that follow each other."""

    lines: tuple[tuple[int | None, str, str], ...]
    """Number on the new side, None for a line that is gone; mark: "+", "-" or " "; text."""

    @property
    def heading(self) -> str:
        numbers = [number for number, _, _ in self.lines if number is not None]
        return f"lines {numbers[0]} to {numbers[-1]}" if numbers else "removed lines"


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """What a diff says of one file."""

    path: str
    """On the new side; of a file that is gone, on the old one."""
    status: str
    """changed, added, removed, renamed, or document: the text as a whole."""
    hunks: tuple[Hunk, ...] = ()
    problem: str = ""
    """Why its lines are not read."""

    @property
    def lines(self) -> dict[int, str]:
        """The lines of the new side that the diff shows, by their numbers."""
        return {number: text for hunk in self.hunks for number, _, text in hunk.lines if number is not None}


def read_diff(text: str) -> list[ChangedFile]:
    """Return the files of a diff, as git and `diff -u` write it. Raises InputError: it is none, or changes nothing."""
    text = text.replace("\r\n", "\n")
    starts = [match.start() for match in (_GIT_SECTION if _GIT_SECTION.search(text) else _PLAIN_SECTION).finditer(text)]
    if not starts:
        why, hint = ("this is no diff", "write one with: git diff") if text.strip() else ("nothing has changed", "")
        raise InputError(why, hint)
    return [_read_section(text[start:end]) for start, end in zip(starts, [*starts[1:], None], strict=True)]


def _read_section(section: str) -> ChangedFile:
    heading = section.partition("\n")[0]
    if not heading.startswith(("diff --git", "--- ")):
        return ChangedFile(unquote_name(heading.split(" ", 2)[2]), "changed", (), "a merge with both its sides")
    try:
        file = PatchSet(section)[0]
    except (UnidiffParseError, IndexError):
        name = re.search(r"^\+\+\+ (?:b/)?(.*)", section, re.MULTILINE)
        path = name[1] if name else heading.rpartition(" b/")[2]
        return ChangedFile(unquote_name(path), "changed", (), "cut off, or in a form that is not known")
    status = (
        "added" if file.is_added_file else "removed" if file.is_removed_file else "renamed" if file.is_rename
        else "changed"
    )  # fmt: skip
    hunks = tuple(Hunk(tuple(_read_lines(hunk))) for hunk in file)
    return ChangedFile(unquote_name(file.path), status, hunks, "not a text" if file.is_binary_file else "")


def _read_lines(hunk: Iterable[Line]) -> Iterator[tuple[int | None, str, str]]:
    for line in hunk:
        if (mark := line.line_type or " ") in "+- ":
            yield line.target_line_no, mark, line.value.rstrip("\n")


def write_hunk(path: str, hunk: Hunk) -> str:
    """Return a hunk for agents to read: a heading, then each line behind its number on the new side."""
    rows = [f"{'' if number is None else number:>6} {mark} {text}" for number, mark, text in hunk.lines]
    return "\n".join([f"{path}, {hunk.heading}", *rows])


def read_hunks(text: str) -> dict[str, ChangedFile]:
    """Return the files whose hunks `write_hunk` wrote into a text."""
    files: dict[str, list[tuple[int | None, str, str]]] = {}
    rows: list[tuple[int | None, str, str]] | None = None
    for line in text.split("\n"):
        if rows is not None and (row := _ROW.fullmatch(line)):
            rows.append((int(row[1]) if row[1].strip() else None, row[2], row[3]))
        else:
            heading = _HEADING.fullmatch(line)
            rows = files.setdefault(heading[1], []) if heading else None
    return {path: ChangedFile(path, "changed", (Hunk(tuple(rows)),)) for path, rows in files.items()}


def number_text(path: str, text: str) -> ChangedFile:
    """Return a whole text as a file whose lines are all there."""
    lines = enumerate(text.replace("\r\n", "\n").removesuffix("\n").split("\n"), 1)
    return ChangedFile(path, "document", (Hunk(tuple((number, " ", line) for number, line in lines)),))


def cut_diff(files: Iterable[ChangedFile], most: int) -> list[str]:
    """Return all hunks as texts of at most so many characters; one that is longer is cut between lines.

    A single line that is longer stands by itself, whole.
    """
    parts: list[str] = []
    for file in files:
        for piece in (piece for hunk in file.hunks for piece in _cut_hunk(file.path, hunk, most)):
            text = write_hunk(file.path, piece)
            if parts and len(parts[-1]) + len(text) + 2 <= most:
                parts[-1] += "\n\n" + text
            else:
                parts.append(text)
    return parts


def _cut_hunk(path: str, hunk: Hunk, most: int) -> Iterator[Hunk]:
    lines: list[tuple[int | None, str, str]] = []
    size = 0
    for line in hunk.lines:
        length = len(line[2]) + 10
        if lines and size + length + len(path) + 40 > most:
            yield Hunk(tuple(lines))
            lines, size = [], 0
        lines.append(line)
        size += length
    if lines:
        yield Hunk(tuple(lines))


@dataclass(frozen=True, slots=True)
class CheckedPlace:
    """Where a finding really is."""

    path: str
    first: int
    last: int
    lines: tuple[str, ...]
    """What stands there."""


ReadLines = Callable[[str], Sequence[str] | None]
"""Returns the lines of a file on the new side; None: there is no such file, or it must not be read."""


def find_place(
    path: str, first: int | None, last: int | None, quote: str, files: Mapping[str, ChangedFile], read_lines: ReadLines
) -> CheckedPlace | None:
    """Return where a finding is, on the new side; None: nothing shows that it is there.

    path, first, last, quote: as an agent named them. The file is in the diff, or can be read; the lines are in it; and
    what is quoted stands there. A quote that stands elsewhere in the file, once, counts more than the lines.
    """
    name = _find_name(path, files)
    shown = files[name].lines if name in files else {}
    whole = read_lines(name)
    numbered = shown if whole is None else dict(enumerate(whole, 1)) | shown
    quoted = [line.strip() for line in quote.splitlines() if line.strip()]
    is_there = first is not None and first in numbered and (last or first) in numbered and first <= (last or first)
    if quoted:
        near = range(first, (last or first) + 1) if is_there and first is not None else range(0)
        starts = [number for number in numbered if _stands_at(quoted, number, numbered)]
        if not any(start in near for start in starts):
            if len(starts) != 1:
                return None
            first, last, is_there = starts[0], starts[0] + len(quoted) - 1, True
    if not is_there or first is None:
        return None
    last = last or first
    return CheckedPlace(name, first, last, tuple(numbered.get(number, "") for number in range(first, last + 1)))


def _stands_at(quoted: Sequence[str], start: int, numbered: Mapping[int, str]) -> bool:
    return all(line in numbered.get(start + offset, "") for offset, line in enumerate(quoted))


def _find_name(path: str, files: Iterable[str]) -> str:
    """Return the changed file that an agent means: `./a/b.py`, `b/a/b.py` or the end of a path that only one has."""
    path = path.strip().strip("`'\"").replace("\\", "/").removeprefix("./")
    names = list(files)
    for name in (path, path.removeprefix("b/"), path.removeprefix("a/")):
        if name in names:
            return name
    ends = [name for name in names if name.endswith(f"/{path}") or path.endswith(f"/{name}")]
    return ends[0] if len(ends) == 1 else path


def unquote_name(name: str) -> str:
    """Return a file's name without the quotes and octal numbers of git."""
    name = name.strip()
    if not (quoted := _QUOTED_NAME.match(name)):
        return name
    data, _ = codecs.escape_decode(quoted[1].encode())
    return data.decode("utf-8", "replace").removeprefix("b/").removeprefix("a/")
