"""Two agents that cite, and a presenter that invents a number: from the terminal to exports, and what is forgotten."""

import json
import re
from pathlib import Path

import pytest

from massmem.core.events import AnswerSubmitted, TurnCompleted, decode_event
from tests.support.cli import call_massmem

LIGHT = {"url": "https://light.example/ray_leigh", "title": "Rayleigh <b>", "quote": "Violet paint costs 77 euros."}
ODD = {"url": "javascript:alert(1)", "title": "A page", "quote": "key sk-abcdefghijklmnopqrstuvwx"}
FINAL = "Air scatters blue light most. Paint is what it is. See [7]."
ANSWER = "Air scatters blue light most [1]. Paint is what it is [2]. See."
FORMATS = ("html", "markdown", "text", "json")
NOTES = ["[1] Rayleigh <b>, https://light.example/ray_leigh", "[2] A page, javascript:alert(1)"]


@pytest.fixture
def team(tmp_path: Path, home: Path) -> str:
    vote = [{"vote_for": "Air"}]
    ann = [{"text": "Air scatters blue light most [1].", "citations": [LIGHT], "searches": ["sky\ncolour"]}]
    bob = [{"text": "Paint is what it is [1].", "citations": [ODD], "searches": ["paint", "blue paint"]}]
    scripts = [{"answer": ann, "vote": vote, "present": FINAL}, {"answer": bob, "vote": vote}]
    agents = [{"id": f"agent_{i}", "backend": {"type": "scripted", "script": one}} for i, one in enumerate(scripts)]
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps({"agents": agents, "memory": {"persistent_memory": {"llm": None}}}))
    return str(path)


def run(team: str, *arguments: str) -> str:
    result = call_massmem(*arguments, "--config", team)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


def test_sources_survive_the_vote_and_stand_wherever_the_answer_does(team: str, home: Path, tmp_path: Path) -> None:
    result = call_massmem("Why is it blue?", "--config", team)
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == "\n".join([ANSWER, "", *NOTES, ""])
    progress = result.stderr.decode()
    assert "agent_0 is searching: sky colour\n" in progress
    assert "numbers without a source were removed: [7]" in progress
    assert "3 searches" in progress
    session = re.search(r"session_\d+_\d+", progress)
    assert session
    shown = run(team, "sessions", "show", session[0])
    assert all(note in shown for note in NOTES)

    exports = {name: run(team, "sessions", "export", session[0], "--format", name) for name in FORMATS}
    assert all("sk-abcdefghijklm" not in text for text in exports.values())
    assert (
        '<a href="https://light.example/ray_leigh" rel="noopener noreferrer nofollow">Rayleigh &lt;b&gt;</a>'
        in (exports["html"])
    )
    assert 'href="javascript' not in exports["html"]
    assert "\\[1\\] Rayleigh \\<b\\>, <https://light.example/ray_leigh>" in exports["markdown"]
    assert "\n".join(NOTES) in exports["text"]
    [turn] = json.loads(exports["json"])["turns"]
    assert [(c["url"], c["agent_id"], c["start"], c["end"]) for c in turn["citations"]] == [
        (LIGHT["url"], "agent_0", 0, 28),
        (ODD["url"], "agent_1", 34, 53),
    ]
    assert turn["citations"][1]["quote"] == "key [redacted]"

    hits = json.loads(run(team, "memory", "list", "--origin", "web", "--json"))["memories"]
    assert {(hit["origin"], hit["rests_on"]) for hit in hits} == {("agent", "web")}
    assert len(hits) == 3
    assert "(quoting the web)" in run(team, "memory", "list")
    assert json.loads(run(team, "memory", "list", "--origin", "tool", "--json"))["memories"] == []

    run(team, "memory", "forget", "--everywhere", "--yes", "--text", LIGHT["quote"])
    again = run(team, "sessions", "export", session[0], "--format", "json")
    assert "Violet paint" not in again
    assert LIGHT["url"] in again

    (tmp_path / "export.json").write_text(exports["json"].replace(session[0], "session_copy"))
    run(team, "import", str(tmp_path / "export.json"))
    assert all(note in run(team, "sessions", "show", "session_copy") for note in NOTES)


def test_programs_get_sources_as_data(team: str, home: Path) -> None:
    result = json.loads(run(team, "--output", "json", "Why is it blue?"))
    assert result["answer"] == ANSWER
    assert [citation["url"] for citation in result["citations"]] == [LIGHT["url"], ODD["url"]]
    assert result["agents"][1]["answers"][0]["citations"][0]["url"] == ODD["url"]
    assert result["usage"]["searches"] == 3
    lines = run(team, "--output", "jsonl", "And again?").splitlines()
    events = [decode_event(line) for line in lines]
    assert [event.type for event in events].count("web_searched") == 3
    assert isinstance(events[-1], TurnCompleted)
    assert len(events[-1].citations) == 2


def test_events_from_before_sources_load_as_they_did() -> None:
    old = '{"at": "2026-01-01T00:00:00Z", "type": "answer_submitted", "agent_id": "a", "round": 1, "number": 1, '
    event = decode_event(old + '"content": "See [1].", "usage": {"prompt": 1, "completion": 1}}')
    assert isinstance(event, AnswerSubmitted)
    assert event.citations == ()
