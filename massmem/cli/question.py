"""The question of a command line: its argument, what is piped in, and files."""

import asyncio
import difflib
import json
import os
import re
import select
import shlex
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from massmem.cli.streams import notify
from massmem.config.home import expand_home
from massmem.config.models import FilesConfig
from massmem.core.errors import InputError
from massmem.core.messages import Attachment, clean_text
from massmem.core.text import is_web_address
from massmem.tools.answer_schema import check_schema
from massmem.tools.encodings import decode_text

if TYPE_CHECKING:
    from massmem.tools.documents import File

MAX_CHARACTERS = 1_000_000
"""Of a question, with the texts that are added to it."""
SILENCE = 1.0
"""Seconds without input on a pipe, after which the user is told what massmem waits for."""
HOW_TO_ASK = 'ask like this: massmem "your question", or pipe it in: echo "your question" | massmem'

_ADDRESS = re.compile(r"[a-z][a-z+.-]+://[^/?#]*(?P<path>[^?#]*)", re.IGNORECASE)
_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
_FILE_NAME = re.compile(
    r"(?:\.{0,2}|~)/\S.*|.*\.(?:txt|md|rst|log|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|xml|html?|pdf|docx?|xlsx?|pptx?|od[tsp]|rtf|epub|eml"
    r"|ipynb|tex|py|js|ts|tsx|jsx|c|h|cc|cpp|cs|java|kt|go|rs|rb|php|sh|sql|r|swift|css|png|jpe?g|gif|webp|svg|zip)",
    re.IGNORECASE,
)
"""Words that mean a file, also when there is none; `@alice` and `@app.route` do not."""
_AS_IT_IS = "to send the line as it is, put a space behind the @"


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """The user's question, with the texts of files below it."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    """Pictures, and documents without text."""
    replaces: int | None = None
    """It becomes another version of this turn."""


def read_question(argument: str | None, *, has_files: bool, quiet: bool = False) -> UserQuestion | None:
    """Return the question: the argument, then what is piped in.

    Standard input may have any encoding that a file may have; what is no text in it becomes U+FFFD. Blocks until it
    ends; a terminal is read only for the argument "-". has_files: files will be added to it.

    Returns:
        None when there is no argument and nothing on standard input.

    Raises InputError: the question is empty, too long or no text.
    """
    if argument is not None and argument != "-":
        question = check_question(clean_text(argument))
        more = _read_beside_argument(quiet=quiet)
        return UserQuestion(check_question(f"{question}\n\n{more.strip(chr(10))}" if more.strip() else question))
    text = "" if argument is None and sys.stdin.isatty() else _read_stdin()
    if argument is None and not text.strip():
        if has_files:
            raise InputError("there are files, but no question", 'ask like this: massmem -f FILE "your question"')
        return None
    return UserQuestion(check_question(text.removesuffix("\n")))


def attach_files(
    question: UserQuestion, files: Sequence[str], pictures: Sequence[str], settings: FilesConfig
) -> UserQuestion:
    """Return the question with the text of each file below it, and with the pictures.

    files, pictures: as the user named them; files may be addresses of pages and documents.

    Raises InputError: a file cannot be read or is none of its kind, or they are too large together.
    """
    from massmem.tools.documents import File, read_picture  # with the readers of all formats

    most = settings.max_size
    shown = [File(read_picture, name, read_file(name, most)) for name in pictures]
    return add_files(question, [*(_read_source(name, most) for name in files), *shown], most)


def _read_source(name: str, most: int) -> "File":
    from massmem.tools.documents import File, read_document

    if not is_web_address(name):
        return File(read_document, name, read_file(name, most))
    from massmem.tools.addresses import fetch  # with a client of HTTP

    return asyncio.run(fetch(name, most, is_named=True))


def add_files(question: UserQuestion, files: "Sequence[File]", most: int) -> UserQuestion:
    """Return the question with what is read of files, and tell how. most: bytes of all pictures. Raises InputError."""
    from massmem.tools.documents import add_document, read_file_apart

    for file in files:
        document = read_file_apart(file)
        if document.note:
            notify(document.note)
        text = check_question(add_document(question.text, file.name, document))
        question = replace(question, text=text, attachments=(*question.attachments, *document.attachments))
    if sum(attachment.file.size for attachment in question.attachments) > most:
        raise InputError(
            f"the files are larger than {most:,} bytes together",
            "ask about fewer of them, or raise files.max_size in the configuration",
        )
    return question


def attach_mentioned_files(text: str, settings: FilesConfig) -> UserQuestion:
    """Return the question with the files that it names as `@FILE` or `@"FILE"`.

    Raises InputError, as `attach_files`; also for what looks like a file or an address, or is a folder.
    """
    mentions = [quoted or name.rstrip(".,;:?!)") for quoted, name in _MENTION.findall(text)]
    names = [n for n in dict.fromkeys(mentions) if _FILE_NAME.fullmatch(n) or _ADDRESS.match(n) or _exists(n)]
    try:
        return attach_files(UserQuestion(check_question(text)), names, (), settings)
    except InputError as e:
        raise InputError(e.message, f"{e.hint}; {_AS_IT_IS}" if names else e.hint) from e


def read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file. Raises InputError."""
    from massmem.tools.documents import File, read_document, read_file_apart

    try:
        document = read_file_apart(File(read_document, str(path), read_file(path, MAX_CHARACTERS)))
        if document.attachments:
            raise InputError(f"{path} is no text", "write the schema as JSON")
        return check_schema(json.loads(document.text))
    except ValueError as e:
        raise InputError(f"{path} is not JSON: {e}", "write the schema as JSON") from e
    except RecursionError as e:
        raise InputError(f"{path} is nested too deeply", "write a simpler schema") from e
    except InputError as e:
        raise InputError(f"{path}: {e.message}" if str(path) not in e.message else e.message, e.hint) from e


