"""Many processes start at once without a home: each creates what is missing, or waits for another one."""

import json
from pathlib import Path

import pytest

from tests.support.cli import call_massmem, script, write_team
from tests.support.forked import ForkedMassmem
from tests.support.verdict import check


@pytest.mark.parametrize("processes", [8, pytest.param(32, marks=pytest.mark.full)])
def test_many_processes_create_the_home_at_once(home: Path, tmp_path: Path, processes: int) -> None:
    team = write_team(tmp_path, script("an answer"), memory={"persistent_memory": {"embedding": {"model": "none"}}})
    assert not (home / ".massmem").exists()
    children = [
        ForkedMassmem("--config", team, "--output", "json", f"Question {number}?") for number in range(processes)
    ]
    answers = {number: json.loads(_read_answer(child)) for number, child in enumerate(children)}
    assert all(answer["answer"] == "an answer" for answer in answers.values())
    ids = [answer["session_id"] for answer in answers.values()]
    listed = json.loads(call_massmem("--list-sessions", "--json").stdout)
    names = [entry["session_id"] for entry in listed]
    rows = json.loads(call_massmem("sessions", "list", "--limit", "0", "--json", "--config", team).stdout)
    titles = {row["session_id"]: row["title"] for row in rows["sessions"]}
    counts = {
        "lost": len(set(ids) - titles.keys()) + len(set(ids) - set(names)),
        "ghost": len(titles.keys() - set(ids)) + len(names) - len(set(names)) + len(ids) - len(set(ids)),
        "leak": sum(titles.get(answer["session_id"]) != f"Question {number}?" for number, answer in answers.items()),
        "lie": sum(row["turns"] != 1 or row["status"] != "completed" for row in rows["sessions"]),
    }
    check(f"{processes} processes on a new home", counts)


def _read_answer(child: ForkedMassmem) -> bytes:
    answer = b"".join(child.finish())
    assert child.exit_code == 0
    return answer
