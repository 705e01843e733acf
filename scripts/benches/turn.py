"""What massmem adds to the requests of a turn: one round, votes and presentation, nobody improves."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from massmem.config.models import TeamConfig
from scripts.benches import teams
from scripts.benches.played import Played, Stalls, idle, play, play_watched
from scripts.benches.process import workspace
from scripts.benches.rows import Row, at_most, exactly, reported
from scripts.benches.stub import Stub, stub

LATENCY = 0.2
STEPS = 3
"""Requests on the critical path: answers, votes, presentation."""

COUNCILS = (3, 8, 32)
RUNS = 5

MOST_TIMES = 1.05
MOST_CPU_MS = 10
MOST_TOKENS = 3000
MOST_STALL_MS = 20


def run() -> list[Row]:
    with workspace() as home:
        return asyncio.run(_run(home))


async def _run(home: Path) -> list[Row]:
    rows: list[Row] = []
    for agents in COUNCILS:
        config = teams.config(teams.scripted(agents, home, LATENCY))
        rows += await _overhead(f"{agents} agents", config, home)
    with stub(LATENCY) as server:
        for agents in COUNCILS:
            config = teams.config(teams.over_http(agents, home, server))
            rows += await _overhead(f"{agents} agents, openai", config, home)
    with stub(0) as server:
        rows += await _tokens(home, server)
    quiet = [await idle(STEPS * LATENCY) for _ in range(RUNS)]
    return [
        *rows,
        reported("a loop with nothing to do: longest stall", _longest_ms(quiet), "ms", "the machine's noise"),
    ]


async def _overhead(name: str, config: TeamConfig, home: Path) -> list[Row]:
    """The figures of one council; stalls from turns of their own, because looking for them costs CPU."""
    await play(config, home)
    played = [await play(config, home) for _ in range(RUNS)]
    stalls = [(await play_watched(config, home))[1] for _ in range(RUNS)]
    path = STEPS * LATENCY
    requests = {turn.requests for turn in played}
    wall = median(turn.wall for turn in played)
    return [
        at_most(f"{name}: wall / critical path", wall / path, "x", MOST_TIMES, f"{1000 * (wall - path):.0f} ms more"),
        at_most(f"{name}: CPU per request", 1000 * _cpu_per_request(played), "ms", MOST_CPU_MS),
        exactly(f"{name}: requests", max(requests), "", 2 * len(config.agents) + 1),
        at_most(f"{name}: longest stall of the loop", _longest_ms(stalls), "ms", MOST_STALL_MS, _gc_note(stalls)),
        reported(f"{name}: opening, indexing and closing", 1000 * median(turn.around for turn in played), "ms"),
    ]


def _cpu_per_request(played: Sequence[Played]) -> float:
    return median(turn.cpu / turn.requests for turn in played)


def _longest_ms(stalls: Sequence[Stalls]) -> float:
    """The median turn's: what massmem does shows in every turn, what the machine does only in some."""
    return 1000 * median(stall.longest for stall in stalls)


def _gc_note(stalls: Sequence[Stalls]) -> str:
    worst = max(stall.longest for stall in stalls)
    return f"worst of {len(stalls)} turns {1000 * worst:.0f} ms; longest GC {1000 * max(s.gc for s in stalls):.1f} ms"


async def _tokens(home: Path, server: Stub) -> list[Row]:
    """Prompt tokens of a whole turn as the server got them: contents of messages and JSON of tools, characters / 4."""
    rows: list[Row] = []
    for agents in (3, 2, 4, 8, 16, 32):
        server.seen()
        await play(teams.config(teams.over_http(agents, home, server)), home)
        seen = await asyncio.to_thread(server.seen)
        what, tokens = f"{agents} agents: prompt tokens of a turn", seen.characters / 4
        note = f"{seen.requests} requests, {tokens / agents:,.0f} per agent, {seen.body_bytes:,} bytes"
        rows.append(at_most(what, tokens, "", MOST_TOKENS, note) if agents == 3 else reported(what, tokens, "", note))
    return rows