def check_question(text: str) -> str:
    """Return the question. Raises InputError when it is empty or longer than MAX_CHARACTERS."""
    if not text.strip():
        raise InputError("the question is empty", HOW_TO_ASK)
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"the question is longer than {MAX_CHARACTERS:,} characters, the most that massmem accepts",
            "ask about a part of it, or name the file in the question and give the agents a tool that reads it",
        )
    return text


def _exists(name: str) -> bool:
    """Whether there is such a file or folder; a name may also be `@alice`, or no name at all."""
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _read_beside_argument(*, quiet: bool) -> str:
    """Return what is piped in beside an argument; "" for a terminal, or when standard input cannot be read."""
    if sys.stdin.isatty():
        return ""
    if not quiet and not _has_input():
        notify("reading standard input until it ends; to ask without it, add: < /dev/null")
    try:
        return _read_stdin()
    except InputError:
        return ""


def _read_stdin() -> str:
    """Return standard input, cut when it is longer than a question may be."""
    try:
        data = sys.stdin.buffer.read(MAX_CHARACTERS * 4 + 1)
    except OSError as e:
        raise InputError(f"standard input cannot be read: {e.strerror or e}", HOW_TO_ASK) from e
    try:
        text, note = decode_text("standard input", data)
    except InputError as e:
        text = clean_text(data.decode(errors="replace"))
        if (damage := text.count("\ufffd")) > max(50, len(text) // 10):
            raise InputError("standard input is no text", "pipe in a text, or name a file with -f") from e
        note = f"standard input: {damage} characters cannot be read and are shown as \ufffd"
    if note:
        notify(note)
    return text


def _has_input() -> bool:
    """Wait until something can be read from standard input. True also where the system cannot tell."""
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], SILENCE)[0])
    except OSError:  # a stream without a descriptor
        return True


PIPE_SECONDS = 30.0
"""How long a pipe may take until it ends."""
_PIECE = 1_000_000


def read_file(name: str | Path, most: int, seconds: float = PIPE_SECONDS) -> bytes:
    """Return what a file holds, or a pipe that ends within so many seconds. most: bytes.

    Raises InputError: it is an address, a folder or a device, is not there, cannot be read, is larger, or does not end.
    """
    _check_name(str(name))
    path = expand_home(name)
    try:
        # A pipe that nobody writes to would block in here; below, it is waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as e:
        raise InputError(f"there is no file {name}", _suggest_name(path)) from e
    except (OSError, ValueError) as e:
        raise _unreadable(path, e) from e
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{name} is a folder", _suggest_files(path))
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            raise InputError(f"{name} is a device", "write what comes out of it to a file first")
        if status.st_size > most:
            raise _too_large(path, most)
        if stat.S_ISREG(status.st_mode):
            seconds = 0.0
        return _read(descriptor, path, most, seconds)
    except OSError as e:
        raise _unreadable(path, e) from e
    finally:
        os.close(descriptor)


def _check_name(name: str) -> None:
    """Raise InputError, with what to do instead, when it cannot be the name of a file."""
    if not name:
        raise InputError("the name of a file is empty", "name a file")
    if name == "-":
        raise InputError("- is no file", 'what is piped in is added without -f: command | massmem "your question"')
    address = _ADDRESS.match(name)
    if address is None:
        return
    path = unquote(address["path"])
    if name.lower().startswith("file:"):
        raise InputError(f"{name} is an address, not the name of a file", f"name the file: {path}")
    file = re.sub(r"[^\w.-]", "_", PurePosixPath(path).name) or "page.html"
    save = f"curl -sSLo {file} {shlex.quote(name)}"
    raise InputError(f"{name} is an address, and a file is needed here", f"save it first: {save} and name {file}")


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    reason = error.strerror or error if isinstance(error, OSError) else error
    return InputError(f"{path} cannot be read: {reason}", "check its name, and that you may read it")


def _suggest_name(path: Path) -> str:
    near = difflib.get_close_matches(path.name, _list_files(path.parent), n=2)
    return f"did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else "check its name"


def _suggest_files(folder: Path) -> str:
    examples = " ".join(shlex.quote(str(folder / name)) for name in _list_files(folder)[:2])
    named = "name the files in it that matter, one by one" + (f", such as {examples}" if examples else "")
    return f"let the agents read it: --dir {shlex.quote(str(folder))}; or {named}"


def _list_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, without hidden ones; none when it cannot be read."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.name[0] != "." and entry.is_file())
    except OSError:
        return []


def _read(descriptor: int, path: Path, most: int, seconds: float) -> bytes:
    """seconds: 0: it is a file, which needs no waiting."""
    data, deadline = bytearray(), time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        if seconds and not (left > 0 and select.select([descriptor], [], [], left)[0]):
            raise InputError(
                f"{path} did not end within {seconds:g} seconds", "write what comes out of it to a file first"
            )
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > most:
            raise _too_large(path, most)


def _too_large(path: Path, most: int) -> InputError:
    return InputError(
        f"{path} is larger than {most:,} bytes", "ask about a part of it, or raise files.max_size in the configuration"
    )
