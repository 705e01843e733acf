"""The tools with which agents read folders: list_files, read_file and search_text. They write nothing.

They run in threads, within limits of time and size. What they give back is for agents as results of other tools are:
quoted, without what a terminal obeys, and without what has the shape of a key.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any

from massmem.config.models import FolderConfig
from massmem.core.errors import InputError, MassmemError
from massmem.core.messages import ToolResult, ToolSpec, detect_media_type
from massmem.core.patterns import Pattern, PatternError, compile_pattern
from massmem.core.redact import redact_file, redact_keys
from massmem.core.text import make_printable
from massmem.tools.documents import File, is_document, read_document, read_files
from massmem.tools.encodings import decode_text
from massmem.tools.folder import (
    BINARY,
    HIDDEN,
    SECRET,
    UNREADABLE,
    Folder,
    FolderError,
    Walk,
    build_specs,
    find_decision,
    is_program,
    read_start,
)

SECONDS, _COUNT_SECONDS = 20.0, 2.0
"""For one call; for the count of files at the start."""
_AT_ONCE = 2
"""Calls of one team: more would take the threads of others."""

PAGE, _MAX_LINES, _END = 30_000, 2_000, 10**12
"""Characters and lines of one page of a file; more than any number of a call."""
MAX_ROWS = 500
"""Of one list."""
MAX_MATCHES, _MAX_FOUND, _MAX_SHOWN, _AROUND = 200, 10_000, 300, 20
"""Lines of one result of a search; those that are counted; characters of one; lines before and after one."""
MAX_WHOLE = 10_000_000
"""Bytes of a file that is read as a whole; of a larger one only pages are, and it is not searched."""
_PIECE, _MAX_LARGE = 1_000_000, 8_000_000
_MAX_DOCUMENTS, _MAX_KNOWN, _MAX_COMPARED = 4, 10_000, 5_000

AGENTS_FILES = ("AGENTS.md", "CLAUDE.md")
"""What a folder says of itself, to agents: the first one that is there."""
MAX_NOTES = 8_000
"""Characters of it."""


@dataclass(frozen=True, slots=True)
class _FileText:
    """The content of a file."""

    path: str
    size: int
    mtime: int
    text: str = ""
    note: str = ""
    """How it was read."""
    document: bytes = b""
    """Of a document, which has to be converted."""
    first: int = 1
    """The line with which the text begins."""
    is_cut: bool = False
    """More follows in the file."""


class FileTools:
    def __init__(self, configs: Sequence[FolderConfig]) -> None:
        """Raises InputError: one of the folders cannot be read."""
        self._folders: dict[str, Folder] = {}
        """By the name that paths begin with, "" for a single one."""
        for folder in map(Folder, configs):
            same = [name for name in self._folders if name.partition("~")[0] == folder.name]
            self._folders[f"{folder.name}~{len(same) + 1}" if same else folder.name] = folder
        names = ", ".join(self._folders)
        self._title = f"the folders {names} (paths begin with these names)"
        if len(configs) == 1:
            self._title, self._folders = f"the folder {names}", {"": self._folders[names]}
        self._running = asyncio.Semaphore(_AT_ONCE)
        self._documents: dict[tuple[str, int, int], _FileText] = {}
        self._known: dict[str, tuple[int, int]] = {}
        """Size and time of the files that were read."""
        self.tools: dict[str, tuple[ToolSpec, Callable[..., Any]]] = {
            spec.name: (spec, method)
            for spec, method in (
                (self._spec(*_LIST_FILES), partial(asyncio.to_thread, self._list_files)),
                (self._spec(*_READ_FILE), self._read_file),
                (self._spec(*_SEARCH_TEXT), partial(asyncio.to_thread, self._search_text)),
            )
        }

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec, _ in self.tools.values())

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raises nothing: the result of a call that failed says what went wrong."""
        async with self._running:
            walk = Walk(SECONDS)
            try:
                text = await self._run(name, arguments, walk)
                return ToolResult(redact_keys(make_printable(text)))
            except TimeoutError:
                message = f"it takes longer than {2 * SECONDS:g} s: the disk does not answer"
            except MassmemError as e:
                message = f"{e.message}; {e.hint}"
            except FileNotFoundError:
                gone = [folder.config.path for folder in self._folders.values() if not folder.root.is_dir()]
                message = f"the folder {gone[0]} is not there any more" if gone else "there is no such file"
            except OSError as e:
                message = f"it cannot be read: {e.strerror}"
            except ValueError as e:
                message = str(e)
            finally:
                walk.stop()
        return ToolResult(make_printable(message), failed=True)

    async def _run(self, name: str, arguments: Mapping[str, Any], walk: Walk) -> str:
        spec, method = self.tools[name]
        async with asyncio.timeout(2 * SECONDS):
            return await method(walk, **_check_arguments(spec, arguments))

    async def read_text(self, path: str, first: int = 1, most: int | None = None) -> str:
        """Return lines of a file by themselves, for a program that reads by us. Raises ValueError, OSError."""
        source = await asyncio.to_thread(self._load, Walk(SECONDS), path, first, 1)
        if source.document:
            source = await self._convert(source)
        skipped = max(0, first - source.first)
        lines = source.text.splitlines(keepends=True)[skipped:]
        return redact_keys("".join(lines if most is None else lines[:most]))

    async def read_notes(self, most: int) -> str:
        """Return what the folders say of themselves in AGENTS_FILES. most: characters of all together."""
        return await asyncio.to_thread(self._read_notes, min(most, MAX_NOTES))

    async def describe(self, *, agents_file: bool) -> list[str]:
        """Return a line for each folder, for people: its path, the number of its files, and what it says of itself."""
        return await asyncio.to_thread(
            lambda: [_describe(folder, agents_file=agents_file) for folder in self._folders.values()]
        )

    def _spec(self, name: str, description: str, parameters: Mapping[str, Any], required: Sequence[str]) -> ToolSpec:
        schema = {"type": "object", "properties": parameters, "required": [*required]}
        return ToolSpec(name, description.format(folder=self._title), schema)

    def _shorten(self, path: str) -> str:
        """Return a path as it is shown, also of one that begins with the whole path, or the name, of its folder."""
        for name, folder in self._folders.items() if path.startswith("/") else ():
            with suppress(FolderError):
                return "/".join(filter(None, (name, folder.strip(path))))
        top, _, rest = path.removeprefix("./").lstrip("/").partition("/")
        only = self._folders.get("")
        return rest if only and top == only.name and not os.path.lexists(only.root / top) else path.removeprefix("./")

    # Lists

    def _list_files(self, walk: Walk, path_glob: str = "", start: int = 1) -> str:
        paths = [path for path, _ in self._walk(walk, path_glob)]
        rows = paths if len(paths) <= MAX_ROWS else group_paths(paths, path_glob)
        notes = [f"{len(paths):,} files"] if paths else ["no file here has such a path" if path_glob else "no files"]
        if len(rows) != len(paths):
            notes.append("those of a folder are counted: name one to see them, as in docs or docs/**/*.md")
        shown = rows[start - 1 : start - 1 + MAX_ROWS]
        if start > 1 or len(rows) > len(shown):
            notes.append(f"these are lines {start:,} to {start + len(shown) - 1:,} of {len(rows):,}")
        if start + len(shown) <= len(rows):
            notes.append(f"start={start + len(shown)} goes on")
        return "\n".join([*shown, f"[{'; '.join([*notes, *_describe_walk(walk)])}]"])

    def _walk(self, walk: Walk, path_glob: str) -> Iterator[tuple[str, Callable[[], int]]]:
        """Yield the files that match, as they are shown, with what opens each."""
        matches = build_matcher(self._shorten(path_glob))
        for name, folder in self._folders.items():
            prefix = f"{name}/" if name else ""
            with closing(folder.walk(walk)) as entries:
                for entry in entries:
                    if matches(path := f"{prefix}{entry.path}"):
                        yield path, entry.open

    # Files

    async def _read_file(
        self, walk: Walk, path: str, from_line: int = 1, to_line: int = _END, lines: int = _END, from_character: int = 1
    ) -> str:
        if to_line < from_line:
            raise FolderError("to_line is from_line or more")
        lines = min(lines, _MAX_LINES, to_line - from_line + 1)
        source = await asyncio.to_thread(self._load, walk, path, from_line, from_character)
        if source.document:
            source = await self._convert(source)
        known = self._known.get(source.path)
        if len(self._known) < _MAX_KNOWN:
            self._known[source.path] = source.size, source.mtime
        moved = "" if source.path == self._shorten(path).strip("/") else f"this is {source.path}"
        notes = [*filter(None, (moved, source.note))]
        if known not in (None, (source.size, source.mtime)):
            notes.append("it has changed since it was read last")
        return await asyncio.to_thread(write_page, source, (from_line, from_character), lines, notes)

    def _load(self, walk: Walk, path: str, from_line: int, from_character: int) -> _FileText:
        descriptor, place = self._open(walk, path)
        try:
            status = os.fstat(descriptor)
            start = os.pread(descriptor, 4_096, 0)
            source = partial(_FileText, place, status.st_size, status.st_mtime_ns)
            kind = detect_media_type(start) if is_document(place, start) else None
            if kind is not None and kind.startswith("image/"):
                raise FolderError(f"{path} is a picture, which is not shown: the user can show it with -i")
            if status.st_size <= MAX_WHOLE:
                data = read_start(os.dup(descriptor), status.st_size)
                if is_document(place, start):
                    return source(document=data)
                text, note = decode_text(place, data)
                return source(text=redact_file(text, is_program=is_program(place)), note=note)
            if is_document(place, start) or b"\0" in start:
                raise FolderError(f"{path} has more than {MAX_WHOLE:,} bytes, and is no text")
            most = min(_MAX_LARGE, 4 * (from_character + PAGE))
            data = _cut_lines(descriptor, from_line, most, walk)
            text = redact_file(data.decode("utf-8", "replace"), is_program=is_program(place))
            return source(text=text, first=from_line, is_cut=len(data) == most)
        finally:
            os.close(descriptor)

    def _open(self, walk: Walk, path: str) -> tuple[int, str]:
        """Return descriptor and path of the file that is named, or of the only one that ends so. Raises as `_load`."""
        plain = self._shorten(path).lstrip("/")
        prefix, _, inner = ("", "", plain) if "" in self._folders else plain.partition("/")
        with suppress(FileNotFoundError, KeyError):
            descriptor, place = self._folders[prefix].open_file(inner)
            return descriptor, f"{prefix}/{place}" if prefix else place
        paths = [shown for shown, _ in self._walk(walk, "")]
        near = [shown for shown in paths if plain and shown.endswith(f"/{plain}")]
        if len(near) == 1 and not walk.is_over():
            return self._open(walk, near[0])
        near = near or [shown for shown in paths if shown.rpartition("/")[2] == plain.rpartition("/")[2]]
        near = near or get_close_matches(plain, paths[:_MAX_COMPARED])
        why = f"{path} is not in the folder" if path.startswith("/") else f"there is no {path}"
        why += "" if "" in self._folders else f"; paths begin with {', '.join(self._folders)}"
        raise FolderError(f"{why}; nearest: {', '.join(near[:3])}" if near else why)

    async def _convert(self, source: _FileText) -> _FileText:
        """Return a document as text. The last ones are kept: each page would take seconds. Raises InputError."""
        key = source.path, source.size, source.mtime
        if key not in self._documents:
            (document,) = await read_files([File(read_document, source.path, source.document)], caller="folder")
            if not document.text:
                raise FolderError(f"{source.path} has no text: the user can show it with -i")
            while len(self._documents) >= _MAX_DOCUMENTS:
                del self._documents[next(iter(self._documents))]
            self._documents[key] = _FileText(*key, redact_file(document.text), document.note)
        return self._documents[key]

    # Searches

    def _search_text(
        self, walk: Walk, pattern: str, path_glob: str = "", ignore_case: bool = False, context: int = 0, start: int = 1
    ) -> str:
        """context: how many lines are shown around each match. start: the first match that is shown."""
        (expression, note), context = _compile(pattern, "(?im)" if ignore_case else "(?m)"), min(context, _AROUND)
        shown, lines, hits, files, left_out = 0, list[str](), Counter[str](), 0, Counter[str]()
        for path, open_file in self._walk(walk, path_glob):
            if hits.total() >= _MAX_FOUND:
                walk.cut = f"there are {_MAX_FOUND:,} lines or more"
                break
            text, reason = _read_text(path, open_file)
            left_out[reason] += bool(reason)
            files += not reason
            room = _MAX_FOUND - hits.total()
            matches = dict[int, str]()
            for number, line in islice(find_lines(expression, text), room):
                hits[path] += 1
                if start <= hits.total() < start + MAX_MATCHES // (1 + context):
                    matches[number] = line
            shown += len(matches)
            if matches and (safe := redact_file(text, is_program=is_program(path))) != text:
                text, safe_lines = safe, safe.split("\n")
                matches = {number: _cut_line(safe_lines[number - 1]) for number in matches}
            lines += show_matches(path, matches, text if context and matches else "", context)
        total = hits.total()
        count = f"{total:,} lines in {len(hits):,} of {files:,} files" if total else f"nothing in {files:,} files"
        notes = [note, count] if note else [count]
        if shown < total:
            notes.append(f"these are {start:,} to {start + shown - 1:,}" if shown else f"none from {start:,} on")
        if start + shown <= total:
            notes.append(f"start={start + shown} goes on, path_glob searches fewer files")
        notes += [f"not searched: {number:,} {reason}" for reason, number in left_out.items() if number]
        return "\n".join([*lines, f"[{'; '.join([*notes, *_describe_walk(walk)])}]"])

    def _read_notes(self, most: int) -> str:
        parts: list[str] = []
        for name, folder in self._folders.items():
            if (notes := find_notes(folder)) is None:
                continue
            file, text = notes
            path = f"{name}/{file}" if name else file
            room = most // len(self._folders)
            cut = f"\n[cut here; read_file shows all of {path}]" if len(text) > room else ""
            parts.append(f"{path}:\n{redact_file(make_printable(text))[:room]}{cut}")
        return "\n\n".join(parts)


