"""How much later the first request of a turn leaves because there is a memory, once everything is loaded."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from massmem.config.models import TeamConfig
from massmem.core.events import AgentDelta, Notice
from massmem.session.session import Session
from scripts.benches import teams
from scripts.benches.process import BenchError
from scripts.benches.sentences import query, sentences

AGENTS = 3
TURNS = 12
WARM = 2
"""Turns that are not counted: libraries are loaded beside them."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds, and seconds of CPU of this process, from a question until the first model has begun to answer."""

    wall: float
    cpu: float


async def first_requests(home: Path) -> tuple[Spent, Spent]:
    """With memory and without: medians of turns.

    home: its memory is searched, all sessions of it. The turns alternate, so that a busy machine slows both.
    """
    sessions = [await Session.open(_team(home, memory=memory), home=home) for memory in (True, False)]
    random, pool = Random(5), sentences()
    spent: list[list[Spent]] = []
    try:
        for _ in range(TURNS):
            asked = query(random, pool)
            spent.append([await _first(session, asked) for session in sessions])
    finally:
        for session in sessions:
            await session.close()
    with_memory, without = zip(*spent[WARM:], strict=True)
    return _middle(with_memory), _middle(without)


def _middle(spent: Sequence[Spent]) -> Spent:
    return Spent(median(each.wall for each in spent), median(each.cpu for each in spent))


def _team(home: Path, *, memory: bool) -> TeamConfig:
    team: dict[str, Any] = teams.scripted(AGENTS, home, 0)
    team["memory"] = {"persistent_memory": {"enabled": memory, "session_name": None}}
    return teams.config(team)


async def _first(session: Session, question: str) -> Spent:
    """The scripted agents answer at once: the first word of one of them comes when its request was sent."""
    start, cpu, first = time.perf_counter(), time.process_time(), None
    async with aclosing(session.ask(question)) as events:
        async for event in events:
            if first is None and isinstance(event, AgentDelta):
                first = Spent(time.perf_counter() - start, time.process_time() - cpu)
            if isinstance(event, Notice):
                raise BenchError(f"the memory could not be used: {event.message}")
    await asyncio.sleep(0.2)  # a user reads
    assert first is not None
    return first
