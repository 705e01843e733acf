"""Durable turns of scripted chats that one process runs in a second, with store, session and memory as in a server."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median

from massmem.config.models import TeamConfig
from massmem.core.events import TurnCompleted
from massmem.core.records import Owner
from massmem.session.session import Session
from massmem.session.team import Team
from scripts.benches.process import BenchError, workspace
from scripts.benches.rows import Row, at_least

SESSIONS, AT_ONCE, ROUNDS = 64, 16, 8
MIN_PER_SECOND = 100
ANSWER = "x" * 400
OWNER = Owner("bench")


def run() -> list[Row]:
    with workspace() as home:
        rates, cpu = asyncio.run(measure_rates(home))
    spread = f"{min(rates):.0f} to {max(rates):.0f} in {ROUNDS} rounds"
    note = f"{SESSIONS} sessions, {AT_ONCE} at a time; {spread}; {cpu:.1f} ms of CPU a turn"
    return [at_least("durable scripted chat turns a second, one process", median(rates), "", MIN_PER_SECOND, note)]


async def measure_rates(home: Path) -> tuple[list[float], float]:
    """Return the turns per second of each round, one turn of every session, and the milliseconds of CPU per turn."""
    config = TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted", "script": {"answer": [ANSWER]}}}],
            "store": {"url": f"sqlite:///{home / 'massmem.db'}"},
        }
    )
    team = await Team.open(config, home=home)
    try:
        await team.start()
        await _run_round(team, 0)  # warms up
        start = time.process_time()
        rates = [await _run_round(team, number) for number in range(1, ROUNDS + 1)]
        return rates, 1000 * (time.process_time() - start) / (SESSIONS * ROUNDS)
    finally:
        await team.close()


async def _run_round(team: Team, number: int) -> float:
    gate = asyncio.Semaphore(AT_ONCE)

    async def chat(name: str) -> None:
        async with gate:
            await _run_turn(team, name, f"Question {number}?")

    start = time.perf_counter()
    await asyncio.gather(*(chat(f"session_{session:02}") for session in range(SESSIONS)))
    return SESSIONS / (time.perf_counter() - start)


async def _run_turn(team: Team, session_id: str, question: str) -> None:
    session = await Session.get_or_create(team, session_id, OWNER)
    try:
        async with aclosing(session.ask(question)) as events:
            last = [event async for event in events][-1]
        if not isinstance(last, TurnCompleted):
            raise BenchError(f"a turn ended with {last}")
        await session.wait_for_preparation()
    finally:
        await session.close()


if __name__ == "__main__":
    print(*run(), sep="\n")
