"""SIGKILL at random moments of a turn that asks the user: value, wait and what was paid for survive together."""

import json
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import (
    AnswerSubmitted,
    BallotCast,
    Event,
    ParamProvided,
    ParamRequested,
    TurnCompleted,
    decode_event,
)
from massmem.core.outcome import read_waiting
from tests.support.cli import massmem, write_team
from tests.support.forked import ForkedMassmem
from tests.support.verdict import check

SECRET = "O-98765"


def team(folder: Path) -> str:
    asks = {"ask": "order_id", "text": "order {order_id}"}
    script = {"chunk_size": 4, "chunk_delay": 0.01, "vote": [{"vote": "A"}]}
    return write_team(
        folder,
        {**script, "answer": asks},
        {**script, "answer": "an answer that takes its time"},
        {**script, "answer": {"ask": "order_id", "text": "and {order_id} too", "delay": 0.1}},
        params={"order_id": {"pattern": r"O-\d{5}"}},
        memory={"persistent_memory": {"enabled": False}},
    )


def read_log(home: Path) -> list[Event]:
    database = home / ".massmem" / "massmem.db"
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
            return []
        return [decode_event(row[0]) for row in db.execute("SELECT payload FROM events ORDER BY seq")]


def load_state(home: Path) -> tuple[dict[str, Any], str | None]:
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as db:
        row = db.execute("SELECT params_json, waiting_for_param FROM session_state").fetchone()
    return (json.loads(row[0]), row[1]) if row else ({}, None)


def run_and_kill(home: Path, config: str, lines: int, *arguments: str) -> list[Event]:
    """Run, kill after so many events, and return those that were shown."""
    child = ForkedMassmem("--config", config, "--output", "jsonl", *arguments)
    shown = [line for _, line in zip(range(lines), child.stdout, strict=False)]
    time.sleep(random.random() * 0.02)
    shown += child.kill()
    return [decode_event(line) for line in shown if line.endswith(b"\n")]


def check_state(home: Path, counts: Counter[str]) -> None:
    """The value stands in the state exactly when the log says that it was given."""
    events = read_log(home)
    params, waiting_for = load_state(home) if events else ({}, None)
    given = any(isinstance(event, ParamProvided) for event in events)
    waits_in_vain = waiting_for is not None and not read_waiting(events).open_requests
    counts["wrong state"] += int((params == {"order_id": SECRET}) != given or waits_in_vain)


def one(home: Path, config: str) -> Counter[str]:
    counts = Counter(kills=2)
    shown = run_and_kill(home, config, random.randint(1, 14), "Where is my order?")
    before = read_log(home)
    counts["lie"] += sum(event not in before for event in shown)
    check_state(home, counts)
    if not before:
        return counts
    session = json.loads(before[0].model_dump_json())["session_id"]
    shown = run_and_kill(home, config, random.randint(1, 24), "--session-id", session, SECRET)
    check_state(home, counts)
    middle = read_log(home)
    counts["lost"] += sum(event not in middle for event in before)
    done = any(isinstance(event, TurnCompleted) for event in middle)
    while not done:
        waits = read_waiting(read_log(home)).open_requests
        ran = massmem("--config", config, "--session-id", session, *([SECRET] if waits else []))
        counts["unanswered"] += int(ran.returncode not in (0, 6))
        done = ran.returncode != 6
    check_state(home, counts)
    after = read_log(home)
    counts["lost"] += sum(event not in after for event in middle)
    counts["ghost"] += len([e for e in after if isinstance(e, TurnCompleted)]) - 1
    results = Counter((e.agent_id, e.round, type(e)) for e in after if isinstance(e, _RESULTS))
    counts["paid twice"] += sum(number - 1 for number in results.values())
    return counts


_RESULTS = AnswerSubmitted | BallotCast | ParamRequested


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.full)])
def test_a_killed_turn_that_waits_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    total: Counter[str] = Counter()
    for number in range(times):
        home = tmp_path / f"home{number}"
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        total.update(one(home, team(tmp_path)))
    check(f"ask and answer a question, {total['kills']} kills", total, "paid twice", "unanswered", "wrong state")
