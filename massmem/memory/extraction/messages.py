"""What is read for facts and where a fact comes from: messages, cut to the size of a request, and labelled. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from massmem.core.errors import MassmemError
from massmem.core.messages import Role, clean_text
from massmem.memory.claims import make_claim, says_value, shares_word
from massmem.memory.extraction.facts import find_telling_words
from massmem.memory.extraction.replies import Statement
from massmem.memory.persistent import USER, Claim, Fact

SHORTEST_MESSAGE = 10
"""Characters; what is shorter is not worth a request."""

_SMALLEST_PIECE = 200
_NUMBER = re.compile(r"\d+")
_BREAKS = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One message of the log as it is read for facts."""

    role: Role
    """Nothing of role system is read; tool counts as assistant."""
    text: str
    message_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose messages they are, and where they are from."""

    session_id: str
    agent_id: str
    turn: int
    won: bool = False
    """The turn is complete and this agent won it."""
    group: str = ""
    """As in Episode."""
    undecided: bool = False
    """The turn has no winner yet."""
    attempt: int = 1
    """The last round of the turn that they are from, counted from 1."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What an extraction gave."""

    facts: tuple[Fact, ...] = ()
    duplicates: int = 0
    """Statements of the model that are remembered already."""
    requests: int = 0
    """Requests that the model answered."""
    problem: MassmemError | None = None
    """Why part of the messages was not read to the end; None when all was read."""
    unread: tuple[str, ...] = ()
    """Ids of the messages that were not read to the end, for another try."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A message, or a part of a long one, with the label that the model knows it by."""

    label: str
    role: str
    text: str
    message_id: str
    created_at: datetime

    @property
    def prompt_text(self) -> str:
        """The text that the model reads.

        Only its first line starts at the margin, so that no other line can pose as a heading or as a role.
        """
        return f"({self.label}) " + "\n    ".join(self.text.splitlines())


Chunk = tuple[Piece, ...]
"""What one request is about."""


def split_into_chunks(messages: Sequence[RecordedMessage], size: int) -> list[Chunk]:
    """Pack the messages that are worth reading into chunks of at most `size` characters.

    A longer message is cut where a paragraph, a line, a sentence or at least a word ends.
    """
    packed: list[list[Piece]] = []
    room = 0
    number = 0
    for message in messages:
        for text in _split_message(message, size):
            number += 1
            if len(text) > room:
                packed.append([])
                room = size
            role = "user" if message.role == "user" else "assistant"
            packed[-1].append(Piece(f"m{number}", role, text, message.message_id, message.created_at))
            room -= len(text)
    return [tuple(pieces) for pieces in packed]


def halve(chunk: Chunk) -> tuple[Chunk, Chunk] | None:
    """Cut a chunk that was too long for one request into two; return None when it is too small for that."""
    match chunk:
        case (piece,) if len(piece.text) < 2 * _SMALLEST_PIECE:
            return None
        case (piece,):
            first, *rest = _split_text(piece.text, len(piece.text) // 2 + 1)
            return (replace(piece, text=first),), (replace(piece, text="\n".join(rest)),)
        case _:
            middle = len(chunk) // 2
            return chunk[:middle], chunk[middle:]


def list_message_ids(chunk: Chunk) -> tuple[str, ...]:
    """Return the ids of the chunk's messages, without repetition."""
    return tuple(dict.fromkeys(piece.message_id for piece in chunk))


def make_fact(statement: Statement, chunk: Chunk, origin: Origin) -> Fact:
    """Return the statement as a fact, with the messages that it comes from as far as that can be believed."""
    sources = _find_sources(statement, chunk)
    return Fact(
        session_id=origin.session_id,
        turn=origin.turn,
        agent_id=origin.agent_id,
        text=statement.text,
        message_ids=list_message_ids(sources),
        created_at=max(piece.created_at for piece in sources),
        won=origin.won,
        group=origin.group,
        claim=_make_claim(statement, sources, origin),
    )


def _make_claim(statement: Statement, sources: Chunk, origin: Origin) -> Claim | None:
    """Return what the statement claims; None when its text, or its messages, do not bear that out.

    What comes from the user's messages alone is the user's word, whichever agent noted it.
    """
    if statement.claim is None:
        return None
    by = USER if all(piece.role == "user" for piece in sources) else origin.agent_id
    claim = make_claim(*statement.claim, by)
    if claim is None or not says_value(statement.text, claim.value):
        return None
    return claim if any(shares_word(piece.text, claim.value) for piece in sources) else None


def _find_sources(statement: Statement, chunk: Chunk) -> Chunk:
    """Return the pieces that the model named; when it named none, or others share far more words, those others."""
    matches = (_NUMBER.search(label) for label in statement.sources)
    labels = {f"m{match.group()}" for match in matches if match}
    named = tuple(piece for piece in chunk if piece.label in labels)
    words = find_telling_words(statement.text)
    shared = {piece.label: len(words & find_telling_words(piece.text)) for piece in chunk}
    most = max(shared.values())
    near = tuple(piece for piece in chunk if 2 * shared[piece.label] >= most)
    return named if any(piece in near for piece in named) else near


def _split_message(message: RecordedMessage, size: int) -> list[str]:
    text = "\n".join(clean_text(message.text).splitlines()).strip()
    if message.role == "system" or len(text) < SHORTEST_MESSAGE:
        return []
    return _split_text(text, size)


def _split_text(text: str, size: int) -> list[str]:
    parts: list[str] = []
    start = 0
    while len(text) - start > size:
        end = _find_break(text, start + size // 2, start + size)
        parts.append(text[start:end].strip())
        start = end
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _find_break(text: str, low: int, high: int) -> int:
    for mark in _BREAKS:
        if (position := text.rfind(mark, low, high)) >= 0:
            return position + len(mark)
    return high
