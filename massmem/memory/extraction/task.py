"""Extraction of facts, the pure part: what goes in, how it is cut to size, and where a fact comes from."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from massmem.core.errors import MassmemError
from massmem.core.messages import Role, clean_text
from massmem.memory.extraction.facts import normalised
from massmem.memory.extraction.replies import Statement
from massmem.memory.persistent import Fact

if TYPE_CHECKING:
    from massmem.memory.index import Index

SHORTEST_MESSAGE = 10
"""Characters; what is shorter is not worth a request."""

_SMALLEST_PIECE = 200
_NUMBER = re.compile(r"\d+")
STEM = 5
"""First letters by which two forms of a word are taken for the same."""

_BREAKS = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One message of the log as it is read for facts. Of role system nothing is read; tool counts as assistant."""

    role: Role
    text: str
    message_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose messages they are. won: the turn is complete and this agent won it. group: as in Episode.

    undecided: the turn has no winner yet. attempt: the last round of the turn that they come from, from 1.
    """

    session_id: str
    agent_id: str
    turn: int
    won: bool = False
    group: str = ""
    undecided: bool = False
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Known:
    """Where facts stand already. embed: one text to its vector, None for none; blocking; may raise MassmemError."""

    index: "Index"
    embed: Callable[[str], Sequence[float] | None]


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found.

    duplicates: statements that were found but known. requests: how many a model answered. problem: why part of the
    messages was not read to the end, None when all was; unread: the ids of those messages, for another try.
    """

    facts: tuple[Fact, ...] = ()
    duplicates: int = 0
    requests: int = 0
    problem: MassmemError | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A message, or a part of a long one, with the label that the model knows it by."""

    label: str
    role: str
    text: str
    message_id: str
    created_at: datetime

    def shown(self) -> str:
        """As the model reads it: only its first line starts at the margin, so none poses as a heading or a role."""
        return f"({self.label}) " + "\n    ".join(self.text.splitlines())


Chunk = tuple[Piece, ...]
"""What one request is about."""


def chunks(messages: Sequence[RecordedMessage], size: int) -> list[Chunk]:
    """Messages that are worth reading, in requests of about `size` characters; longer ones are cut at a good place."""
    packed: list[list[Piece]] = []
    room = 0
    number = 0
    for message in messages:
        for text in _parts(message, size):
            number += 1
            if len(text) > room:
                packed.append([])
                room = size
            packed[-1].append(Piece(f"m{number}", _role(message.role), text, message.message_id, message.created_at))
            room -= len(text)
    return [tuple(pieces) for pieces in packed]


def halves(chunk: Chunk) -> tuple[Chunk, Chunk] | None:
    """The same in two requests, because one was too long; None when it is too small to be cut."""
    match chunk:
        case (piece,) if len(piece.text) < 2 * _SMALLEST_PIECE:
            return None
        case (piece,):
            first, *rest = _split(piece.text, len(piece.text) // 2 + 1)
            return (replace(piece, text=first),), (replace(piece, text="\n".join(rest)),)
        case _:
            middle = len(chunk) // 2
            return chunk[:middle], chunk[middle:]


def prompt_messages(chunk: Chunk) -> list[dict[str, str]]:
    """The chunk in mem0's form."""
    return [{"role": piece.role, "content": piece.shown()} for piece in chunk]


def message_ids(chunk: Chunk) -> tuple[str, ...]:
    """Of all its messages, each once."""
    return tuple(dict.fromkeys(piece.message_id for piece in chunk))


def to_fact(statement: Statement, chunk: Chunk, origin: Origin) -> Fact:
    """With its provenance, as far as it is believable, see _sources."""
    sources = _sources(statement, chunk)
    return Fact(
        session_id=origin.session_id,
        turn=origin.turn,
        agent_id=origin.agent_id,
        text=statement.text,
        message_ids=message_ids(sources),
        created_at=max(piece.created_at for piece in sources),
        won=origin.won,
        group=origin.group,
    )


def _sources(statement: Statement, chunk: Chunk) -> Chunk:
    """The messages that the model named; when it named none, or others share far more words, those others."""
    numbers = {f"m{found.group()}" for label in statement.sources if (found := _NUMBER.search(label))}
    named = tuple(piece for piece in chunk if piece.label in numbers)
    words = telling_words(statement.text)
    shared = {piece.label: len(words & telling_words(piece.text)) for piece in chunk}
    most = max(shared.values())
    near = tuple(piece for piece in chunk if 2 * shared[piece.label] >= most)
    return named if any(piece in near for piece in named) else near


def is_grounded(statement: Statement, chunk: Chunk) -> bool:
    """At least every third word of it that says something stands in the messages, by its first letters.

    Small models also write down the examples of their prompt, or what they know themselves.
    """
    said = {word[:STEM] for piece in chunk for word in telling_words(piece.text)}
    words = [word[:STEM] for word in telling_words(statement.text)]
    return 3 * sum(word in said for word in words) >= len(words)


def telling_words(text: str) -> set[str]:
    """Those that tell what a text is about."""
    return {word for word in normalised(text).split() if len(word) > 3 or not word.isalpha()}


def _role(role: str) -> str:
    return "user" if role == "user" else "assistant"


def _parts(message: RecordedMessage, size: int) -> list[str]:
    text = "\n".join(clean_text(message.text).splitlines()).strip()
    if message.role == "system" or len(text) < SHORTEST_MESSAGE:
        return []
    return _split(text, size)


def _split(text: str, size: int) -> list[str]:
    """Cut where a paragraph, a line, a sentence or at least a word ends."""
    parts: list[str] = []
    start = 0
    while len(text) - start > size:
        end = _good_place(text, start + size // 2, start + size)
        parts.append(text[start:end].strip())
        start = end
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _good_place(text: str, low: int, high: int) -> int:
    for mark in _BREAKS:
        if (found := text.rfind(mark, low, high)) >= 0:
            return found + len(mark)
    return high
