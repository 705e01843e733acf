"""What massmem adds to the requests of a turn: one round, votes and presentation, nobody improves."""

import asyncio
import gc
import json
import subprocess
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from massmem.config.models import TeamConfig
from massmem.session.session import Session
from scripts.benches import teams
from scripts.benches.played import QUESTION, Played, Stalls, idle, play, play_watched
from scripts.benches.process import PYTHON, BenchError, environment, workspace
from scripts.benches.rows import ROOT, Row, at_most, exactly, reported
from scripts.benches.startup import SESSIONS, fill_registry
from scripts.benches.stub import Seen, Stub, stub

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
    rows += await _default_gate(home)
    rows += await _full_registry(home)
    with stub(LATENCY) as server:
        for agents in COUNCILS:
            config = teams.config(teams.over_http(agents, home, server))
            rows += await _overhead(f"{agents} agents, openai", config, home)
        rows += await _connections(home, server)
        rows += _first_turn("3 agents, openai", teams.over_http(3, home, server), home)
    rows += _first_turn("3 agents", teams.scripted(3, home, LATENCY), home)
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


async def _full_registry(home: Path) -> list[Row]:
    """What a long list of sessions adds: every turn is entered in it."""
    agents = COUNCILS[0]
    crowded = home / "crowded"
    fill_registry(crowded, SESSIONS)
    config = teams.config(teams.scripted(agents, crowded, LATENCY))
    folder = crowded / ".massmem"
    wall = median([(await play(config, folder)).wall for _ in range(RUNS)])
    what = f"{agents} agents, {SESSIONS:,} sessions in the list: wall / critical path"
    return [at_most(what, wall / (STEPS * LATENCY), "x", MOST_TIMES)]


async def _default_gate(home: Path) -> list[Row]:
    """The widest council with the default max_concurrency, whose path is longer."""
    agents = COUNCILS[-1]
    gate = TeamConfig.model_fields["coordination"].default.max_concurrency
    config = teams.config(teams.scripted(agents, home, LATENCY, gate))
    path = (2 * -(-agents // gate) + 1) * LATENCY
    wall = median([(await play(config, home)).wall for _ in range(RUNS)])
    note = f"the default gate makes the path {path:g} s"
    return [at_most(f"{agents} agents, max_concurrency {gate}: wall / path", wall / path, "x", MOST_TIMES, note)]


def _first_turn(name: str, team: dict[str, Any], home: Path) -> list[Row]:
    """The first turn of a process, which is every turn of the command line: libraries are loaded on the way."""
    command = [PYTHON, "-m", "scripts.benches.played", json.dumps(team), str(home)]
    seen: list[dict[str, float]] = []
    for _ in range(RUNS):
        done = subprocess.run(command, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"the first turn of a process failed: {done.stderr.strip()[-500:]}")
        seen.append(json.loads(done.stdout))
    wall = median(each["wall"] for each in seen) - STEPS * LATENCY
    stalls = [Stalls(each["longest"], each["gc"]) for each in seen]
    first = f"{name}, first turn of a process"
    return [
        reported(f"{first}: wall above the path", 1000 * wall, "ms", "libraries are loaded meanwhile"),
        at_most(f"{first}: longest stall", _longest_ms(stalls), "ms", MOST_STALL_MS, _gc_note(stalls)),
    ]


async def _connections(home: Path, server: Stub) -> list[Row]:
    """Connections and clients of a session with two turns on one endpoint."""
    agents = 8
    session = await Session.open(teams.config(teams.over_http(agents, home, server)), home=home)
    server.seen()
    try:
        seen: list[Seen] = []
        for _ in range(2):
            async with aclosing(session.ask(QUESTION)) as stream:
                async for _event in stream:
                    pass
            seen.append(await asyncio.to_thread(server.seen))
        gc.collect()
        clients = sum(issubclass(type(object), httpx2.AsyncClient) for object in gc.get_objects())
    finally:
        await session.close()
    first, second = seen
    return [
        exactly(f"{agents} agents, openai: HTTP clients for the one endpoint", clients, "", 1),
        at_most(f"{agents} agents, openai: connections opened, first turn", first.connections, "", agents),
        exactly(f"{agents} agents, openai: connections opened, second turn", second.connections, "", 0),
    ]


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
