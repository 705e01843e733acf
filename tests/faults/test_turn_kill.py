"""SIGKILL at random moments of a turn: the next run finishes it and asks only for what the log does not hold."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.events import EVENT, AnswerSubmitted, BallotCast, Event, TurnCompleted
from tests.support.council_server import CouncilServer, council_server
from tests.support.verdict import check

AGENTS = ("ann", "ben", "cyd")
LINES = 24
"""Events that are printed before the turn is nearly over."""


def massmem(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "massmem", *arguments]


def logged(home: Path) -> list[Event]:
    database = home / ".massmem" / "massmem.db"
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
            return []
        return [EVENT.validate_json(row[0]) for row in db.execute("SELECT payload FROM events ORDER BY seq")]


def sessions(home: Path) -> list[str]:
    """Of every event that is stored."""
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        return [row[0] for row in db.execute("SELECT session_id FROM events UNION ALL SELECT session_id FROM answers")]


def done(events: list[Event]) -> set[tuple[str, str, int]]:
    """Which steps the log holds the result of."""
    results = [e for e in events if isinstance(e, AnswerSubmitted | BallotCast)]
    return {(e.agent_id, "answer" if e.round == 1 else "vote", e.round) for e in results}


def kill_in_mid_turn(config: Path, lines: int, env: dict[str, str]) -> list[str]:
    """Run a turn and kill it after it has printed `lines` events; returns what it had printed."""
    child = subprocess.Popen(
        massmem("--config", str(config), "--output", "jsonl", "why?"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env,
    )  # fmt: skip
    assert child.stdout is not None
    shown = [line for _, line in zip(range(lines), child.stdout, strict=False)]
    time.sleep(random.random() * 0.03)
    child.send_signal(signal.SIGKILL)
    shown += child.stdout.readlines()
    child.stdout.close()
    child.wait()
    return shown


def one_kill(folder: Path, council: CouncilServer, lines: int) -> Counter[str]:
    home = folder / f"home{lines}_{time.monotonic_ns()}"
    home.mkdir()
    env = os.environ | {"HOME": str(home)}
    config = folder / "team.yaml"
    config.write_text(council.config(AGENTS))
    shown = kill_in_mid_turn(config, lines, env)
    before = logged(home)
    whole_lines = [line for line in shown if line.endswith("\n")]
    counts = Counter(kills=1, shown=len(whole_lines))
    counts["lie"] = sum(EVENT.validate_json(line) not in before for line in whole_lines)
    if not before:
        return counts
    council.requests.clear()
    session_id = json.loads(before[0].model_dump_json())["session_id"]
    finished = any(isinstance(e, TurnCompleted) for e in before)
    result = subprocess.run(
        massmem("--config", str(config), "--session-id", session_id, *(["again?"] if finished else [])),
        capture_output=True, text=True, timeout=60, check=False, env=env,
    )  # fmt: skip
    after = logged(home)
    counts["unanswered"] = int(result.returncode != 0 or not result.stdout.startswith("present of"))
    counts["lost"] = sum(event not in after for event in before)
    counts["leak"] = sum(other != session_id for other in sessions(home))
    if not finished:
        wanted = {(a, step) for a, step, _ in done(before)}
        asked = [(a.agent, a.step) for a in council.requests]
        counts["asked again"] = sum(step in wanted for step in asked)
        counts["ghost"] = len([e for e in after if isinstance(e, TurnCompleted)]) - 1
        counts["resumed"] = 1
    return counts


def kill_loop(folder: Path, times: int) -> None:
    total: Counter[str] = Counter()
    with council_server() as council:
        for number in range(times):
            # Spread over the whole turn, however few they are.
            total.update(one_kill(folder, council, lines=1 + int((number + random.random()) * LINES / times)))
    check(f"ask, {times} kills", total, "asked again", "unanswered")
    assert total["resumed"] > 0


def test_a_killed_turn_is_finished_without_repeating_paid_work(tmp_path: Path):
    kill_loop(tmp_path, 4)


@pytest.mark.full
def test_a_killed_turn_is_finished_without_repeating_paid_work_100_times(tmp_path: Path):
    kill_loop(tmp_path, 100)
