"""The question of a command line: its argument, what is piped in, and files."""

import json
import re
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from massmem.cli.streams import notify
from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.tools.answer_schema import check_schema

MAX_CHARACTERS = 1_000_000
"""Of a question, with what is attached to it."""
SILENCE = 1.0
"""Seconds without input on a pipe, after which the user is told what massmem waits for."""
HOW_TO_ASK = 'ask like this: massmem "your question", or pipe it in: echo "your question" | massmem'


def read_question(argument: str | None, files: Sequence[Path] = (), *, quiet: bool = False) -> str | None:
    """Return the question: the argument, then what is piped in, then the files.

    Bytes of standard input that are not UTF-8 become U+FFFD. Blocks until standard input ends; a terminal is read only
    for the argument "-".

    Returns:
        None when there is no argument and nothing on standard input.

    Raises:
        InputError: the question is empty or too long, or a file cannot be read.
    """
    if argument is not None and argument != "-":
        question = check_question(clean_text(argument))
        question = _append(question, _read_beside_argument(quiet=quiet))
    else:
        text = "" if argument is None and sys.stdin.isatty() else _read_stdin()
        if argument is None and not text.strip():
            if files:
                raise InputError("there are files, but no question", 'ask like this: massmem -f FILE "your question"')
            return None
        question = check_question(text.removesuffix("\n"))
    return attach_files(question, files)


def attach_files(question: str, files: Sequence[Path]) -> str:
    """Return the question with the text of each file below it. Raises InputError."""
    for path in files:
        question = _append(question, f"--- {path} ---\n{_read_file(path)}")
    return check_question(question)


def attach_mentioned_files(question: str) -> str:
    """Return the question with the text of each file below it that it names as `@FILE`. Raises InputError."""
    names = [name.rstrip(".,;:?!)") for name in re.findall(r"(?<!\S)@(\S+)", question)]
    return attach_files(question, [Path(name) for name in dict.fromkeys(names) if Path(name).expanduser().is_file()])


def read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file. Raises InputError."""
    try:
        return check_schema(json.loads(_read_file(path)))
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


def _read_file(path: Path) -> str:
    """Return the text of a file, cut when it is longer than a question may be. Raises InputError."""
    try:
        with path.expanduser().open("rb") as file:
            data = file.read(MAX_CHARACTERS * 4 + 1)
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}", "check the name of the file") from e
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        if e.end == len(data) > MAX_CHARACTERS * 4:
            return data.decode(errors="ignore")  # cut inside a character; too long in any case
        hint = "convert it to text first, for example with pdftotext"
        raise InputError(f"{path} is not a text file in UTF-8", hint) from e
    return clean_text(text)


def _read_beside_argument(*, quiet: bool) -> str:
    """Return what is piped in beside an argument; "" for a terminal, or when standard input cannot be read."""
    if sys.stdin.isatty():
        return ""
    if not quiet and not _has_input(SILENCE):
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


def _has_input(seconds: float) -> bool:
    """Wait until something can be read from standard input. True also where the system cannot tell."""
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], seconds)[0])
    except OSError:  # a stream without a descriptor
        return True