def find_notes(folder: Folder) -> tuple[str, str] | None:
    """Return the name and the text of the file in which a folder tells agents of itself; None: it has none."""
    for file in AGENTS_FILES:
        with suppress(OSError, FolderError, InputError):
            text, _ = decode_text(file, read_start(folder.open_file(file)[0], 4 * MAX_NOTES + 4))
            return file, text.strip()
    return None


def build_matcher(path_glob: str) -> Callable[[str], bool]:
    """Return whether a path is meant: the path itself, one in the folder of that name, or as a .gitignore has it."""
    plain = path_glob.strip("/").removeprefix("./")
    if plain in ("", ".", "*", "**", "**/*"):
        return lambda _: True
    start, brace, rest = path_glob.partition("{")
    words, _, rest = rest.partition("}")
    globs = [f"{start}{word}{rest}" for word in words.split(",")] if brace and "," in words else [path_glob]
    specs = build_specs([f"\\{glob}" if glob[:1] in ("!", "#") else glob.removeprefix("./") for glob in globs])
    return lambda path: f"{path}/".startswith(f"{plain}/") or find_decision(specs, path) is True


def group_paths(paths: Sequence[str], path_glob: str) -> list[str]:
    """Return the folders just below the one that a pattern names, with the numbers of their files, and single files."""
    base = re.split(r"[*?\[]", path_glob.removeprefix("./"))[0]
    base = f"{base.strip('/')}/" if base == path_glob.removeprefix("./") and base else base.rpartition("/")[0] + "/"
    base = "" if base == "/" or not all(path.startswith(base) for path in paths) else base
    rows = Counter[str]()
    for path in paths:
        head, slash, _ = path[len(base) :].partition("/")
        rows[f"{base}{head}{slash}"] += 1
    return [f"{row} ({number:,} files)" if row.endswith("/") else row for row, number in rows.items()]


