"""Does a long session cost more? Appending to one of 100,000 messages against a short one, and going on with it."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from statistics import median

from massmem.core.events import (
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    Event,
    RoundStarted,
    TurnCompleted,
    TurnStarted,
    WinnerDecided,
    now,
)
from massmem.core.messages import Usage
from massmem.core.records import SessionRecord
from massmem.session.session import Session
from massmem.store import open_store
from massmem.store.ports import SessionStore
from scripts.benches import teams
from scripts.benches.played import QUESTION
from scripts.benches.process import MASSMEM, Command, environment, in_turn, workspace
from scripts.benches.rows import Row, at_most, ratio, reported

ID = "session_20260101_000000"
LONG = 100_000
SHORT = 100
COUNCIL = tuple(f"agent_{i}" for i in range(1, 25))
"""Who fills the sessions: a wide council makes large batches, 50 messages each."""
TEAM = COUNCIL[:3]
"""Who appends the batch that is measured: 8 messages."""

PAIRS = 51
RESUMES = 7
PROCESSES = 5

MOST_TIMES = 1.2
MOST_MS = 500

_WORDS = (
    "clock", "drift", "source", "offset", "server", "packet", "interval", "leap", "second", "peer", "stratum", "delay",
    "jitter", "measure", "correct", "slowly", "network", "loss", "retry", "window", "budget", "agent", "answer", "vote",
)  # fmt: skip


def run() -> list[Row]:
    with workspace() as home:
        return asyncio.run(_run(home))


async def _run(home: Path) -> list[Row]:
    async with filled(home / "short", SHORT) as short, filled(home / "long", LONG) as long:
        messages = await _messages(long)
        rows = [reported("messages in the long session", messages, ""), *await _appending(short, long)]
    folder = home / "long"
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 1e6
    rows += [reported("its database", size, "MB"), await _resuming(folder), await _first_event(folder)]
    return [*rows, _whole_process(folder)]


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
    """A complete turn of these agents with texts of usual length; the same each time."""
    words = random.Random(turn)
    usage = Usage(800, 120, requests=1)
    winner = words.choice(agents)
    answer = _text(words, 60)
    return [
        TurnStarted(session_id=ID, turn=turn, question=_text(words, 12), agents=agents, seed=turn),
        RoundStarted(round=1, agents=agents),
        *(AgentStarted(agent_id=agent, round=1, step="answer") for agent in agents),
        *(
            AnswerSubmitted(agent_id=agent, round=1, number=i, content=_text(words, 60), usage=usage)
            for i, agent in enumerate(agents, start=1)
        ),
        RoundStarted(round=2, agents=agents),
        *(AgentStarted(agent_id=agent, round=2, step="vote") for agent in agents),
        *(BallotCast(agent_id=agent, round=2, choice=winner, reason=_text(words, 12), usage=usage) for agent in agents),
        WinnerDecided(agent_id=winner, votes={winner: len(agents)}, by="consensus"),
        AgentStarted(agent_id=winner, round=2, step="present"),
        TurnCompleted(winner=winner, answer=answer, presented=True, usage=usage),
    ]


def _text(words: random.Random, count: int) -> str:
    return " ".join(words.choices(_WORDS, k=count))


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


async def _resuming(home: Path) -> Row:
    return at_most("resuming it, in process: first event", await _first_event_ms(home), "ms", MOST_MS)


async def _first_event(home: Path) -> Row:
    """The same session's history is what is read: how long it takes alone."""
    store = await open_store(f"sqlite:///{home / 'massmem.db'}", home)
    try:
        times: list[float] = []
        for _ in range(RESUMES):
            start = time.perf_counter()
            await store.read_conversation(ID, None, 256)
            times.append(time.perf_counter() - start)
    finally:
        await store.close()
    return reported("reading 256 messages of its history", 1000 * median(times), "ms")


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


def _whole_process(home: Path) -> Row:
    team = teams.write(teams.scripted(len(TEAM), home, latency=0), home)
    argv = (MASSMEM, "--config", str(team), "--session-id", ID, "--output", "jsonl", QUESTION)
    (samples,) = in_turn([Command(argv, environment(home), home)], PROCESSES)
    first = [sample.first_byte or sample.wall for sample in samples]
    return reported(
        "massmem --session-id S --output jsonl: first byte", 1000 * median(first), "ms", "start-up included"
    )
