"""SIGKILL while the memories are made again: `memory record` then makes the rest, and what was forgotten stays so."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import massmem
from tests.support.forked import ForkedMassmem
from tests.support.recorded_sessions import TEAM, record_sessions
from tests.support.verdict import check

TURNS = 60
FORGOTTEN = "Kite 7 of session_a nests in an oak."
LONGEST = 0.5
"""Seconds after its start in which the command is killed; adapted to how long it takes here."""


@pytest.fixture
def memories(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is remembered of two sessions, of which one message was forgotten."""
    monkeypatch.chdir(tmp_path)
    record_sessions(home, {name: _talk(name) for name in ("session_a", "session_b")})
    (forgotten,) = (memory["id"] for memory in list_memories() if memory["text"] == FORGOTTEN)
    run("forget", forgotten, "--yes")
    return count_memories()


def _talk(name: str) -> list[tuple[str, str, str]]:
    return [(f"Kite {n} of {name} nests in an oak.", f"Noted: {n}.", f"Answer {n}.") for n in range(TURNS)]


def run(*arguments: str) -> bytes:
    result = massmem("memory", *arguments, *TEAM)
    assert result.returncode == 0, result.stderr
    return result.stdout


def list_memories() -> list[dict[str, Any]]:
    return json.loads(run("list", "--limit", "1000", "--json"))["memories"]


def count_memories() -> Counter[str]:
    """Return how often each memory is there, whatever its id and the time it was recorded."""
    fields = ("text", "agent_id", "session_id", "turn", "origin", "winner", "message_ids")
    return Counter(json.dumps({name: memory.get(name) for name in fields}) for memory in list_memories())


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.full)])
def test_rebuild_that_was_killed_is_finished_by_recording(memories: Counter[str], kills: int):
    assert len(memories) > 2 * TURNS
    counts: Counter[str] = Counter()
    longest = LONGEST
    for round_ in range(kills):
        child = ForkedMassmem("memory", "rebuild", *TEAM)
        time.sleep(random.Random(round_).uniform(0, longest))
        child.kill()
        is_whole = child.exit_code != -signal.SIGKILL
        longest *= 0.8 if is_whole else 1.1
        counts["whole"] += is_whole
        run("record")
        after = count_memories()
        counts["lost"] += (memories - after).total()
        counts["ghost"] += (after - memories).total()
        counts["lie"] += sum(FORGOTTEN in text for text in after)
    check(f"rebuild, {kills} kills", counts)
