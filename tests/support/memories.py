"""Small conversations and an indexed memory to put them in, for tests."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from massmem.memory.embedders import Embedder
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Episode, Fact, Memory, Scope
from massmem.memory.retrieval.rank import Candidates

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)


def count(text: str) -> int:
    """Tokens, roughly: words and signs."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def letters() -> Embedder:
    """Vectors from the letters of a text: near when the texts are spelled alike, which is enough for the plumbing."""

    def encode(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]

    return Embedder("letters", 26, encode)


def open_disk_memory(folder: Path, embedder: Embedder | None = None) -> IndexedMemory:
    """An IndexedMemory on disk; words only without an embedder."""
    index = EdgeIndex(folder, embedder.dims if embedder else 0)
    return IndexedMemory(index, embedder, count, str(folder))


def make_episode(
    text: str, number: int = 0, turn: int = 1, by: str = "user", session: str = "s", **more: object
) -> Episode:
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


def candidates(bm25: Sequence[float], texts: Sequence[str] = (), **columns: Sequence[float]) -> Candidates:
    """Passages of one session, each a message of its own, unless columns say otherwise."""
    n = len(bm25)
    ints = {"key": range(n), "session": [0] * n, "message": range(n), "speaker": [0] * n, "label": [2] * n}
    ints |= {"tokens": [10] * n, "day": [700_000] * n, "order": range(n)}
    ints["line"] = columns.get("message", range(n))
    flags = {"from_user": [False] * n, "asks": [False] * n, "has_time": [False] * n}
    memories = [Memory(str(i), "episode", "s", 1, "a", text, (str(i),), START) for i, text in enumerate(texts)]
    return Candidates(
        bm25=np.array(bm25, float),
        **{k: np.array(list(columns.get(k, v)), np.int64) for k, v in ints.items()},
        **{k: np.array(list(columns.get(k, v)), np.bool_) for k, v in flags.items()},
        memories=tuple(memories),
        speakers=("a", "b"),
    )
