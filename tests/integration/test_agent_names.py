"""Display names of agents: people read them wherever an agent is shown; ids stay the keys."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from massmem.export import FORMATS
from tests.support.cli import call_massmem
from tests.support.service import Service, make_agent, make_config

IDS = re.compile(r"\b(spec|crit)\b")


def make_team() -> list[dict[str, Any]]:
    """Two agents with names; the first wins, whatever the order of candidates."""
    vote = [{"vote_for": "Check the signature.", "reason": "precise"}]
    specialist = make_agent("spec", "Check the signature.", vote=vote) | {"name": "Technical Specialist"}
    critic = make_agent("crit", "It depends.", vote=vote) | {"name": "Critic (Dr. No)"}
    return [specialist, critic]


@pytest.fixture
def team(home: Path, tmp_path: Path) -> str:
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps({"agents": make_team(), "memory": {"persistent_memory": {"enabled": False}}}))
    return str(path)


def test_progress_transcript_and_exports_show_names(team: str) -> None:
    asked = call_massmem("--config", team, "Why?")
    assert asked.returncode == 0
    progress = asked.stderr.decode()
    (session_id,) = set(re.findall(r"session_\w+", progress))
    assert "Technical Specialist wins" in progress
    assert not IDS.search(progress)
    shown = call_massmem("sessions", "show", session_id, "--all").stdout.decode()
    assert "Critic (Dr. No) votes for Technical Specialist" in shown
    assert not IDS.search(shown)
    for form in set(FORMATS) - {"json"}:
        exported = call_massmem("sessions", "export", session_id, "--format", form, "--all").stdout.decode()
        assert "Technical Specialist" in exported, form
        assert not IDS.search(exported), form


def test_json_has_ids_as_keys_and_names_beside_them(team: str) -> None:
    answer = json.loads(call_massmem("--config", team, "--output", "json", "Why?").stdout)
    assert (answer["winner"], list(answer["votes"])) == ("spec", ["spec"])
    assert {agent["id"]: agent["name"] for agent in answer["agents"]} == {
        "spec": "Technical Specialist",
        "crit": "Critic (Dr. No)",
    }
    (turn,) = json.loads(call_massmem("sessions", "export", answer["session_id"], "--format", "json").stdout)["turns"]
    assert turn["winner"] == "spec"
    assert turn["names"] == {"spec": "Technical Specialist", "crit": "Critic (Dr. No)"}
    assert {(m["agent_id"], m["agent_type"]) for m in turn["messages"]} == {
        (None, None),
        ("spec", "Technical Specialist"),
        ("crit", "Critic (Dr. No)"),
    }
    insights = json.loads(call_massmem("sessions", "insights", answer["session_id"], "--json").stdout)
    assert insights["agents"]["spec"]["name"] == "Technical Specialist"
    assert insights["agents_used"] == ["Technical Specialist"]


def test_http_answers_and_lists_show_names(tmp_path: Path) -> None:
    service = Service(tmp_path, make_config(*make_team())).start()
    try:
        ann = service.client("ann")
        answer = ann.chat("Why?", "one").json()
        assert (answer["agent"], answer["agent_id"]) == ("Technical Specialist", "spec")
        query = ann.post("/api/multi-agent/query", {"query": "And now?", "session_id": "one"}).json()
        assert query["agent_name"] == "Technical Specialist"
        assert query["agents_used"] == ["Technical Specialist"]
        (newest,) = ann.get("/api/v1/chat/history/one?limit=1").json()["messages"]
        assert (newest["agent"], newest["agent_id"]) == ("Technical Specialist", "spec")
        conversation = ann.get("/api/conversation/one").json()
        assert conversation["agents_used"] == ["Technical Specialist"]
        assert conversation["messages"][-1]["agent"] == "Technical Specialist"
        (listed,) = ann.get("/api/conversations").json()["sessions"]
        assert listed["agents_used"] == ["Technical Specialist"]
    finally:
        service.stop()
