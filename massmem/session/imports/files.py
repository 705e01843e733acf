"""Reads exports as people have them: a file, the archive as it was downloaded, or a folder."""

import gzip
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.session.imports.conversations import (
    ImportedConversation,
    ImportedTurn,
    as_list,
    as_object,
    first_of,
    make_id,
    make_title,
    parse_json,
    read_time,
)
from massmem.session.imports.programs import LISTINGS, PROGRAMS, read_turn
from massmem.tools.documents import explain_damage

_MAX_BYTES = 2 << 30
_MAX_FILES = 100_000
"""In a folder or an archive."""
_KNOWN = (
    "known are exports of ChatGPT, Claude, Gemini, Open WebUI, LibreChat, massmem and others, as JSON, ZIP or folder: "
    "massmem import --help lists them"
)
_CONVERSATIONS = re.compile(r"conversations(?:-([0-9]+))?\.json", re.IGNORECASE)
_READABLE = (".json", ".jsonl", ".ndjson")
_BESIDE = re.compile(
    r"(?:users?|projects?|memories|export_manifest|message_feedback|shared_conversations|model_comparisons|settings)"
    r"(?:-[0-9]+)?\.json|chat\.html",
    re.IGNORECASE,
)
"""Files beside the conversations in archives of ChatGPT and Claude."""
_OTHER_FILES = (
    (b"%PDF-", "a PDF"), (b"\x89PNG", "a picture"), (b"\xff\xd8\xff", "a picture"), (b"SQLite format 3", "a database"),
    (b"7z\xbc\xaf", "a 7z archive"), (b"Rar!", "a RAR archive"), (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"), (b"(\xb5/\xfd", "a zstd archive"),
)  # fmt: skip
_MASSGEN_TURN = re.compile(r"turn_[0-9]{1,9}")


@dataclass(slots=True)
class Export:
    conversations: list[ImportedConversation] = field(default_factory=list[ImportedConversation])
    """With at least one turn each, and an id of its own."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Kinds of things that cannot be read or have no place in a session, and how often."""
    _alike: dict[str, dict[Any, int]] = field(default_factory=dict[str, dict[Any, int]])
    """By id, the places of the conversations that begin alike, by what tells them apart."""

    def add(self, conversation: ImportedConversation) -> None:
        """Add a conversation. One that is there already counts once, in its newest state."""
        self.left_out.update(conversation.left_out)
        if not conversation.turns and conversation.portable is None:
            if not conversation.left_out:
                self.left_out["empty conversation"] += 1
            return
        alike = self._alike.setdefault(conversation.session_id, {})
        texts = tuple((turn.question, turn.answer) for turn in conversation.turns)
        # With an id, what begins with the same question is another state of the conversation.
        mark = texts[0][0] if conversation.has_id and texts else texts
        if mark in alike:
            place = alike[mark]
            conversation = replace(conversation, session_id=self.conversations[place].session_id)
            if _measure_age(conversation) >= _measure_age(self.conversations[place]):
                self.conversations[place] = conversation
            return
        if alike:
            conversation = replace(conversation, session_id=make_id(f"{conversation.session_id}:{len(alike) + 1}"))
        alike[mark] = len(self.conversations)
        self.conversations.append(conversation)

    def leave_out(self, what: str) -> None:
        self.left_out[clean_text(what)] += 1


def _measure_age(conversation: ImportedConversation) -> tuple[float, int]:
    """Return what is larger for a newer state of a conversation."""
    return conversation.newest.timestamp() if conversation.newest else 0, len(conversation.turns)


def list_exports(path: Path) -> list[Path]:
    """Return the files of a folder that `massmem export --all` wrote, to be read one by one; else the path itself."""
    files = sorted(path.glob("*.json")) if path.is_dir() else []
    return files if files and all(map(_is_of_massmem, files)) else [path]


def _is_of_massmem(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING


_BEGINNING = b'{"schema_version":'


def read_export(path: Path) -> Export:
    """Return what an export holds: a file, an archive, or a folder.

    path: also a session of MassGen, a folder of such sessions, or the folder that MassGen ran in.

    Raises InputError: the path cannot be read, or holds no conversation with a question and an answer.
    """
    file = str(path)
    try:
        if path.is_dir():
            if conversations := _read_massgen(path):
                export = Export()
                for conversation in conversations:
                    export.add(conversation)
                return _require_conversations(export, file)
            return _read_parts(file, _list_files(path), _MAX_BYTES)
        if zipfile.is_zipfile(path):
            with path.open("rb") as archive:
                return _read_archive(file, archive, _MAX_BYTES)
        if path.stat().st_size > _MAX_BYTES:
            raise _size_error(file, _MAX_BYTES)
        return parse_export(path.read_bytes(), path.name, file)
    except OSError as e:
        raise InputError(f"{file} cannot be read: {e.strerror or e}", "name the file of an export") from e


def parse_export(data: bytes, name: str, file: str, most: int = _MAX_BYTES) -> Export:
    """Return what the bytes of an export hold.

    name: of the file: tells lists of messages apart. file: as messages call it. most: bytes that are unpacked.

    Raises InputError: as `read_export`.
    """
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _read_archive(file, BytesIO(data), most)
    export = Export()
    _parse(data, name, file, most, export)
    return _require_conversations(export, file, name)


def _require_conversations(export: Export, file: str, name: str = "") -> Export:
    if export.conversations:
        shown = Counter(dict(export.left_out.most_common(_MAX_KINDS)))
        if rest := export.left_out.total() - shown.total():
            shown["of other kinds"] = rest
        export.left_out = shown
        return export
    if _BESIDE.fullmatch(name.rpartition("/")[2]):
        raise InputError(
            f"{file} has no conversations: they stand in conversations.json beside it",
            "import conversations.json, or the whole archive or folder",
        )
    if all(what.startswith(_NO_CONVERSATION) for what in export.left_out) and export.left_out:
        raise InputError(f"{file} is of no form that is known: {describe_left_out(export.left_out)}", _KNOWN)
    details = f": {describe_left_out(export.left_out)}" if export.left_out else ""
    raise InputError(f"{file} has no conversation with a question and an answer{details}", _KNOWN)


_NO_CONVERSATION = "entry that is no conversation"
_MOST_KINDS = 8
"""That a message names."""
_MAX_KINDS = 1_000
"""That are counted apart."""


def describe_left_out(left_out: Counter[str]) -> str:
    """Return one line that names what was left out, and how often."""
    kinds = [f"{what} ({number:,})" for what, number in left_out.most_common(_MOST_KINDS)]
    rest = sum(left_out.values()) - sum(number for _, number in left_out.most_common(_MOST_KINDS))
    return ", ".join(kinds) + (f" and {rest:,} more" if rest else "")


# Folders and archives


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of a folder or an archive."""

    path: str
    size: int
    """Bytes, unpacked."""
    read: Callable[[], bytes]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_readable(self) -> bool:
        name = self.name
        return name.lower().endswith(_READABLE) and not name.startswith("._") and not self.path.startswith("__MACOSX/")


def _list_files(folder: Path) -> Iterator[_Part]:
    """Yield the readable files below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _READABLE and path.is_file():
            yield _Part(path.relative_to(folder).as_posix(), path.stat().st_size, path.read_bytes)


def _read_archive(file: str, archive: Any, most: int) -> Export:
    """Read a ZIP archive. Raises InputError: also when it is damaged, encrypted or too large."""
    with explain_damage(file), zipfile.ZipFile(archive) as opened:
        parts = [
            _Part(info.filename, info.file_size, lambda info=info: _unpack(opened, info, file, most))
            for info in opened.infolist()
            if not info.is_dir()
        ]
        return _read_parts(file, iter(parts), most)


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: str, most: int) -> bytes:
    with archive.open(info) as member:
        data = member.read(most + 1)  # what the archive says of sizes need not be true
    if len(data) > most:
        raise _size_error(f"{info.filename} in {file}", most)
    return data


def _read_parts(file: str, parts: Iterator[_Part], most: int) -> Export:
    """Read conversations.json, whole or in shards, or all files where there is none. A damaged one is counted."""
    readable = [part for part in parts if part.is_readable]
    conversations = [part for part in readable if _CONVERSATIONS.fullmatch(part.name)]
    chosen = conversations or [part for part in readable if not _BESIDE.fullmatch(part.name)]
    if not chosen:
        raise InputError(f"{file} has no file of an export", _KNOWN)
    if len(chosen) > _MAX_FILES or sum(part.size for part in chosen) > most:
        raise _size_error(file, most)
    names = Counter(part.name for part in chosen)
    export, errors = Export(), list[InputError]()
    for part in sorted(chosen, key=lambda part: part.path):
        name = part.path if names[part.name] > 1 else part.name
        try:
            _parse(part.read(), name, f"{part.path} in {file}", most, export)
        except InputError as e:
            errors.append(e)
            export.leave_out(f"{part.path}: {e.message.partition(' in ')[2].removeprefix(f'{file} ') or e.message}")
    for missing in _list_missing(conversations):
        export.leave_out(f"{missing}: not there")
    if not export.conversations and errors:
        raise errors[0]
    return _require_conversations(export, file)


def _list_missing(shards: Sequence[_Part]) -> list[str]:
    """Return the names of shards between others that are not there."""
    numbers = {int(match[1]) for part in shards if (match := _CONVERSATIONS.fullmatch(part.name)) and match[1]}
    return [f"conversations-{n:03}.json" for n in range(max(numbers, default=0)) if n not in numbers][:100]


def _size_error(file: str, most: int) -> InputError:
    return InputError(
        f"{file} is larger than {most / 1e9:.2g} GB when it is unpacked",
        "split it, or import the conversations one by one",
    )


# Text and JSON


def _parse(data: bytes, name: str, file: str, most: int, export: Export) -> None:
    """Add the conversations of one file to the export."""
    text, stem = _decode(_gunzip(data, file, most), file, export), _STEM.sub("", name)
    rest: list[Any] = []
    try:
        for element in _list_elements(text, file, export):
            _read_element(element, stem, export, rest)
        _read_rest(rest, stem, export)
    except RecursionError as e:
        raise _depth_error(file) from e


def _depth_error(file: str) -> InputError:
    return InputError(f"{file} is nested too deeply", _KNOWN)


_STEM = re.compile(r"(?:\.gz)?\Z|\.[^./]{1,8}(?:\.gz)?\Z")


def _gunzip(data: bytes, file: str, most: int) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        with gzip.open(BytesIO(data)) as packed:
            data = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as e:
        raise InputError(f"{file} is damaged, or was not downloaded whole", "download it again") from e
    if len(data) > most:
        raise _size_error(file, most)
    return data


def _decode(data: bytes, file: str, export: Export) -> str:
    """Return the text of a file. Raises InputError: it is none, or in an encoding that it does not name."""
    if kind := next((kind for beginning, kind in _OTHER_FILES if data.startswith(beginning)), None):
        raise InputError(f"{file} is {kind}, and no export", _KNOWN)
    if data[257:262] == b"ustar":
        raise InputError(f"{file} is a tar archive", "unpack it, and import the folder")
    try:
        text = data.decode(json.detect_encoding(data) if data else "utf-8", "surrogatepass")
    except UnicodeDecodeError as e:
        text = data.decode("utf-8-sig", "replace")
        damaged, whole = text.count("\ufffd"), sum(character > "\x7f" for character in text)
        if damaged * 10 > whole:
            raise InputError(
                f"{file} is no text in UTF-8 (byte {e.start + 1:,})",
                "convert it, as in: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW, and import NEW",
            ) from e
        export.left_out["byte that is no UTF-8"] += damaged
    text = text.strip("\0")  # a damaged disk fills files with them
    if not text.strip():
        raise InputError(f"{file} is empty", "download or export it again")
    if text.lstrip()[:1] == "<":
        raise InputError(f"{file} is a web page or XML", f"import the JSON beside it, or export as JSON; {_KNOWN}")
    return text


_JSON = json.JSONDecoder(strict=False)
_BLANKS = re.compile(r"[\s,]*")


def _list_elements(text: str, file: str, export: Export) -> Iterator[Any]:
    """Yield the elements of a list one by one, so that a large export is never in memory as objects; or the one value;
    or those of JSON lines. Raises InputError: it is none of these."""
    first, _, others = text.strip().partition("\n")
    is_list = first.startswith("[") and not (others and parse_json(first) is not None)
    try:
        if is_list:
            yield from _iterate_list(text)
        else:
            yield _JSON.decode(text)
        return
    except RecursionError as e:
        raise _depth_error(file) from e
    except ValueError as e:  # also for numbers with thousands of digits
        error = e
    good = bad = 0
    for line in filter(str.strip, () if is_list else text.split("\n")):
        try:
            value = _JSON.decode(line)
        except ValueError:
            bad += 1
        else:
            good += isinstance(value, dict | list)
            yield value
    if bad >= good:
        if first[0] in "[{" and text.rstrip()[-1] not in "]}":
            raise InputError(
                f"{file} ends in the middle: it was not downloaded or copied whole", "download it again"
            ) from error
        where = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{file} is neither JSON nor JSON lines{where}", _KNOWN) from error
    if bad:
        export.left_out["line that is no JSON"] += bad


def _iterate_list(text: str) -> Iterator[Any]:
    """Yield the elements of a JSON list. Raises ValueError: it is none."""
    position = text.index("[") + 1
    while True:
        match = _BLANKS.match(text, position)
        position = match.end() if match else position
        if text[position : position + 1] == "]":
            break
        value, position = _JSON.raw_decode(text, position)
        yield value
    if text[position + 1 :].strip():
        raise json.JSONDecodeError("Extra data", text, position + 1)


_WRAPPERS = ("conversations", "chats", "threads", "sessions", "data")
"""Fields in which programs keep a list of conversations."""


def _read_element(element: Any, name: str, export: Export, rest: list[Any]) -> None:
    """Add the conversations of an element to the export. What is none goes to the rest."""
    if isinstance(element, list):
        own_rest: list[Any] = []
        for one in as_list(element):
            _read_element(one, name, export, own_rest)
        _read_rest(own_rest, name, export)
        return
    fields = as_object(element)
    if read := next((read for recognise, read in PROGRAMS if recognise(fields)), None):
        export.add(read(fields, name))
    elif isinstance(wrapped := first_of(fields, *_WRAPPERS), dict | list):
        _read_element(wrapped, name, export, rest)
    else:
        rest.append(element)


def _read_rest(rest: Sequence[Any], name: str, export: Export) -> None:
    """Read elements that are no conversations as a list of messages; count them where they are none either."""
    objects = [element for element in map(as_object, rest) if element]
    read = next((read for recognise, read in LISTINGS if any(map(recognise, objects[:_LOOKED_AT]))), None)
    for conversation in read(objects, name) if read else ():
        export.add(conversation)
    for element in [one for one in rest if not as_object(one)] if read else rest:
        fields = as_object(element)
        title = first_of(fields, "title", "name") or f"with {', '.join([*fields][:4])}" if fields else "no object"
        export.leave_out(f"{_NO_CONVERSATION} ({str(title)[:60]})")


_LOOKED_AT = 50
"""Elements of a list; others may stand before the messages."""


# MassGen, which exports nothing: folders `.massgen/sessions/ID/turn_N` with `metadata.json` and `answer.txt`


def _read_massgen(folder: Path) -> list[ImportedConversation]:
    """Return the sessions that MassGen left in a folder. Raises InputError: a file of them is damaged."""
    for sessions in (folder, folder / "sessions", folder / ".massgen" / "sessions"):
        candidates = map(_read_massgen_session, [sessions, *_list_folders(sessions)])
        if conversations := [candidate for candidate in candidates if candidate.turns]:
            return conversations
    return []


def _read_massgen_session(folder: Path) -> ImportedConversation:
    numbered = [(int(turn.name[5:]), turn) for turn in _list_folders(folder) if _MASSGEN_TURN.fullmatch(turn.name)]
    session_id, turns, left_out = folder.resolve().name, list[ImportedTurn](), Counter[str]()
    for _, turn in sorted(numbered):
        # The answer is written before its metadata: a turn that was cut off has none, and MassGen writes it again.
        if not (turn / "metadata.json").exists() or not (turn / "answer.txt").exists():
            continue
        file, export = turn / "metadata.json", Export()
        metadata = as_object(next(_list_elements(_decode(file.read_bytes(), str(file), export), str(file), export)))
        session_id = str(metadata.get("session_id") or session_id)
        answer = _decode((turn / "answer.txt").read_bytes() or b" ", str(turn / "answer.txt"), export)
        record = {"question": metadata.get("task"), "answer": answer, "winner": metadata.get("winning_agent")}
        if imported := read_turn(record, left_out):
            turns.append(replace(imported, time=read_time(metadata.get("timestamp"), zone=None)))
    session_id, title = make_id(f"massgen:{session_id}"), make_title(None, turns)
    return ImportedConversation(session_id, title, tuple(turns), has_id=True, left_out=left_out)


def _list_folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
