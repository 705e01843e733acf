"""Where the question comes from, and what can be one."""

import sys

from massmem.cli.ask import Output
from massmem.errors import InputError
from massmem.messages import clean_text

MAX_CHARACTERS = 1_000_000
_HOW_TO_ASK = 'ask like this: massmem "your question", or pipe it in: echo "your question" | massmem'


def read_question(argument: str | None) -> str | None:
    """The question on the command line, else ("-", or none and no terminal) what stdin holds; None when there is none.

    Bytes that are not UTF-8 become U+FFFD. Blocks until stdin ends when it reads from there.

    Raises:
        InputError: empty, or longer than MAX_CHARACTERS.
    """
    if argument is not None and argument != "-":
        return checked(clean_text(argument))
    if argument is None and sys.stdin.isatty():
        return None
    text = _read_stdin()
    if argument is None and not text.strip():
        return None
    return checked(text.removesuffix("\n"))


def is_interactive(output: Output | None) -> bool:
    """There is somebody to talk to: a terminal to read from and to write to, and no program that reads the answers."""
    return output not in (Output.JSON, Output.JSONL) and sys.stdin.isatty() and sys.stderr.isatty()


def no_question() -> InputError:
    return InputError("there is no question", _HOW_TO_ASK)


def _read_stdin() -> str:
    """All of stdin, or as much of it as shows that it is too long."""
    try:
        data = sys.stdin.buffer.read(MAX_CHARACTERS * 4 + 1)
    except OSError as e:
        raise InputError(f"standard input cannot be read: {e.strerror or e}", _HOW_TO_ASK) from e
    return clean_text(data.decode(errors="replace"))


def checked(text: str) -> str:
    """The text, when it can be a question. Raises InputError as `read_question`."""
    if not text.strip():
        raise InputError("the question is empty", _HOW_TO_ASK)
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"the question has more than {MAX_CHARACTERS:,} characters, the most that massmem takes",
            "ask about a part of it, or name the file in the question and give the agents a tool that reads it",
        )
    return text
