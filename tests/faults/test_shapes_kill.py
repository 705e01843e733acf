"""SIGKILL at every step of a union, a decision, a draft: the next run finishes it, and asks nobody twice."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import AnswerSubmitted, Event, ItemsGiven, ItemsMerged, TurnCompleted
from tests.faults.test_turn_kill import kill_in_mid_turn, read_log
from tests.support.cli import massmem
from tests.support.verdict import check

LINES = {"union": 22, "revise": 30, "decide": 22}
"""Events that are printed before the turn is nearly over."""


def make_team(shape: str) -> str:
    """Return a configuration whose agents reply the same in each process."""

    def items(*titles: str) -> str:
        criterion = [{"title": "Price", "kind": "criterion"}] if shape == "decide" else []
        return json.dumps({"items": [*({"title": title, "kind": "option"} for title in titles), *criterion]})

    checks: list[dict[str, Any]] = [{"item": n, "stand": "confirm", "reason": f"{n} is right"} for n in range(1, 9)]
    judge = json.dumps({"checks": checks, "text": "A better draft."})
    if shape == "decide":
        points = {str(number): 5 for number in range(1, 9)}
        weights = [{"item": number, "weight": 3} for number in range(1, 9)]
        scores = [{"item": number, "reason": "as it is", "points": points} for number in range(1, 9)]
        judge = json.dumps({"criteria": weights, "options": scores})
    agents = [
        {"id": name, "backend": {"type": "scripted", "script": {
            "latency": 0.02, "answer": "A draft.", "items": items(f"Only {name} sees it", "All see the same thing"),
            "check": judge, "present": "In short.",
        }}}
        for name in ("ann", "ben", "cyd")
    ]  # fmt: skip
    return json.dumps({"agents": agents, "coordination": {"shape": shape}})


def list_steps(events: list[Event]) -> list[tuple[str, int]]:
    return [(e.agent_id, e.round) for e in events if isinstance(e, AnswerSubmitted | ItemsGiven)]


@pytest.mark.parametrize("shape", [*LINES])
@pytest.mark.parametrize("times", [4, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_turn_is_finished_and_nobody_is_asked_twice(
    tmp_path: Path, shape: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, total, expected = tmp_path / "team.yaml", Counter[str](), ""
    config.write_text(make_team(shape))
    for number in range(-1, times):  # the first one is left alone
        home = tmp_path / f"home{number}"
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        if number < 0:
            expected = massmem("--config", str(config), "why?", timeout=60, text=True).stdout
            steps = sorted(list_steps(read_log(home)))
            continue
        kill_in_mid_turn(config, 1 + int((number + random.random()) * LINES[shape] / times))
        before = read_log(home)
        if not before or any(isinstance(event, TurnCompleted) for event in before):
            continue
        session_id = json.loads(before[0].model_dump_json())["session_id"]
        result = massmem("--config", str(config), "--session-id", session_id, timeout=60, text=True)
        after = read_log(home)
        total["resumed"] += 1
        total["lost"] += sum(event not in after for event in before)
        total["asked again"] += sorted(list_steps(after)) != steps
        total["merged again"] += len([e for e in after if isinstance(e, ItemsMerged)]) != (
            2 if shape == "revise" else 1
        )
        total["another answer"] += result.stdout != expected
    check(f"{shape}, {times} kills", total, "lost", "asked again", "merged again", "another answer")
    assert total["resumed"] > 0
