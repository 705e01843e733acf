"""Small conversations and an indexed memory to put them in, for tests."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from massmem.memory.embedders.embedder import Embedder
from massmem.memory.index.embedded import EmbeddedIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Episode, Fact, Scope

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)


def count(text: str) -> int:
    """Tokens, roughly: words and signs."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def letters() -> Embedder:
    """Vectors from the letters of a text: near when the texts are spelled alike, which is enough for the plumbing."""

    def encode(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]

    return Embedder("letters", 26, encode)


def indexed(folder: Path, embedder: Embedder | None = None) -> IndexedMemory:
    """An IndexedMemory on disk; words only without an embedder."""
    index = EmbeddedIndex(folder, embedder.dims if embedder else 0)
    return IndexedMemory(index, embedder, count, str(folder))


def said(text: str, number: int = 0, turn: int = 1, by: str = "user", session: str = "s", **more: object) -> Episode:
    """A message; number: its position in the session."""
    return Episode(
        session_id=session,
        message_id=f"{session}-{number}",
        position=number,
        turn=turn,
        agent_id=by,
        text=text,
        created_at=START + timedelta(minutes=number),
        **more,  # type: ignore[arg-type]
    )


def fact(
    text: str, turn: int = 1, by: str = "a", session: str = "s", sources: tuple[str, ...] = ("m",), **more: object
) -> Fact:
    return Fact(session, turn, by, text, sources, START, **more)  # type: ignore[arg-type]


def asks(agent: str = "a", turn: int = 9, session: str = "s", **more: object) -> Scope:
    return Scope(session, agent, turn, **more)  # type: ignore[arg-type]
