"""SIGKILL at random moments of an evaluation: no answer that is stored is lost, or paid for again."""

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.cli import massmem
from tests.support.council_server import CouncilServer, council_server
from tests.support.forked import ForkedMassmem
from tests.support.verdict import check

AGENTS, AT_ONCE = ("ann", "ben"), 2


def read_results(home: Path) -> dict[str, bytes]:
    """Return the stored lines by question and what each is about."""
    files = [*(home / ".massmem" / "eval").glob("*.jsonl")]
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    rows = {f"{row['kind']} {row.get('item') or row['key']}": line for line in lines for row in [json.loads(line)]}
    assert len(rows) == len(lines), "a result is there twice"
    return rows


def kill_once(arguments: list[str], home: Path, council: CouncilServer, asked: int) -> Counter[str]:
    """asked: requests of this run before the kill."""
    before = read_results(home)
    child = ForkedMassmem("eval", *arguments)
    deadline = time.monotonic() + 60
    while len(council.requests) < asked and child.is_alive and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(random.random() * 0.1)
    child.kill()
    after = read_results(home)
    counts = Counter(kills=1, lost=sum(after.get(key) != line for key, line in before.items()))
    counts["torn"] = sum(not file.read_bytes().endswith(b"\n") for file in (home / ".massmem" / "eval").glob("*.jsonl"))
    return counts


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.full)])
def test_a_killed_evaluation_goes_on_where_it_was(tmp_path: Path, home: Path, times: int) -> None:
    count = 8 + 4 * times
    data, config = tmp_path / "questions.jsonl", tmp_path / "team.yaml"
    rows = [{"id": f"q{n}", "question": f"Question number {n}?", "answer": "answer of ann"} for n in range(count)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    total, runs, states = Counter[str](), list[set[str]](), set[int]()
    with council_server() as council:
        config.write_text(council.config(AGENTS) + "coordination: {presentation: as_is}\n")
        arguments = [str(data), "--config", str(config), "--scorer", "contains", "--output", "json", "--calibrate"]
        arguments += ["--concurrency", str(AT_ONCE)]
        for number in range(times):
            council.requests.clear()
            # A question takes four requests: from the first one until a few questions are answered.
            asked = 1 + int((number + random.random()) * 20 / times)
            total.update(kill_once(arguments, home, council, asked))
            runs.append(list_questions(council))
            states.add(len(read_results(home)))
        stored = read_results(home)
        council.requests.clear()
        ran = massmem("eval", *arguments)
        assert ran.returncode == 0, ran.stderr
        runs.append(list_questions(council))
        after = read_results(home)
        total["lost"] += sum(after.get(key) != line for key, line in stored.items())
        total["ghost"] += len(after) - count
        (calibration,) = (home / ".massmem" / "eval" / "calibrations").iterdir()
        total["ghost"] += sum(one["asked"] for one in json.loads(calibration.read_bytes())["outcomes"]) - count
        (team,) = json.loads(ran.stdout)["teams"]
        total["lie"] += (team["accuracy"]["count"], team["accuracy"]["total"]) != (count, count)
    # A kill costs the questions that were under way: an evaluation has no sessions that go on.
    total["paid twice"] += max(0, sum(map(len, runs)) - count - AT_ONCE * times)
    check(f"eval, {times} kills", total, "paid twice")
    assert len(states) > 1


def list_questions(council: CouncilServer) -> set[str]:
    lines = {line for request in council.requests for m in request.messages for line in m["content"].splitlines()}
    return {line for line in lines if line.startswith("Question number")}
