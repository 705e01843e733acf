"""One process that fills a memory, or opens it and searches: what it cost, as JSON on stdout.

    python -m scripts.benches.memory_scale fill FOLDER COUNT
    python -m scripts.benches.memory_scale open FOLDER COUNT

The texts are sentences cut to the length of a remark in a conversation.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median

from massmem.config.models import MemoryConfig
from massmem.memory import open_memory
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import USER, Episode, RecallOptions, Scope
from massmem.memory.tokens import count_tokens
from scripts.benches.process import resident
from scripts.benches.texts import query, sentences

PER_SESSION = 1000
PER_TURN = 10
BATCH = 128
SEARCHES = 200
BUDGET = RecallOptions(1000)
LIBRARIES = ("massmem.memory.indexed", "massmem.memory.index_edge", "massmem.memory.local_embedders")
"""Loaded once in a process, whatever it opens."""

AGENTS = (USER, "agent_a", "agent_b", "agent_c")

_START = datetime(2026, 1, 1, tzinfo=UTC)
_LENGTH = 200


def episode(i: int, random: Random, pool: Sequence[str], session: str = "") -> Episode:
    return Episode(
        session_id=session or f"session_{i // PER_SESSION}",
        message_id=f"m{session}{i}",
        position=i % PER_SESSION,
        turn=i % PER_SESSION // PER_TURN + 1,
        agent_id=AGENTS[i % len(AGENTS)],
        text=f"{random.choice(pool)[:_LENGTH]} #{i}",
        created_at=_START + timedelta(minutes=i),
        won=AGENTS[i % len(AGENTS)] == winner(i),
    )


def winner(i: int) -> str:
    """Of the turn of the i-th message."""
    return AGENTS[1 + i // PER_TURN % (len(AGENTS) - 1)]


async def fill(folder: Path, count: int) -> dict[str, float]:
    random, pool = Random(7), sentences()
    memory = await open_memory(MemoryConfig(), folder, {})
    await memory.record([episode(0, random, pool, "session_warm")])
    cpu = 0.0
    for at in range(0, count, BATCH):
        episodes = [episode(i, random, pool) for i in range(at, min(at + BATCH, count))]
        start = time.process_time()
        await memory.record(episodes)
        cpu += time.process_time() - start
    costs = {"per_cpu_s": count / cpu, **await searches(memory, pool), **resident()}
    start = time.perf_counter()
    await memory.close()
    return costs | {"close_s": time.perf_counter() - start}


async def opened(folder: Path, count: int) -> dict[str, float]:
    pool = sentences()
    for library in LIBRARIES:
        import_module(library)
    start, cpu = time.perf_counter(), time.process_time()
    memory = await open_memory(MemoryConfig(), folder, {})
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    new = await searches(memory, pool)
    again = await searches(memory, pool)
    costs = {"open_s": seconds, "open_cpu_s": cpu, "new_ms": new["search_ms"], **again, **resident()}
    await memory.close()
    return costs


async def searches(memory: IndexedMemory, pool: Sequence[str]) -> dict[str, float]:
    """CPU of a search among all sessions by an agent: its own memories, the user's, and those of winners."""
    random = Random(3)
    scope = Scope("session_0", "agent_a", PER_SESSION // PER_TURN, all_sessions=True)
    spent: list[float] = []
    for _ in range(SEARCHES):
        asked = query(random, pool)
        start = time.process_time()
        await memory.recall(asked, scope, BUDGET)
        spent.append(1000 * (time.process_time() - start))
    spent.sort()
    return {"search_ms": median(spent), "search_p99_ms": spent[int(0.99 * SEARCHES)]}


if __name__ == "__main__":
    what, where, number = sys.argv[1:]
    count_tokens("load the vocabulary")
    print(json.dumps(asyncio.run((fill if what == "fill" else opened)(Path(where), int(number)))))
