"""Many processes that find no home at all and ask at once: each makes what is missing, or waits for who does."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import massmem, script, start, write_team
from tests.support.verdict import check


@pytest.mark.parametrize("processes", [8, pytest.param(32, marks=pytest.mark.full)])
def test_a_crowd_on_a_home_that_is_not_there(home: Path, tmp_path: Path, processes: int) -> None:
    team = write_team(tmp_path, script("an answer"), memory={"persistent_memory": {"embedding": {"model": "none"}}})
    assert not (home / ".massmem").exists()
    crowd = [start("--config", team, "--output", "json", f"Question {number}?") for number in range(processes)]
    told = {number: json.loads(_answer(child)) for number, child in enumerate(crowd)}
    assert all(each["answer"] == "an answer" for each in told.values())
    ids = [each["session_id"] for each in told.values()]
    listed = json.loads(massmem("--list-sessions", "--json", timeout=60).stdout)
    names = [each["session_id"] for each in listed]
    rows = json.loads(massmem("sessions", "list", "--limit", "0", "--json", "--config", team, timeout=60).stdout)
    titles = {each["session_id"]: each["title"] for each in rows["sessions"]}
    counts = {
        "lost": len(set(ids) - titles.keys()) + len(set(ids) - set(names)),
        "ghost": len(titles.keys() - set(ids)) + len(names) - len(set(names)) + len(ids) - len(set(ids)),
        "leak": sum(titles.get(each["session_id"]) != f"Question {number}?" for number, each in told.items()),
        "lie": sum(each["turns"] != 1 or each["status"] != "completed" for each in rows["sessions"]),
    }
    check(f"{processes} processes on a new home", counts)


def _answer(child: "subprocess.Popen[bytes]") -> bytes:
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err.decode()
    return out
