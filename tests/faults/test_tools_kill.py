"""SIGKILL in a turn with tools: no server is left, and no call is made again whose result is in the log."""

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from massmem.core.events import EVENT, Event, ToolCalled, ToolReturned, TurnCompleted
from tests.faults.test_waiting_kill import read_log
from tests.support.cli import massmem
from tests.support.forked import ForkedMassmem
from tests.support.tools import calls, list_servers_left, server, team_data

NOTHING = dict.fromkeys(("server left", "called again", "lost", "unanswered"), 0)

STEPS = [
    {"call": {"tool": "slow", "arguments": {"seconds": 0.2, "text": "one"}}},
    {"call": [{"tool": "slow", "arguments": {"seconds": 0.2, "text": f"two {n}"}} for n in range(2)]},
    {"call": {"tool": "slow", "arguments": {"seconds": 0.2, "text": "three"}}},
]


def write(folder: Path, log: Path, done: int) -> str:
    """The team, whose model has made so many of its calls: a script does not know what an earlier run of it said."""
    path = folder / "team.json"
    path.write_text(json.dumps(team_data({"answer": [*STEPS[done:], "the end: {result}"]}, server(log))))
    return str(path)


def run_and_kill(config: str, lines: int, *arguments: str) -> list[Event]:
    """Run, kill after so many events, and return those that were shown."""
    child = ForkedMassmem("--config", config, "--output", "jsonl", *arguments)
    shown = [line for _, line in zip(range(lines), child.stdout, strict=False)]
    time.sleep(random.random() * 0.2)
    shown += child.kill()
    return [EVENT.validate_json(line) for line in shown if line.endswith(b"\n")]


def one(folder: Path) -> Counter[str]:
    counts, log = Counter(kills=1), folder / "calls"
    shown = run_and_kill(write(folder, log, 0), random.randint(4, 14), "why?")
    counts["server left"] += len(list_servers_left(folder, 6))
    session = next((e.session_id for e in shown if e.type == "turn_started"), "")
    if not session:
        return counts
    before = read_log(folder / "home")
    counts["lost"] += sum(event not in before for event in shown)
    if not any(isinstance(e, TurnCompleted) for e in before):
        done = len({e.batch for e in before if isinstance(e, ToolCalled)})
        massmem("--config", write(folder, log, done), "--session-id", session, timeout=60)
    after = read_log(folder / "home")
    counts["unanswered"] += not any(isinstance(e, TurnCompleted) for e in after)
    returned = [e.call_id for e in after if isinstance(e, ToolReturned)]
    called = [e.call_id for e in after if isinstance(e, ToolCalled)]
    counts["lost"] += len(set(called) ^ set(returned))
    counts["called again"] += len(returned) - len(set(returned))
    made = Counter(call["text"] for call in calls(log) if call["tool"] == "slow")
    counts["called again"] += sum(number - 1 for number in made.values())
    return counts


def loop(folder: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    total: Counter[str] = Counter(NOTHING)
    for number in range(times):
        place = folder / str(number)
        (place / "home").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(place / "home"))
        total.update(one(place))
    print(dict(total))
    return total


def test_a_killed_turn_leaves_no_server_and_repeats_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    total = loop(tmp_path, 2, monkeypatch)
    assert {name: total[name] for name in NOTHING} == NOTHING


@pytest.mark.full
def test_a_killed_turn_leaves_no_server_and_repeats_no_call_at_full_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    total = loop(tmp_path, 50, monkeypatch)
    assert {name: total[name] for name in NOTHING} == NOTHING
