"""A fact that its agent finds once more: in which turn it stands then, and where it came from. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from massmem.memory.persistent import Fact


def restated(stored: Mapping[str, Any], found: Fact) -> Fact | None:
    """The fact as it is to be stored now that it was found again; None when nothing changes. stored: its payload.

    It moves to the turn that shows it to most: the first one that its agent won, so that the others see it after that
    turn and never before; without any such, the last one, which may still be won. It keeps the messages of all of them
    as its origin. The order in which the turns are recorded makes no difference.
    """
    there = Fact(
        session_id=stored["run_id"],
        turn=stored["turn"],
        agent_id=stored["agent_id"],
        text=stored["data"],
        message_ids=tuple(stored["message_ids"]),
        created_at=datetime.fromisoformat(stored["created_at"]),
        won=stored["won"],
        group=stored.get("group", ""),
    )
    origin = tuple(sorted({*there.message_ids, *found.message_ids}))  # ids of messages rise within a session
    both = max(there, found, key=_shown_to_most)
    now = replace(there, turn=both.turn, created_at=both.created_at, won=both.won, message_ids=origin)
    same = replace(there, message_ids=tuple(sorted(set(there.message_ids))))
    return None if now == same else now


def _shown_to_most(fact: Fact) -> tuple[bool, int, datetime]:
    return fact.won, -fact.turn if fact.won else fact.turn, fact.created_at
