"""SIGKILL at random moments of an evaluation: no answer that is stored is lost, and no request is sent again, but those
whose replies were under way."""

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
Request = tuple[str, str, str]
"""An agent, its step, and the question; of the judge all that it is asked."""
JUDGE = "agents: [{id: judge, system_message: 'judge: right', backend: {type: openai, model: stub, base_url: '%s'}}]"


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


def count_repeats(runs: list[list[Request]]) -> int:
    """Return how many requests were sent again though their reply had come before the kill."""
    sent, open_at_kill, repeats = set[Request](), set[Request](), 0
    for run in runs:
        repeats += len(run) - len(set(run)) + len((sent & set(run)) - open_at_kill)
        sent |= set(run)
        open_at_kill = (open_at_kill - set(run)) | set(run[-AT_ONCE * len(AGENTS) :])
    return repeats


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.full)])
def test_a_killed_evaluation_goes_on_where_it_was(tmp_path: Path, home: Path, times: int) -> None:
    count = 2 + 2 * times
    data, config, judge = tmp_path / "questions.jsonl", tmp_path / "team.yaml", tmp_path / "judge.yaml"
    rows = [{"id": f"q{n}", "question": f"Question number {n}?", "answer": "answer of ann"} for n in range(count)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    total, runs, states = Counter[str](), list[list[Request]](), set[int]()
    with council_server() as council:
        config.write_text(council.config(AGENTS) + "coordination: {presentation: as_is}\n")
        judge.write_text(JUDGE % council.url)
        arguments = [str(data), "--config", str(config), "--scorer", "judge", "--judge", str(judge), "--output", "json"]
        arguments += ["--calibrate", "--concurrency", str(AT_ONCE)]
        for number in range(times):
            council.requests.clear()
            # A question takes four requests and two of the judge: from the first one until a few are answered.
            asked = 1 + int((number + random.random()) * 20 / times)
            total.update(kill_once(arguments, home, council, asked))
            runs.append(list_requests(council))
            states.add(len(read_results(home)))
        stored = read_results(home)
        council.requests.clear()
        ran = massmem("eval", *arguments)
        assert ran.returncode == 0, ran.stderr
        runs.append(list_requests(council))
        after = read_results(home)
        total["lost"] += sum(after.get(key) != line for key, line in stored.items())
        total["ghost"] += len(after) - 2 * count
        (calibration,) = (home / ".massmem" / "eval" / "calibrations").glob("*.json")
        total["ghost"] += sum(one["asked"] for one in json.loads(calibration.read_bytes())["outcomes"]) - count
        (team,) = json.loads(ran.stdout)["teams"]
        total["lie"] += (team["accuracy"]["count"], team["accuracy"]["total"]) != (count, count)
        total["paid twice"] += count_repeats(runs)
        total["left"] += sum(1 for _ in (home / ".massmem" / "eval").glob("*.jsonl.*-*"))
    check(f"eval, {times} kills", total, "paid twice", "left")
    assert len(states) > 1


def list_requests(council: CouncilServer) -> list[Request]:
    requests: list[Request] = []
    for request in council.requests:
        lines = {line for m in request.messages for line in m["content"].splitlines()}
        (question,) = {line for line in lines if "Question number" in line}
        is_judge = request.agent not in AGENTS
        requests.append((request.agent, request.step, request.messages[-1]["content"] if is_judge else question))
    return requests
