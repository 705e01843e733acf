"""SIGKILL at random moments of a turn: the next run finishes it and asks only for what the log does not hold."""

import json
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.events import AnswerSubmitted, BallotCast, Event, TurnCompleted, decode_event
from tests.support.cli import massmem
from tests.support.council_server import CouncilServer, council_server
from tests.support.forked import ForkedMassmem
from tests.support.verdict import check

AGENTS = ("ann", "ben", "cyd")
LINES = 24
"""Events that are printed before the turn is nearly over."""


def read_log(home: Path) -> list[Event]:
    database = home / ".massmem" / "massmem.db"
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
            return []
        return [decode_event(row[0]) for row in db.execute("SELECT payload FROM events ORDER BY seq")]


def sessions(home: Path) -> list[str]:
    """Of every event that is stored."""
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        return [row[0] for row in db.execute("SELECT session_id FROM events")]


def done(events: list[Event]) -> set[tuple[str, str, int]]:
    """Which steps the log holds the result of."""
    results = [e for e in events if isinstance(e, AnswerSubmitted | BallotCast)]
    return {(e.agent_id, "answer" if e.round == 1 else "vote", e.round) for e in results}


def kill_in_mid_turn(config: Path, lines: int, *options: str) -> list[bytes]:
    """Run a turn and kill it after it has printed `lines` events; returns what it had printed."""
    child = ForkedMassmem("--config", str(config), "--output", "jsonl", *options, "why?")
    shown = [line for _, line in zip(range(lines), child.stdout, strict=False)]
    time.sleep(random.random() * 0.03)
    return shown + child.kill()


def one_kill(
    folder: Path, council: CouncilServer, lines: int, rounds: int, monkeypatch: pytest.MonkeyPatch, *options: str
) -> Counter[str]:
    home = folder / f"home{lines}_{time.monotonic_ns()}"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    config, depth = folder / "team.yaml", "adaptive" if rounds == 3 else "full"
    config.write_text(f"{council.config(AGENTS)}coordination: {{max_rounds: {rounds}, depth: {depth}}}\n")
    shown = kill_in_mid_turn(config, lines, *options)
    before = read_log(home)
    whole_lines = [line for line in shown if line.endswith(b"\n")]
    counts = Counter(kills=1, shown=len(whole_lines))
    counts["lie"] = sum(decode_event(line) not in before for line in whole_lines)
    if not before:
        return counts
    council.requests.clear()
    session_id = json.loads(before[0].model_dump_json())["session_id"]
    finished = any(isinstance(e, TurnCompleted) for e in before)
    asks = [*options, "again?"] if finished else []
    result = massmem("--config", str(config), "--session-id", session_id, *asks, timeout=60, text=True)
    after = read_log(home)
    counts["unanswered"] = int(result.returncode != 0 or not result.stdout.startswith(council.final or "present of"))
    counts["lost"] = sum(event not in after for event in before)
    counts["leak"] = sum(other != session_id for other in sessions(home))
    if not finished:
        wanted = {(a, step) for a, step, _ in done(before)}
        asked = [(a.agent, a.step) for a in council.requests]
        counts["asked again"] = sum(step in wanted for step in asked)
        counts["ghost"] = len([e for e in after if isinstance(e, TurnCompleted)]) - 1
        counts["resumed"] = 1
    return counts


@pytest.mark.parametrize("schema", [None, {"type": "integer", "minimum": 1}], ids=["text", "form"])
@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.full)])
def test_a_killed_turn_is_finished_without_repeating_paid_work(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch, schema: object
) -> None:
    """schema: of the answer."""
    total: Counter[str] = Counter()
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    options = () if schema is None else ("--schema", str(tmp_path / "schema.json"))
    with council_server() as council:
        council.final = "" if schema is None else "8080"
        for number in range(times):
            # Spread over the whole turn, however few they are.
            lines = 1 + int((number + random.random()) * LINES / times)
            rounds = 2 + number % 2  # the last votes, which may stop early, or votes that a better answer may void
            total.update(one_kill(tmp_path, council, lines, rounds, monkeypatch, *options))
    check(f"ask{' for a form' if schema else ''}, {times} kills", total, "asked again", "unanswered")
    assert total["resumed"] > 0