def write_page(source: _FileText, start: tuple[int, int], most: int, notes: Sequence[str]) -> str:
    """Return a page of a text with line numbers, and how to go on. start: line and character in it, from 1.

    Raises FolderError: there is no such line.
    """
    first, character = start
    lines = source.text.removesuffix("\n").split("\n")
    if source.is_cut and len(lines) > 1:
        lines.pop()  # its end is missing
    end = source.first + len(lines) - 1
    total = f"{end:,} lines" if source.first == 1 and not source.is_cut else f"{source.size:,} bytes"
    if not source.size:
        return f"[{'; '.join([f'{source.path} is empty', *notes])}]"
    if first > end or not source.text:
        raise FolderError(f"there is no line {first:,}: {source.path} has {total}")
    shown, room, last, rest = list[str](), PAGE, first, ""
    for last, line in enumerate(lines[first - source.first :][:most], first):
        text = line.rstrip("\r")[character - 1 if last == first else 0 :]
        if shown and len(text) > room:
            last -= 1
            break
        shown.append(f"{last}: {text[:PAGE]}")
        room -= len(text)
        rest = f"from_line={last}, from_character={(character if last == first else 1) + PAGE}" if room < 0 else ""
    if last < end or source.is_cut:
        rest = rest or f"from_line={last + 1}"
    is_whole = first == character == 1 and not rest
    heading = [*([] if is_whole else [f"{source.path}, lines {first:,} to {last:,} of {total}"]), *notes]
    head, tail = ([f"[{'; '.join(heading)}]"] if heading else []), ([f"[{rest} goes on]"] if rest else [])
    return "\n".join([*head, *shown, *tail])


