"""Points of an index, for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from massmem.memory.access import visible_to
from massmem.memory.index import Point
from massmem.memory.persistent import Scope

START = datetime(2026, 11, 21, 10, tzinfo=UTC)
EVERYWHERE = visible_to(Scope("none", "me", 1, all_sessions=True))


def point(number: int, text: str = "", **given: Any) -> Point:
    """A point with these fields of its payload; when, sparse and dense are taken out of them."""
    when: datetime = given.pop("when", START + timedelta(seconds=number % 86_400))
    dense, sparse = given.pop("dense", [1.0, 0.0, 0.0]), given.pop("sparse", {7: 1.0})
    payload = {
        "data": text or f"text {number}", "user_id": "massmem", "run_id": "s1", "agent_id": "user", "turn": 1,
        "group": "", "won": False, "kind": "episode", "message_ids": [f"m{number}"], "created_at": when.isoformat(),
        "hash": "h", "f": [number % 86_400, 0, 0, 2, 3, when.toordinal()],
    }  # fmt: skip
    assert given.keys() <= payload.keys()
    return Point(number, dense, sparse, {**payload, **given})
