"""Reports of a council in whole turns: written, repaired, given up, made from votes, and shown everywhere."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.core.events import AgentDelta, AgentFailed, Event, Notice, TurnCompleted
from massmem.export import FORMATS
from massmem.session.session import Session
from massmem.store import open_configured
from massmem.store.lookup import read_turn, require_session
from tests.support.cli import call_massmem
from tests.support.sessions import collect, team
from tests.support.turns import only

ANSWERS = {"ann": "It opened in 1932.", "bob": "It opened in 1930.", "cid": "In 1932, on a <Sunday>."}
REPORT = {
    "agreed": [{"text": "It is a *bridge*.", "answers": ["A", "B", "C"]}],
    "disputed": [],
    "single": [{"text": "A ghost says so.", "answers": ["Q"]}, {"text": "It was a <Sunday>.", "answers": ["C"]}],
    "missing": ["Who paid"],
    "answer": "In **1932**.",
}


def config(replies: Sequence[str], **coordination: Any) -> Any:
    """Three agents, of whom whoever wins writes the report."""
    script = {"report": [{"raw": reply} for reply in replies], "present": [{"text": "Written from all."}]}
    scripts = {name: {"answer": [{"text": text}], **script} for name, text in ANSWERS.items()}
    return team(scripts, **{"presentation": "report", **coordination})


async def ask(team_config: Any, home: Path) -> tuple[list[Event], Any]:
    """The events of a turn, and what is stored of it."""
    async with await Session.open(team_config, home=home) as session:
        events = await collect(session.ask("When did the bridge open?"))
        session_id = session.id
    store = await open_configured(team_config.store, home)
    try:
        return events, await read_turn(store, await require_session(store, session_id), 1)
    finally:
        await store.close()


async def test_report_and_answer_take_one_request_and_are_in_exports(tmp_path: Path):
    events, transcript = await ask(config([f"Here it is: {json.dumps(REPORT)}"]), tmp_path)
    (completed,) = only(events, TurnCompleted)
    assert (completed.answer, completed.presented) == ("In **1932**.", True)
    assert completed.report is not None
    assert completed.report == transcript.result.report
    assert set(completed.report.agreed[0].agents) == {"ann", "bob", "cid"}
    assert completed.report.dropped == 1
    assert completed.usage.requests == 7, "three answers, three votes, one report"
    streamed = "".join(event.text for event in only(events, AgentDelta))
    assert "agreed" not in streamed, "nobody is shown JSON while it is written"
    markdown, html = (FORMATS[name].write_turn(transcript, True, False) for name in ("markdown", "html"))
    assert r"- It is a \*bridge\*. (all)" in markdown
    assert "<li" in html
    assert "It was a &lt;Sunday&gt;." in html
    assert json.loads(FORMATS["json"].write_turn(transcript, True, False))["report"]["missing"] == ["Who paid"]


async def test_a_reply_that_is_no_report_is_repaired_once(tmp_path: Path):
    events, _ = await ask(config(["no JSON", json.dumps(REPORT)]), tmp_path)
    (completed,) = only(events, TurnCompleted)
    assert completed.report is not None
    assert completed.report.made_from == "answers"
    assert not only(events, AgentFailed)


async def test_without_a_report_the_answer_is_written_and_the_votes_are_shown(tmp_path: Path):
    events, _ = await ask(config(["no JSON"]), tmp_path)
    (completed,) = only(events, TurnCompleted)
    assert completed.answer == "Written from all."
    assert completed.report is not None
    assert completed.report.made_from == "votes"
    assert any("could not write the report" in notice.message for notice in only(events, Notice))


async def test_a_provider_that_fails_is_not_asked_for_the_answer_again(tmp_path: Path):
    broken = config([])
    agents = [a.model_dump() for a in broken.agents]
    for agent in agents:
        agent["backend"]["script"]["report"] = [{"error": "auth"}]
    events, _ = await ask(type(broken).model_validate({**broken.model_dump(), "agents": agents}), tmp_path)
    (completed,) = only(events, TurnCompleted)
    assert completed.presented is False
    assert completed.answer in ANSWERS.values()


@pytest.mark.parametrize("presentation", ["as_is", "auto"])
def test_the_command_line_shows_it_for_this_question_and_for_a_past_one(presentation: str, tmp_path: Path, home: Path):
    path = tmp_path / "team.yaml"
    written = config([json.dumps(REPORT)], presentation=presentation).model_dump(mode="json", exclude_unset=True)
    path.write_text(json.dumps(written))

    def run(*arguments: str) -> tuple[str, str]:
        done = call_massmem(*arguments, "--config", str(path))
        assert done.returncode == 0
        return done.stdout.decode(), done.stderr.decode()

    answer, report = run("--show", "report", "--output", "plain", "When?")
    listed = json.loads(run("sessions", "list", "--json")[0])["sessions"][0]["session_id"]
    earlier, _ = run("sessions", "show", listed, "--report")
    if presentation == "as_is":
        assert answer.strip() in ANSWERS.values()
        assert "Made from equal answers and votes" in report
        assert "Made from equal answers and votes" in earlier
    else:
        assert answer.strip() == "In **1932**."
        assert "  Who paid" in report
        assert "Nobody covered:\n  Who paid" in earlier
    shown = json.loads(run("--show", "report", "--output", "json", "When?")[0])["report"]
    assert shown["made_from"] == ("votes" if presentation == "as_is" else "answers")
    assert (
        "no report: there is one agent's answer" in run("--solo", "--show", "report", "--output", "plain", "When?")[1]
    )
