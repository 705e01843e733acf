"""Time and memory: `massmem --help`, `--list-sessions` with 10,000 sessions, and a question."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median

from massmem.config.models import MemoryConfig
from massmem.core.events import now
from massmem.core.records import SessionRecord
from massmem.memory import open_memory
from massmem.session.registry import Registry, RegistryEntry
from massmem.store import open_store
from scripts.benches.memory_scale import BATCH, episode, sentences
from scripts.benches.process import (
    MASSMEM,
    PYTHON,
    Command,
    Sample,
    cpus,
    environment,
    in_turn,
    measure,
    walls,
    workspace,
)
from scripts.benches.rows import Row, at_most, ratio, reported
from scripts.benches.stub import stub
from scripts.benches.teams import over_http, write

SESSIONS = 10_000
RUNS = 15

REFERENCE = (PYTHON, "-c", "import typer, rich.console")
HELP = (MASSMEM, "--help")
LIST = (MASSMEM, "--list-sessions")

RUNS_OF_QUESTION = 3
MEMORIES = 10_000
QUESTION = "How do I keep two clocks in step?"
PHASES = Path(__file__).with_name("phases.py")

MAX_QUESTION = {"off": 80, "nothing to recall": 110, f"{MEMORIES:,} memories": 190}
"""Megabytes at most, by what memory holds; CPU is measured beside a peer's, see peers.py."""

MAX_RATIO: dict[tuple[str, ...], float] = {HELP: 2.0, LIST: 3.5}
MAX_MB = 60


def run() -> list[Row]:
    with workspace() as home:
        fill_registry(home, SESSIONS)
        env = environment(home)
        commands = [REFERENCE, HELP, LIST]
        reference, *measured = in_turn([Command(argv, env, home) for argv in commands], RUNS)
    rows = [
        reported("python -c 'import typer, rich.console': wall", _ms(walls(reference)), "ms"),
        reported("python -c 'import typer, rich.console': CPU", _ms(cpus(reference)), "ms"),
    ]
    for argv, samples in zip(commands[1:], measured, strict=True):
        rows += _compare(argv, samples, reference)
    return rows + _measure_question()


def fill_registry(home: Path, count: int) -> None:
    """Write `count` typical sessions into the registry of this home."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    Registry(home / ".massmem").upsert(*(_entry(first + timedelta(minutes=i)) for i in range(count)))


def _entry(start: datetime) -> RegistryEntry:
    return RegistryEntry(
        session_id=f"session_{start:%Y%m%d_%H%M%S}",
        start_time=start.isoformat(timespec="seconds"),
        end_time=(start + timedelta(seconds=50)).isoformat(timespec="seconds"),
        status="completed",
        config_path="/home/user/project/team.yaml",
        model="gpt-5-mini, claude-sonnet-4-5",
        description="How do I keep two clocks in different data centres in step?",
        store="sqlite:////home/user/.massmem/massmem.db",
    )


def _compare(argv: tuple[str, ...], samples: list[Sample], reference: list[Sample]) -> list[Row]:
    name, maximum = f"massmem {argv[-1]}", MAX_RATIO[argv]
    wall, cpu = ratio(walls(samples), walls(reference)), ratio(cpus(samples), cpus(reference))
    return [
        at_most(f"{name}: wall", wall.middle, "x", maximum, f"{_ms(walls(samples)):.0f} ms; {wall.spread}"),
        at_most(f"{name}: CPU", cpu.middle, "x", maximum, f"{_ms(cpus(samples)):.0f} ms; {cpu.spread}"),
        at_most(f"{name}: peak memory", max(s.peak_mb for s in samples), "MB", MAX_MB),
    ]


def _measure_question() -> list[Row]:
    """Ask three agents, whose server answers at once: without memory, in an empty home, and among many memories."""
    rows: list[Row] = []
    with stub(0) as server:
        for memory, most in MAX_QUESTION.items():
            samples: list[Sample] = []
            phases: dict[str, tuple[float, float]] = {}
            for _ in range(RUNS_OF_QUESTION):
                with workspace() as home:
                    team = over_http(3, home, server)
                    if memory != "off":
                        del team["memory"]
                    if memory == f"{MEMORIES:,} memories":
                        asyncio.run(_fill_memory(home, team["store"]["url"]))
                    file = str(home / "phases.json")
                    argv = (PYTHON, str(PHASES), "--config", str(write(team, home)), QUESTION)
                    samples.append(measure(Command(argv, environment(home, PHASES=file), home)))
                    phases = json.loads(Path(file).read_text(encoding="ascii"))
            name = f"a question, memory {memory}"
            note = ", ".join(f"{phase} {cpu:.2f} s {mb:.0f} MB" for phase, (cpu, mb) in phases.items())
            rows += [
                reported(f"{name}: CPU", median(cpus(samples)), "s", note),
                at_most(f"{name}: peak memory", max(sample.peak_mb for sample in samples), "MB", most),
            ]
    return rows


async def _fill_memory(home: Path, url: str) -> None:
    """Write memories into the index of this home, and their sessions into its store."""
    folder = home / ".massmem"
    folder.mkdir()
    random, pool = Random(7), sentences()
    episodes = [episode(number, random, pool) for number in range(MEMORIES)]
    store = await open_store(url, folder)
    for name in {one.session_id for one in episodes}:
        await store.create_session(SessionRecord(session_id=name, created_at=now(), updated_at=now()))
    await store.close()
    memory = await open_memory(MemoryConfig(), folder, {})
    for start in range(0, MEMORIES, BATCH):
        await memory.record(episodes[start : start + BATCH])
    await memory.close()


def _ms(seconds: list[float]) -> float:
    return 1000 * median(seconds)
