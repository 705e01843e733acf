"""SIGKILL in a turn with tools: no server is left, and no call is made again whose result is in the log.

Short work fits into the window; in long work, results are left out of it, summarised, and read again.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import Event, ToolCalled, ToolReturned, TurnCompleted, decode_event
from tests.faults.test_waiting_kill import read_log
from tests.support.cli import massmem
from tests.support.forked import ForkedMassmem
from tests.support.tools import calls, list_servers_left, server, team_data

NOTHING = dict.fromkeys(("server left", "called again", "lost", "lie", "unanswered"), 0)

STEPS = [
    {"call": {"tool": "slow", "arguments": {"seconds": 0.2, "text": "one"}}},
    {"call": [{"tool": "slow", "arguments": {"seconds": 0.2, "text": f"two {n}"}} for n in range(2)]},
    {"call": {"tool": "slow", "arguments": {"seconds": 0.2, "text": "three"}}},
]


LONG = [
    step
    for n in range(4)
    for step in (
        {"call": {"tool": "huge", "arguments": {"characters": 24_000, "text": f"part {n}"}}},
        {"call": {"tool": "read_earlier", "arguments": {"message": 1, "part": n + 1}}},
    )
]
WINDOW = 6_000


def write(folder: Path, log: Path, done: int, steps: Sequence[dict[str, Any]]) -> str:
    """The team, whose model has made so many of its calls: a script does not know what an earlier run of it said."""
    path = folder / "team.json"
    window = {"context_window": WINDOW} if steps is LONG else {}
    data = team_data({"answer": [*steps[done:], "the end: {result}"], "latency": 0.02, **window}, server(log))
    data["agents"][0]["backend"] |= window
    path.write_text(json.dumps(data))
    return str(path)


def run_and_kill(config: str, lines: int, *arguments: str) -> list[Event]:
    """Run, kill after so many events, and return those that were shown."""
    child = ForkedMassmem("--config", config, "--output", "jsonl", *arguments)
    shown = [line for _, line in zip(range(lines), child.stdout, strict=False)]
    time.sleep(random.random() * 0.2)
    shown += child.kill()
    return [decode_event(line) for line in shown if line.endswith(b"\n")]


def one(folder: Path, steps: Sequence[dict[str, Any]]) -> Counter[str]:
    counts, log = Counter(kills=1), folder / "calls"
    shown = run_and_kill(write(folder, log, 0, steps), random.randint(4, 4 + 3 * len(steps)), "why?")
    counts["server left"] += len(list_servers_left(folder, 6))
    session = next((e.session_id for e in shown if e.type == "turn_started"), "")
    if not session:
        return counts
    before = read_log(folder / "home")
    counts["lost"] += sum(event not in before for event in shown)
    if not any(isinstance(e, TurnCompleted) for e in before):
        done = len({e.batch for e in before if isinstance(e, ToolCalled)})
        massmem("--config", write(folder, log, done, steps), "--session-id", session, timeout=60)
    after = read_log(folder / "home")
    counts["unanswered"] += not any(isinstance(e, TurnCompleted) for e in after)
    returned = [e.call_id for e in after if isinstance(e, ToolReturned)]
    called = [e.call_id for e in after if isinstance(e, ToolCalled)]
    counts["lost"] += len(set(called) ^ set(returned))
    counts["called again"] += len(returned) - len(set(returned))
    made = Counter(call["text"] for call in calls(log) if call["tool"] in ("slow", "huge"))
    counts["summaries"] += sum(e.type == "context_compressed" for e in after)
    counts["lost"] += any(e.type == "turn_completed" and "the end: " not in e.answer for e in after)
    contents = {e.call_id: e.content for e in after if isinstance(e, ToolReturned)}
    read = [e for e in after if isinstance(e, ToolCalled) and e.name == "read_earlier"]
    counts["read again"] += len(read)
    counts["lie"] += sum("000000" not in contents.get(e.call_id, "000000") for e in read)  # digits of the result
    counts["called again"] += sum(number - 1 for number in made.values())
    return counts


@pytest.mark.parametrize("steps", [STEPS, LONG], ids=["short", "long"])
@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_turn_leaves_no_server_and_repeats_no_call(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch, steps: Sequence[dict[str, Any]]
) -> None:
    total: Counter[str] = Counter(NOTHING)
    for number in range(times):
        place = tmp_path / str(number)
        (place / "home").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(place / "home"))
        total.update(one(place, steps))
    print(dict(total))
    assert {name: total[name] for name in NOTHING} == NOTHING
    assert steps is STEPS or total["read again"] > 0
    assert steps is STEPS or times == 3 or total["summaries"] > 0


def test_reading_that_a_kill_cut_off_is_done_again(tmp_path: Path, home: Path):
    log = tmp_path / "calls"
    child = ForkedMassmem("--config", write(tmp_path, log, 0, LONG), "--output", "jsonl", "why?")
    for line in child.stdout:
        if b'"tool_called"' in line and b'"read_earlier"' in line:
            break
    child.kill()
    before = read_log(home)
    call = next(e for e in before if isinstance(e, ToolCalled) and e.name == "read_earlier")
    config = write(tmp_path, log, call.batch, LONG)
    session = next(e.session_id for e in before if e.type == "turn_started")
    assert massmem("--config", config, "--session-id", session, timeout=60).returncode == 0
    results = [e.content for e in read_log(home) if isinstance(e, ToolReturned) and e.call_id == call.call_id]
    assert [text.split("\n")[1] for text in results] == ["000000000"]
