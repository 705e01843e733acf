"""The question of a command line: its argument, what is piped in, and files."""

import json
import os
import re
import select
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from massmem.cli.streams import notify
from massmem.config.home import expand_home
from massmem.config.models import FilesConfig
from massmem.core.attachments import Attachment
from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.tools.answer_schema import check_schema
from massmem.tools.documents import Document, add_document, read_document, read_picture

MAX_CHARACTERS = 1_000_000
"""Of a question, with the texts that are added to it."""
SILENCE = 1.0
"""Seconds without input on a pipe, after which the user is told what massmem waits for."""
HOW_TO_ASK = 'ask like this: massmem "your question", or pipe it in: echo "your question" | massmem'

_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
_SEEN = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
"""Endings of names that are of files, also when there is no such file."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the user asks, with the texts of files below it."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    """Pictures, and documents without text."""


def read_question(argument: str | None, *, has_files: bool, quiet: bool = False) -> Question | None:
    """Return the question: the argument, then what is piped in.

    Bytes of standard input that are not UTF-8 become U+FFFD. Blocks until standard input ends; a terminal is read only
    for the argument "-". has_files: files will be added to it.

    Returns:
        None when there is no argument and nothing on standard input.

    Raises:
        InputError: the question is empty or too long.
    """
    if argument is not None and argument != "-":
        question = check_question(clean_text(argument))
        return Question(check_question(_append(question, _read_beside_argument(quiet=quiet))))
    text = "" if argument is None and sys.stdin.isatty() else _read_stdin()
    if argument is None and not text.strip():
        if has_files:
            raise InputError("there are files, but no question", 'ask like this: massmem -f FILE "your question"')
        return None
    return Question(check_question(text.removesuffix("\n")))


def attach_files(
    question: Question, files: Sequence[Path], pictures: Sequence[Path], settings: FilesConfig
) -> Question:
    """Return the question with the text of each file below it, and with the pictures.

    Raises:
        InputError: a file cannot be read or is none of its kind, or they are too large together.
    """
    for path in files:
        content = read_document(str(path), read_file(path, settings.max_size))
        question = _add_document(question, str(path), content)
    for path in pictures:
        content = read_picture(str(path), read_file(path, settings.max_size))
        question = _add_document(question, str(path), content)
    if sum(attachment.file.size for attachment in question.attachments) > settings.max_size:
        raise InputError(
            f"the files are larger than {settings.max_size:,} bytes together",
            "ask about fewer of them, or raise files.max_size in the configuration",
        )
    return question


def _add_document(question: Question, name: str, document: Document) -> Question:
    """Return the question with what was read of a file, and tell how it was read. Raises InputError: it is too long."""
    if document.note:
        notify(document.note)
    text = check_question(add_document(question.text, name, document))
    return replace(question, text=text, attachments=(*question.attachments, *document.attachments))


def attach_mentioned_files(text: str, settings: FilesConfig) -> Question:
    """Return the question with the files that it names as `@FILE` or `@"FILE"`. Raises InputError as `attach_files`."""
    names = [quoted or name.rstrip(".,;:?!)") for quoted, name in _MENTION.findall(text)]
    paths = [Path(name) for name in dict.fromkeys(names) if name.lower().endswith(_SEEN) or _exists(name)]
    return attach_files(Question(check_question(text)), paths, (), settings)


def read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file. Raises InputError."""
    try:
        return check_schema(json.loads(_read_text(path)))
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


def _append(question: str, text: str) -> str:
    return f"{question}\n\n{text.strip(chr(10))}" if text.strip() else question


def _exists(name: str) -> bool:
    """Whether there is such a file; a name may also be `@alice`, or no name at all."""
    try:
        return Path(name).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return False


def _read_text(path: Path) -> str:
    document = read_document(str(path), read_file(path, MAX_CHARACTERS))
    if document.attachments:
        raise InputError(f"{path} is no text", "write the schema as JSON")
    return document.text


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
    return clean_text(data.decode(errors="replace"))


def _has_input() -> bool:
    """Wait until something can be read from standard input. True also where the system cannot tell."""
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], SILENCE)[0])
    except OSError:  # a stream without a descriptor
        return True


PIPE_SECONDS = 30.0
"""How long a pipe may take until it ends."""
_PIECE = 1_000_000


def read_file(path: Path, most: int, seconds: float = PIPE_SECONDS) -> bytes:
    """Return what a file holds, or a pipe that ends within so many seconds. most: bytes.

    Raises:
        InputError: it is a folder, cannot be read, is larger, or does not end.
    """
    try:
        # A pipe that nobody writes to would block in here; below, it is waited for.
        descriptor = os.open(expand_home(path), os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise InputError(f"{path} cannot be read: {reason}", "check the name of the file") from e
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path} is a folder", "name the files in it that matter, one by one")
        if status.st_size > most:
            raise _too_large(path, most)
        if stat.S_ISREG(status.st_mode):
            seconds = 0.0
        return _read(descriptor, path, most, seconds)
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}", "check the name of the file") from e
    finally:
        os.close(descriptor)


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
