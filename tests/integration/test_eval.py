"""`massmem eval`: teams on questions with known answers, stopped and continued, and what it refuses."""

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import call_massmem
from tests.support.forked import ForkedMassmem

QUESTIONS = [{"id": f"q{n}", "question": f"What is {n} + 0?", "answer": str(n)} for n in range(6)]


def write_questions(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or QUESTIONS))
    return str(path)


def write_team(folder: Path, name: str, *answers: str, votes: str = "", **script: Any) -> str:
    """Write a team whose agents answer so. votes: a text of the answer that all vote for."""
    vote = {"vote": [{"vote_for": votes, "reason": "clear"}]} if votes else {}
    agents = [
        {"id": f"agent_{n}", "backend": {"type": "scripted", "script": {"answer": answer, **vote, **script}}}
        for n, answer in enumerate(answers)
    ]
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"agents": agents, "coordination": {"presentation": "as_is"}}))
    return str(path)


def evaluate(*arguments: str) -> Any:
    ran = call_massmem("eval", *arguments, "--output", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def count_results(home: Path) -> int:
    files = list((home / ".massmem" / "eval").glob("*.jsonl"))
    return sum(len(path.read_bytes().splitlines()) for path in files)


def test_calibration_counts_what_the_team_did_and_belongs_to_it_alone(tmp_path: Path, home: Path):
    # Of 60 questions both agents are right on 45, on 10 one alone, on 5 both say the same wrong number.
    values = [(n, n) if n < 45 else (n, -n) if n < 55 else (-1, -1) for n in range(60)]
    data = write_questions(tmp_path, *({"question": f"What is {n} + 0?", "answer": n} for n in range(60)))
    scripts = (
        [{"text": f"Answer: {value}", "needs": f"is {n} +"} for n, value in enumerate(answers)]
        for answers in zip(*values, strict=True)
    )
    agents = [
        {"id": f"agent_{n}", "backend": {"type": "scripted", "script": {"answer": answer, "vote": {"vote_for": ": -"}}}}
        for n, answer in enumerate(scripts)
    ]
    team, arguments = tmp_path / "team.yaml", ["--calibrate", "--concurrency", "1"]

    def configure(**changes: Any) -> str:
        coordination = {"presentation": "as_is", "max_rounds": 2, "depth": "adaptive", "max_error": 0.1} | changes
        team.write_text(json.dumps({"agents": agents, "coordination": coordination}))
        return str(team)

    report = evaluate(data, "--config", configure(), *arguments)
    assert (report["teams"][0]["accuracy"]["count"], report["teams"][0]["coverage"]) == (45, None)
    (file,) = (home / ".massmem" / "eval" / "calibrations").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    counted = json.loads(file.read_bytes())
    rows = {(*one["full"]["behind"], one["full"]["voted"]): (one["asked"], one["right"]) for one in counted["outcomes"]}
    assert rows == {("agent_0", "agent_1", False): (50, 45), ("agent_0", "agent_1", True): (10, 0)}
    assert [one["right"] for one in counted["members"].values()] == [55, 45]
    evaluate(data, "--config", str(team), *arguments)
    assert json.loads(file.read_bytes()) | {"created_at": 0} == counted | {"created_at": 0}
    assert count_results(home) == 60

    shown = call_massmem("eval", "calibration", "--config", configure(max_error=0.3, timeout=9))
    assert b"2 behind (number)" in shown.stdout and b"45/60" in shown.stdout
    listed = json.loads(call_massmem("eval", "calibration", "--output", "json").stdout)
    assert [(one["fingerprint"], len(one["promises"])) for one in listed] == [(file.stem, 6)]
    other = call_massmem("eval", "calibration", "--config", configure(max_rounds=3))
    assert (other.returncode, other.stdout) == (2, b"")
    assert b"--calibrate" in other.stderr
    # What answers such as these are worth decides which are given, on other questions too.
    again = write_questions(tmp_path, *({"question": f"Now: what is {n} + 0?", "answer": n} for n in range(60)))
    held_back = evaluate(again, "--config", configure(), "--concurrency", "1")["teams"][0]
    assert (held_back["accuracy"]["count"], held_back["coverage"]["count"], held_back["selective"]["count"]) == (
        45,
        0,
        0,
    )
    file.write_bytes(b"{}")
    broken = call_massmem("eval", "calibration")
    assert (broken.returncode, broken.stdout) == (2, b"")
    assert b"is no calibration" in broken.stderr
    file.unlink()
    shutil.rmtree(file.parent)
    file.parent.touch()
    refused = call_massmem("eval", str(data), "--config", configure(), *arguments)
    assert (refused.returncode, b"team is not calibrated" in refused.stderr) == (2, True)


def test_two_teams_are_compared_on_the_same_questions(tmp_path: Path, home: Path):
    data = write_questions(tmp_path)
    council = write_team(tmp_path, "council", "It is 3.", "It is 4.", votes="It is 4")
    single = write_team(tmp_path, "single", "It is 5.")
    report = evaluate(data, "--config", council, "--config", single)
    assert [(team["name"], team["accuracy"]["count"]) for team in report["teams"]] == [("council", 1), ("single", 1)]
    (difference,) = report["comparisons"]
    assert (difference["only_first"], difference["only_second"], difference["p"]) == (1, 1, 1.0)
    figures = report["teams"][0]["council"]
    assert (figures["oracle"]["count"], figures["agreement"]) == (2, 0.0)
    assert (figures["chosen"]["count"], figures["chosen"]["total"]) == (1, 2)
    assert report["teams"][1]["council"] is None
    assert count_results(home) == 12
    evaluate(data, "--config", council, "--config", single)
    (file,) = (home / ".massmem" / "eval" / "reports").glob("*.json")  # the same evaluation has one report
    assert file.stat().st_mode & 0o777 == 0o600
    saved = json.loads(file.read_bytes())
    assert (saved["data"], saved["seed"]) == ("questions.jsonl", 0)
    assert {key: saved[key] for key in report} == report
    evaluate(data, "--config", council)
    assert len(list(file.parent.glob("*.json"))) == 2


def test_figures_are_shown_though_the_report_cannot_be_kept(tmp_path: Path, home: Path):
    data, team = write_questions(tmp_path), write_team(tmp_path, "single", "It is 4.")
    (home / ".massmem" / "eval").mkdir(parents=True)
    (home / ".massmem" / "eval" / "reports").write_text("a file where a folder should be")
    ran = call_massmem("eval", data, "--config", team, "--output", "json")
    assert json.loads(ran.stdout)["teams"][0]["accuracy"]["total"] == 6
    assert ran.returncode == 0
    assert b"massmem: the page will not show this report: " in ran.stderr


def test_equal_budget_adds_each_agent_and_a_majority(tmp_path: Path):
    council = write_team(tmp_path, "council", "It is 3.", "It is 4.", votes="It is 4")
    report = evaluate(write_questions(tmp_path), "--config", council, "--equal-budget")
    team, first, second, majority = report["teams"]
    assert [first["name"], second["name"]] == ["council: agent_0 alone", "council: agent_1 alone"]
    assert re.fullmatch(r"council: agent_\d alone, majority of \d+\.\d", majority["name"])
    spent = majority["per_question"]["tokens"]
    assert team["per_question"]["tokens"] / 2 < spent <= team["per_question"]["tokens"]
    assert majority["accuracy"]["count"] == first["accuracy"]["count"] == 1


def test_nothing_is_asked_twice(tmp_path: Path, home: Path):
    data, team = write_questions(tmp_path), write_team(tmp_path, "team", "It is 3.")
    first = evaluate(data, "--config", team)
    assert evaluate(data, "--config", team) == first  # also the seconds: they are those of the first run
    assert count_results(home) == 6
    evaluate(data, "--config", team, "--seed", "1")
    assert count_results(home) == 12
    write_team(tmp_path, "team", "It is 4.")
    evaluate(data, "--config", team)
    assert count_results(home) == 18


def test_evaluation_goes_on_after_a_kill(tmp_path: Path, home: Path):
    data = write_questions(tmp_path, *QUESTIONS, *({"question": f"And {n}?", "answer": "1"} for n in range(20)))
    team = write_team(tmp_path, "team", "It is 3.", latency=0.3)
    arguments = ["eval", data, "--config", team, "--concurrency", "2"]
    process = ForkedMassmem(*arguments)
    deadline = time.monotonic() + 30
    while count_results(home) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    answered = count_results(home)
    assert 3 <= answered < 26
    ran = call_massmem(*arguments, "--concurrency", "16", "--output", "jsonl")
    assert ran.returncode == 0
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(rows) == count_results(home) == 26
    assert [row["id"] for row in rows if row["right"]] == ["q3"]


def test_interrupt_says_how_to_go_on(tmp_path: Path, home: Path):
    team = write_team(tmp_path, "team", "It is 3.", latency=1)
    err = tmp_path / "err"
    process = ForkedMassmem("eval", write_questions(tmp_path), "--config", team, "--concurrency", "1", err=err)
    deadline = time.monotonic() + 30
    while count_results(home) < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(2)
    process.finish()
    assert process.exit_code == 130
    assert "the same command goes on" in err.read_text()
    assert "Traceback" not in err.read_text()


def test_failed_questions_are_asked_again(tmp_path: Path, home: Path):
    data, team = write_questions(tmp_path, *QUESTIONS[:2]), write_team(tmp_path, "team", "x")
    write_team(tmp_path, "team", *[{"error": "auth"}])  # type: ignore[list-item]
    ran = call_massmem("eval", data, "--config", team)
    assert b"did not answer 2 of 2 questions" in ran.stdout
    assert count_results(home) == 0


def test_team_that_fails_again_and_again_is_given_up(tmp_path: Path):
    team = write_team(tmp_path, "team", *[{"error": "auth"}])  # type: ignore[list-item]
    ran = call_massmem("eval", write_questions(tmp_path), "--config", team)
    assert ran.returncode == 1
    assert b"team failed 5 times in a row" in ran.stderr


def test_judge_says_what_no_rule_can(tmp_path: Path, home: Path):
    data = write_questions(tmp_path, {"question": "Why?", "answer": "Because.", "check": "judge"})
    team = write_team(tmp_path, "team", "For that reason.")
    for word, count in (("RIGHT", 1), ("I would say WRONG", 0)):
        judge = write_team(tmp_path, "judge", word)
        report = evaluate(data, "--config", team, "--judge", judge)
        assert report["teams"][0]["accuracy"]["count"] == count
        assert report["judging"]["requests"] == 2  # in two orders
    assert evaluate(data, "--config", team, "--judge", judge)["judging"]["requests"] == 0


def test_answer_without_a_verdict_is_not_graded_and_strict_says_so(tmp_path: Path, home: Path):
    data = write_questions(tmp_path, {"question": "Why?", "answer": "Because.", "check": "judge"})
    team, judge = write_team(tmp_path, "team", "For that reason."), write_team(tmp_path, "judge", "Right or wrong?")
    command = ("eval", data, "--config", team, "--judge", judge, "--output", "json")
    report = json.loads(call_massmem(*command).stdout)
    assert (report["teams"][0]["ungraded"], report["teams"][0]["accuracy"]["total"]) == (1, 0)
    assert report["judging"]["requests"] == 4  # both orders, twice
    ran = call_massmem(*command, "--strict")
    assert ran.returncode == 1
    assert b"0 not answered, 1 not graded" in ran.stderr


def test_cost_is_limited_and_the_next_run_goes_on(tmp_path: Path, home: Path):
    data, path = write_questions(tmp_path), tmp_path / "priced.yaml"
    backend = {"type": "scripted", "script": {"answer": "It is 3."}, "price": {"input": 1_000_000, "output": 0}}
    path.write_text(json.dumps({"agents": [{"id": "a", "backend": backend}]}))
    ran = call_massmem("eval", data, "--config", str(path), "--max-cost", "50", "--concurrency", "1")
    assert ran.returncode == 4
    assert b"the most it may: 50" in ran.stderr
    asked = count_results(home)
    assert 0 < asked < 6
    ran = call_massmem("eval", data, "--config", str(path), "--output", "json")
    assert (ran.returncode, count_results(home)) == (0, 6)


def test_share_below_the_bound_fails(tmp_path: Path):
    data, team = write_questions(tmp_path), write_team(tmp_path, "team", "It is 3.")
    ran = call_massmem("eval", data, "--config", team, "--fail-under", "0.5")
    assert ran.returncode == 1
    assert b"below --fail-under 0.5" in ran.stderr
    assert call_massmem("eval", data, "--config", team, "--fail-under", "0.1").returncode == 0


def test_page_has_its_plots_and_the_rows_of_the_text_and_quotes_names(tmp_path: Path):
    team = write_team(tmp_path, "a & b", "It is 3.", "It is 4.", votes="It is 3")
    ran = call_massmem("eval", write_questions(tmp_path), "--config", team, "--output", "html")
    page = ran.stdout.decode()
    assert page.count("<svg") == 2  # accuracy, calibration
    assert "a &amp; b" in page
    assert "<td>  agent_1 alone<td>17 % (3 to 56)" in page
    assert "<script" not in page
    text = call_massmem("eval", str(tmp_path / "questions.jsonl"), "--config", team).stdout.decode()
    assert re.search(r"^  agent_1 alone +17 % \(3 to 56\)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "there is no file missing.jsonl"),
        (["questions.jsonl", "--limit", "1", "--sample", "1"], "--limit and --sample exclude each other"),
        (["questions.jsonl", "--config", "missing.yaml"], "missing.yaml"),
        (["judged.jsonl"], "none is named"),
        (["questions.jsonl", "--results", "questions.jsonl"], "is no result of an evaluation"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
):
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path)
    (tmp_path / "judged.jsonl").write_text('{"question": "Why?", "answer": "So.", "check": "judge"}\n')
    team = write_team(tmp_path, "team", "It is 3.")
    named = arguments if "--config" in arguments else [*arguments, "--config", team]
    ran = call_massmem("eval", *named)
    assert ran.returncode == 2
    assert message in ran.stderr.decode()
    assert count_results(home) == 0


TASK = {
    "question": "What is wrong with login.py?",
    "items": [{"title": "SQL injection through the name", "place": "login.py:13"}, "the session never ends"],
    "rubric": [{"text": "names the injection", "weight": 3}, {"text": "is short"}],
    "must_mention": ["injection"],
}


def grade_in_both_orders(first: str, second: str) -> list[dict[str, str]]:
    """Return the replies of a judge: to the rubric in its own order, then in the other one alone."""
    again = [] if first.startswith("{") else [{"text": first}]  # what cannot be read is asked for once more
    return [{"text": first}, *again, {"text": second, "needs": "1. <given>\nis short"}, {"text": "?"}]


@pytest.mark.parametrize(
    ("first", "second", "met", "ungraded", "score"),
    [
        ("[true, false]", "[false, true]", [True, False], 0, 4 / 5),
        ("[true, false]", "[true, true]", [True, None], 1, 4 / 4),
        ("[true, true]", "WRONG", [None, None], 2, 1 / 1),
        ("I cannot help with that.", "[true, true]", [None, None], 2, 1 / 1),
    ],
)
def test_criteria_are_graded_in_both_orders(
    tmp_path: Path, home: Path, first: str, second: str, met: list[bool | None], ungraded: int, score: float
):
    replies = [
        json.dumps({"criteria": [{"item": n, "met": value} for n, value in enumerate(json.loads(one), 1)]})
        if one.startswith("[")
        else one
        for one in (first, second)
    ]
    judge = tmp_path / "judge.yaml"
    script = {"answer": grade_in_both_orders(*replies)}
    judge.write_text(json.dumps({"agents": [{"id": "judge", "backend": {"type": "scripted", "script": script}}]}))
    command = (write_questions(tmp_path, TASK), "--config", "@examples/union", "--judge", str(judge))
    report = evaluate(*command)
    did = report["teams"][0]["open"]
    assert (did["ungraded"], did["score"], report["teams"][0]["ungraded"]) == (ungraded, score, ungraded)
    assert {name: (one["precision"]["total"], one["recall"]["count"]) for name, one in did["items"].items()} == {
        "all": (3, 1),
        "uncontested": (2, 1),
    }
    row = json.loads(call_massmem("eval", *command, "--output", "jsonl").stdout)
    assert [one["met"] for one in row["task"]["criteria"]] == [True, *met]
    assert evaluate(*command)["judging"]["requests"] == (0 if ungraded < 2 else 3)
    below = call_massmem("eval", *command, "--quiet", "--fail-under", "0.6")
    assert (below.returncode, b"below --fail-under 0.6" in below.stderr) == (1, True)
    assert b"items: uncontested" in below.stdout
    assert call_massmem("eval", *command, "--quiet", "--strict").returncode == bool(ungraded)
    assert b"items: uncontested" in call_massmem("eval", *command, "--quiet", "--output", "html").stdout


def test_team_does_the_job(tmp_path: Path, home: Path):
    data = write_questions(tmp_path, {"question": "What is wrong?", "items": ["it leaks"]})
    team = write_team(tmp_path, "team", "Nothing.", items='{"items": [{"title": "It leaks"}]}')
    refused = call_massmem("eval", data, "--config", team)
    assert (refused.returncode, b"team lists no items" in refused.stderr) == (2, True)
    did = evaluate(data, "--config", team, "--job", "premortem")["teams"][0]["open"]
    assert did["items"]["all"]["f1"]["value"] == 1
