"""`massmem --job` and `massmem jobs`, as users call them: whose jobs there are, what is refused, and the record."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import call_massmem, write_team

ITEMS = json.dumps(
    {
        "items": [
            {"kind": "option", "title": "PostgreSQL", "reason": "a server"},
            {"kind": "option", "title": "SQLite", "reason": "a file"},
            {"kind": "criterion", "title": "Effort"},
        ]
    }
)
CHECK = json.dumps(
    {
        "criteria": [{"item": 3, "weight": 5}],
        "options": [
            {"item": 1, "reason": "one more server", "points": {"3": 2}},
            {"item": 2, "reason": "nothing to run", "points": {"3": 9}},
        ],
    }
)
ONE: dict[str, Any] = {"items": ITEMS, "check": CHECK, "present": "It asks for nothing."}
MEMORY = {"persistent_memory": {"session_name": None}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def write_job(folder: Path, name: str, text: str) -> None:
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    (folder / "jobs" / f"{name}.yaml").write_text(text)


def test_a_decision_its_record_and_the_question_that_finds_it_again(home: Path, project: Path) -> None:
    config = write_team(project, ONE, ONE, memory=MEMORY)
    call = ("--config", config, "--job", "decide", "Which database for the new service?")
    result = call_massmem(*call, cwd=project)
    out = result.stdout.decode()
    assert result.returncode == 0
    assert out.startswith("**Decided: SQLite**, 9.0 of 10 points; next: PostgreSQL, 2.0.\n\nIt asks for nothing.\n\n| ")
    assert "--job decide" in result.stderr.decode().splitlines()[-1]
    record = call_massmem("--output", "adr", "--no-store", *call, cwd=project).stdout.decode()
    assert yaml.safe_load(record.split("---\n")[1])["decision-makers"] == ["a", "b"]
    assert "\n# SQLite\n" in record and 'Chosen option: "SQLite"' in record
    as_json = json.loads(call_massmem("--output", "json", "--no-store", *call, cwd=project).stdout)
    assert (as_json["job"], as_json["shape"], len(as_json["items"])) == ("decide", "decide", 3)
    question = "What did we decide on the database?"
    hits = call_massmem("memory", "search", question, "--json", "--config", config, cwd=project)
    shown = [row["text"] for row in json.loads(hits.stdout)["memories"] if row["agent_id"] != "user"]
    assert shown[0].startswith("**Decided: SQLite**")


def test_a_job_of_ones_own_is_listed_shown_and_done(home: Path, project: Path) -> None:
    write_job(home / ".massmem", "tips", 'summary: "Tips\\e[31m\\nfor all"\nitems: {kinds: [tip], task: Give tips.}\n')
    write_job(project / ".massmem", "review", "summary: Our own review.\n")
    write_job(project / ".massmem", "broken", "summary: x\nitemz: {}\n")
    listed = call_massmem("jobs", "list", cwd=project)
    lines = listed.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines if line.split()[0] in ("decide", "review", "tips", "broken")] == [
        "decide", "review", "tips",
    ]  # fmt: skip
    assert any(line.endswith("  Our own review.") for line in lines) and "\x1b" not in listed.stdout.decode()
    (problem,) = listed.stderr.decode().splitlines()
    assert "broken is left out" in problem and "itemz: unknown key" in problem
    checked = call_massmem("doctor", "--offline", "--config", "@examples/scripted", cwd=project)
    assert f"1 job cannot be read\n{'':<22}{problem.removeprefix('massmem: ')}" in checked.stdout.decode()
    rows = json.loads(call_massmem("jobs", "list", "--json", cwd=project).stdout)
    assert {row["name"]: row["file"] for row in rows}["review"] == str(project / ".massmem" / "jobs" / "review.yaml")
    shown = call_massmem("jobs", "show", "review", cwd=project)
    assert shown.stdout.decode() == "summary: Our own review.\n"
    config = write_team(project, {"items": json.dumps({"items": ["Drink water"]})})
    done = call_massmem("--config", config, "--job", "tips", "--no-store", "What helps?", cwd=project)
    assert done.stdout.decode().startswith("- **1. Drink water**") and done.returncode == 0


def test_a_single_model_plays_the_roles_and_says_so(home: Path, project: Path) -> None:
    call = ("--config", write_team(project, ONE), "--job", "decide", "--no-store", "Which?")
    loud, quiet = call_massmem(*call), call_massmem("--quiet", *call)
    assert "one model plays all roles (advocate, sceptic, operator)" in loud.stderr.decode()
    assert quiet.stdout == loud.stdout and quiet.stderr == b""
    assert "9.0 of 10 points (advocate, operator, sceptic)" in loud.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--job", "decide", "--shape", "vote"), "--job and --shape exclude each other"),
        (("--output", "adr"), "only a decision has a record"),
        (("--job", "premortem", "--output", "adr"), "only a decision has a record"),
        (("--job", "decid"), "there is no job 'decid' (did you mean 'decide'?)"),
        (("--job", "broken"), "broken.yaml:1: summary: "),
    ],
)
def test_an_impossible_request_asks_nobody_and_says_why(
    arguments: tuple[str, ...], problem: str, home: Path, project: Path
) -> None:
    write_job(project / ".massmem", "broken", "summary: 5\n")
    result = call_massmem("--config", write_team(project, ONE), *arguments, "Which?", cwd=project)
    assert result.returncode == 2 and problem in result.stderr.decode() and not result.stdout
    assert "session_" not in result.stderr.decode()


def test_a_team_cannot_name_its_job(home: Path, project: Path) -> None:
    result = call_massmem("--config", write_team(project, ONE, job="decide"), "Which?", cwd=project)
    assert result.returncode == 2 and "job: unknown key (name it in the command: --job)" in result.stderr.decode()