def find_lines(pattern: Pattern, text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines in which matches begin; of a long line its start, and its first match."""
    number, counted, end = 1, 0, -1
    for begin, _ in pattern.find_all(text):
        if begin <= end:
            continue
        number += text.count("\n", counted, begin)
        counted, start = begin, text.rfind("\n", 0, begin) + 1
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        head = begin - _MAX_SHOWN // 3 if begin > start + _MAX_SHOWN * 2 // 3 else start
        front = f"{text[start : start + _MAX_SHOWN // 3]}…" if head > start else ""
        yield number, front + _cut_line(text[head:end])


def _cut_line(line: str) -> str:
    return f"{line[:_MAX_SHOWN]}…" if len(line) > _MAX_SHOWN else line.rstrip()


def show_matches(path: str, matches: Mapping[int, str], text: str, context: int) -> list[str]:
    """Return matches as `path:line: text`, lines of the file around them as `path-line- text`."""
    lines = text.removesuffix("\n").split("\n")
    shown = {number: f"{path}:{number}: {line}" for number, line in matches.items()}
    for near in {near for number in matches for near in range(number - context, number + context + 1)} - {*matches}:
        if 1 <= near <= len(lines):
            shown[near] = f"{path}-{near}- {_cut_line(lines[near - 1])}"
    return [shown[number] for number in sorted(shown)]


def _compile(text: str, flags: str) -> tuple[Pattern, str]:
    """Return the pattern, and a note where the text is none and is looked for as it is. Raises FolderError."""
    try:
        return compile_pattern(f"{flags}{text}"), ""
    except PatternError as e:
        try:
            why = str(e).replace(flags, "")
            return compile_pattern(flags + re.escape(text)), f"this is no pattern ({why}), so its text was searched for"
        except PatternError as e:
            raise FolderError(f"this cannot be searched for: {e}") from e


def _read_text(path: str, open_file: Callable[[], int]) -> tuple[str, str]:
    """Return the text of a file, and why it is not searched ("" when it is)."""
    try:
        descriptor = open_file()
        size = os.fstat(descriptor).st_size
        if size > MAX_WHOLE:
            os.close(descriptor)
            return "", f"larger than {MAX_WHOLE:,} bytes"
        data = read_start(descriptor, size)
        if is_document(path, data[:4_096]):
            return "", "documents, which read_file shows as text"
        if b"\0" in data[:4_096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "", BINARY
        return decode_text(path, data)[0], ""
    except InputError:
        return "", "without text, or in an unknown encoding"
    except (OSError, FolderError):
        return "", UNREADABLE


def _cut_lines(descriptor: int, first: int, most: int, walk: Walk) -> bytes:
    """Return at most so many bytes from the beginning of a line on. Raises FolderError: it takes too long."""
    line, data = 1, bytearray()
    while len(data) < most and (piece := os.read(descriptor, _PIECE)):
        if walk.is_over():
            raise FolderError(f"line {first:,} is too far from the beginning: {walk.cut}")
        count = piece.count(b"\n") if line < first else 0
        if line + count < first:
            line += count
            continue
        place = 0
        while line < first:
            place, line = piece.index(b"\n", place) + 1, line + 1
        data += piece[place:]
    return bytes(data[:most])


def _describe_walk(walk: Walk) -> list[str]:
    """Return what a walk has not shown."""
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in sorted(walk.left_out.items()))
    notes = [f"left out: {left_out}"] if left_out else []
    if walk.hidden:
        more = walk.left_out[HIDDEN] + walk.left_out[SECRET] > len(walk.hidden)
        notes.append(f"hidden or perhaps secret: {', '.join(walk.hidden)}{', ...' if more else ''}")
    return [*notes, f"not all files: {walk.cut}"] if walk.cut else notes


def _describe(folder: Folder, *, agents_file: bool) -> str:
    walk = Walk(_COUNT_SECONDS)
    with suppress(OSError):
        number = sum(1 for _ in folder.walk(walk))
        notes = find_notes(folder) if agents_file else None
        more = "more than " if walk.cut else ""
        files = "1 file" if number == 1 and not more else f"{more}{number:,} files"
        return f"reading {folder.config.path} ({files})" + (f", with its {notes[0]}" if notes else "")
    return f"the folder {folder.config.path} is not there any more"


def _check_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, without those that are null. Raises FolderError."""
    known: Mapping[str, Any] = spec.parameters["properties"]
    values = _rename_arguments(known, arguments)
    unknown = [name for name in values if name not in known]
    missing = [name for name in spec.parameters["required"] if name not in values]
    if unknown or missing:
        problem = f"has no argument {unknown[0]!r}" if unknown else f"needs the argument {missing[0]!r}"
        raise FolderError(f"{spec.name} {problem}; its arguments: {', '.join(known)}")
    for name, value in values.items():
        if known[name]["type"] == "integer" and isinstance(value, str) and value.isdecimal() and len(value) < 10:
            values[name] = value = int(value)
        least = known[name].get("minimum", 1)
        if known[name]["type"] == "boolean":
            values[name] = str(value).lower() in ("true", "1", "yes")
        if known[name]["type"] == "string" and not isinstance(value, str):
            raise FolderError(f"{name} is a text")
        if known[name]["type"] == "integer" and not (type(value) is int and least <= value < _END):
            raise FolderError(f"{name} is a whole number, {least} or more")
    return values


def _rename_arguments(known: Collection[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are set, under the names of the tool: also a folder and a glob in it as one glob."""
    values = dict[str, Any]()
    for name, value in arguments.items():
        word = re.sub("[_-]", "", name).lower()
        near = (key for key in ("", *known) if word in _OTHER_NAMES.get(key, "").split())
        own = name if name in known else next(near, name)
        if value is None or not own or (own != name and not value):  # `offset: 0` is the beginning
            continue
        if own == "path_glob" and isinstance(value, str) and isinstance(before := values.get(own), str):
            folder, glob = sorted((before, value), key=lambda text: any(sign in text for sign in "*?[{"))
            value = glob if folder.strip("./") == "" else f"{folder.rstrip('/')}/**/{glob.lstrip('/')}"
        values[own] = value
    return values


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "description": description}


_OTHER_NAMES: Mapping[str, str] = {
    "path": "filepath file filename targetfile", "pattern": "query regex regexp text search q",
    "path_glob": "glob include includepattern path directory dir folder filepath file pattern",
    "from_line": "offset startline start line", "to_line": "endline end", "lines": "limit maxlines numlines",
    "context": "a b c contextlines", "ignore_case": "i caseinsensitive", "": "n outputmode headlimit explanation",
}  # fmt: skip
"""How coding agents call the arguments: small letters, without - and _; under "" those that change nothing here."""
_Tool = tuple[str, str, Mapping[str, Any], Sequence[str]]
_GLOB = "A folder, a file or a pattern, such as docs, *.py or src/**/test_*.ts. Left out: all files."

_LIST_FILES: _Tool = (
    "list_files",
    "Lists the files of {folder}. Where there are very many, those of a folder are counted.",
    {"path_glob": _text(_GLOB), "start": _number("The line of the list to begin with, from 1.")},
    (),
)
_READ_FILE: _Tool = (
    "read_file",
    "Reads a text file of {folder}, or a PDF, Office file or notebook as text; with line numbers, in pages.",
    {
        "path": _text("Path of the file, as list_files shows it."),
        "from_line": _number("The first line that is shown, from 1."),
        "to_line": _number("The last line that is shown."),
        "lines": _number("How many lines are shown at most."),
        "from_character": _number("Where in the first line to begin, from 1: for lines that are too long."),
    },
    ("path",),
)
_SEARCH_TEXT: _Tool = (
    "search_text",
    "Searches the text files of {folder} for a regular expression; shows the lines as path:line: text.",
    {
        "pattern": _text("A regular expression without look-around, or plain words."),
        "path_glob": _text(_GLOB),
        "ignore_case": {"type": "boolean", "description": "Whether a and A are the same."},
        "context": {**_number("Lines that are shown before and after each found one."), "minimum": 0},
        "start": _number("The number of the match to begin with, from 1."),
    },
    ("pattern",),
)
