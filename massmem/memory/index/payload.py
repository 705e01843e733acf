"""What is stored with each point: mem0's field names, so that its adapter reads the same collection. Pure.

`f` holds the numbers that ranking needs: position in the session, number of the message, flags, content words, tokens
of the text as it is shown, and the ordinal of its day.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import md5
from typing import Any

from massmem.memory.persistent import Episode, Fact, Kind, Memory
from massmem.memory.quoting import quoted
from massmem.memory.ranking.text import has_time, is_question

USER_ID = "massmem"
"""mem0 wants a user; sessions and agents tell memories apart here."""

ASKS, HAS_TIME, PRIVATE = 1, 2, 4

Count = Callable[[str], int]
"""Tokens of a text."""


def of_passage(episode: Episode, text: str, terms: Sequence[str], position: int, count: Count) -> dict[str, Any]:
    flags, *counts = _numbers(text, terms, "episode", count)
    flags |= PRIVATE if episode.private else 0
    f = [position, episode.position, flags, *counts, episode.created_at.toordinal()]
    return {"kind": "episode", "message_ids": [episode.message_id], "f": f, **_common(episode, text)}


def of_fact(fact: Fact, terms: Sequence[str], count: Count) -> dict[str, Any]:
    f = [0, 0, *_numbers(fact.text, terms, "fact", count), fact.created_at.toordinal()]
    return {"kind": "fact", "message_ids": [*fact.message_ids], "f": f, **_common(fact, fact.text)}


def to_memory(point_id: int, payload: Mapping[str, Any], score: float = 0.0) -> Memory:
    return Memory(
        id=str(point_id),
        kind=payload["kind"],
        session_id=payload["run_id"],
        turn=payload["turn"],
        agent_id=payload["agent_id"],
        text=payload["data"],
        message_ids=tuple(payload["message_ids"]),
        created_at=datetime.fromisoformat(payload["created_at"]),
        score=score,
        group=payload.get("group", ""),
    )


def is_fact(payload: Mapping[str, Any]) -> bool:
    return payload["kind"] == "fact"


def is_private(payload: Mapping[str, Any]) -> bool:
    """Nobody but its agent ever sees it, whoever wins the turn."""
    return payload["f"][2] & PRIVATE > 0


def _common(said: Episode | Fact, text: str) -> dict[str, Any]:
    return {
        "data": text,
        "user_id": USER_ID,
        "run_id": said.session_id,
        "agent_id": said.agent_id,
        "turn": said.turn,
        "group": said.group,
        "won": said.won,
        "created_at": said.created_at.isoformat(),
        "hash": md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(),
    }


def _numbers(text: str, terms: Sequence[str], kind: Kind, count: Count) -> tuple[int, int, int]:
    flags = (ASKS if is_question(text) else 0) | (HAS_TIME if has_time(text) else 0)
    return flags, len(terms), count(f" {quoted(text, kind)}")
