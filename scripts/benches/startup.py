"""Time and memory: `massmem --help`, `--list-sessions` with 10,000 sessions, and a question."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from massmem.session.registry import Registry, RegistryEntry
from scripts.benches.process import MASSMEM, PYTHON, Command, Sample, cpus, environment, in_turn, walls, workspace
from scripts.benches.rows import Row, at_most, ratio, reported
from scripts.benches.stub import stub
from scripts.benches.teams import over_http, write

SESSIONS = 10_000
RUNS = 15

REFERENCE = (PYTHON, "-c", "import typer, rich.console")
HELP = (MASSMEM, "--help")
LIST = (MASSMEM, "--list-sessions")

RUNS_OF_QUESTION = 5

IMPORT = (PYTHON, "-c", "import openai")
MAX_QUESTION_SECONDS, MAX_QUESTION_MB = 1.6, 170

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
    """Ask three agents, whose server answers at once, in a home with memories of the same question."""
    with workspace() as home, stub(0) as server:
        team = over_http(3, home, server)
        del team["memory"]  # with memories, as users have it
        argv = (MASSMEM, "--config", str(write(team, home)), "How do I keep two clocks in step?")
        env = environment(home)
        question, bare = in_turn([Command(argv, env, home), Command(IMPORT, env, home)], RUNS_OF_QUESTION)
    name, cpu = "a question to three agents", ratio(cpus(question), cpus(bare))
    imported = f"{cpu.middle:.1f} x importing openai, {median(cpus(bare)):.2f} s"
    return [
        at_most(f"{name}: CPU", median(cpus(question)), "s", MAX_QUESTION_SECONDS, imported),
        at_most(f"{name}: peak memory", max(s.peak_mb for s in question), "MB", MAX_QUESTION_MB),
    ]


def _ms(seconds: list[float]) -> float:
    return 1000 * median(seconds)
