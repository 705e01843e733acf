"""Does a long session cost more? Appending to one of 100,000 messages against a short one, and going on with it."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from statistics import median

from massmem.core.events import Event, now
from massmem.core.records import SessionRecord
from massmem.session.session import Session
from massmem.store import open_store
from massmem.store.ports import SessionStore
from scripts.benches import teams
from scripts.benches.played import QUESTION
from scripts.benches.process import workspace
from scripts.benches.rows import Row, at_most, ratio, reported
from scripts.benches.texts import make_turn, sentences

ID = "session_20260101_000000"
LONG = 100_000
SHORT = 100
COUNCIL = tuple(f"agent_{i}" for i in range(1, 25))
"""Who fills the sessions: a wide council makes large batches, 50 messages each."""
TEAM = COUNCIL[:3]
"""Who appends the batch that is measured: 8 messages."""

PAIRS = 51
RESUMES = 7

MOST_TIMES = 1.2
MOST_MS = 500

_POOL = sentences()


def run() -> list[Row]:
    with workspace() as home:
        return asyncio.run(_run(home))


async def _run(home: Path) -> list[Row]:
    async with filled(home / "short", SHORT) as short, filled(home / "long", LONG) as long:
        messages = await _messages(long)
        rows = [reported("messages in the long session", messages, ""), *await _appending(short, long)]
    first = await _first_event_ms(home / "long")
    return [*rows, at_most("resuming it, in process: first event", first, "ms", MOST_MS)]


@asynccontextmanager
async def filled(home: Path, messages: int) -> AsyncGenerator[SessionStore]:
    """A store with one session of about that many messages, each turn appended as one batch."""
    store = await open_store(f"sqlite:///{home / 'massmem.db'}", home)
    try:
        started = now()
        await store.create_session(SessionRecord(session_id=ID, created_at=started, updated_at=started))
        for turn in range(1, messages // _count(COUNCIL) + 1):
            await store.append(ID, turn, turn_events(turn, COUNCIL))
        yield store
    finally:
        await store.close()


def _count(agents: Sequence[str]) -> int:
    """Messages of a turn: the question, an answer and a ballot of each agent, and the final answer."""
    return 2 + 2 * len(agents)


def turn_events(turn: int, agents: tuple[str, ...]) -> list[Event]:
    """A complete turn of these agents; the same each time."""
    return make_turn(ID, turn, agents, random.Random(turn), _POOL)


async def _messages(store: SessionStore) -> int:
    session = await store.get_session(ID)
    return 0 if session is None else session.message_count


async def _appending(short: SessionStore, long: SessionStore) -> list[Row]:
    """The same turn appended to both in turn. The short one grows meanwhile, to to 500 messages at most."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(LONG, LONG + PAIRS + 1):
        events = turn_events(turn, TEAM)
        for store, taken in zip((short, long), times, strict=True):
            start = time.perf_counter()
            await store.append(ID, turn, events)
            if turn > LONG:  # the first pair warms up
                taken.append(time.perf_counter() - start)
    short_ms, long_ms = (1000 * median(taken) for taken in times)
    pairs = ratio(times[1], times[0])
    note = f"{short_ms:.2f} ms and {long_ms:.2f} ms for {_count(TEAM)} messages; median of {PAIRS} pairs"
    return [at_most(f"appending a turn at message {LONG:,} / at {SHORT}", pairs.middle, "x", MOST_TIMES, note)]


async def _first_event_ms(home: Path) -> float:
    config = teams.config(teams.scripted(len(TEAM), home, latency=0))
    times: list[float] = []
    for _ in range(RESUMES + 1):
        start = time.perf_counter()
        session = await Session.open(config, home=home, session_id=ID)
        try:
            async with aclosing(session.ask(QUESTION)) as events:
                await anext(events)
                times.append(time.perf_counter() - start)
                async for _event in events:
                    pass
        finally:
            await session.close()
    return 1000 * median(times[1:])  # the first one warms up
