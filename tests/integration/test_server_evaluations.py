"""`/api/v1/evaluations` at real services: what `massmem eval` has left, for whoever runs the service alone."""

import json
from pathlib import Path

import requests

from tests.support.cli import massmem
from tests.support.page import StartPage
from tests.support.service import StartService, make_agent, make_config

PATH = "/api/v1/evaluations"


def evaluate(folder: Path) -> None:
    """Let a team answer two questions, one of them rightly."""
    data = folder / "questions.jsonl"
    rows = [{"id": str(n), "question": f"What is {n} + 0?", "answer": str(n)} for n in (3, 4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    team = folder / "council.yaml"
    team.write_text(json.dumps({"agents": [make_agent("ann", "It is 3."), make_agent("ben", "It is 5.")]}))
    ran = massmem("eval", str(data), "--config", str(team), "--quiet")
    assert ran.returncode == 0, ran.stderr


def test_reports_are_shown_to_admins_alone(start_service: StartService, tmp_path: Path) -> None:
    service = start_service(make_config())
    assert service.client("root", "admin").get(PATH).json() == {"reports": []}
    evaluate(tmp_path)
    (service.home / ".massmem" / "eval" / "reports" / "half.json").write_text('{"data": "x"')
    (report,) = service.client("root", "admin").get(PATH).json()["reports"]
    assert (report["data"], report["questions"]) == ("questions.jsonl", 2)
    (team,) = report["teams"]
    assert (team["name"], team["accuracy"]["count"], team["accuracy"]["total"]) == ("council", 1, 2)
    assert team["council"]["members"]["ben"]["count"] == 0
    (saved,) = (service.home / ".massmem" / "eval" / "reports").glob("questions-*.json")
    assert report == json.loads(saved.read_bytes())  # one shape
    alice = service.client("alice")
    refused = alice.get(PATH)
    assert (refused.status_code, alice.get("/api/v1/about").json()["is_operator"]) == (403, False)
    assert "questions.jsonl" not in refused.text
    assert requests.get(service.url + PATH, timeout=60).status_code == 401


def test_user_of_this_machine_sees_them(start_page: StartPage, tmp_path: Path) -> None:
    page = start_page(make_config())
    evaluate(tmp_path)
    visitor = page.enter()
    assert visitor.get(f"{page.url}/api/v1/about", timeout=60).json()["is_operator"]
    assert len(visitor.get(page.url + PATH, timeout=60).json()["reports"]) == 1


def test_operator_sees_which_jobs_cannot_be_read(start_service: StartService) -> None:
    service = start_service(make_config())
    jobs = service.home / ".massmem" / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    (jobs / "names.yaml").write_text("rule: x\n")
    warnings = [service.client(*who).get("/api/v1/about").json()["warning"] for who in (("root", "admin"), ("alice",))]
    assert "the job names is left out" in warnings[0] and str(jobs / "names.yaml") in warnings[0]
    assert warnings[1] is None
