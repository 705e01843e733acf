"""A ballot arrives in whatever form a model takes: as a tool call, as structured output, or as JSON in text."""

import json
from pathlib import Path
from typing import Any

import pytest

from massmem.providers.learnt import FILE
from tests.support.cli import call_massmem
from tests.support.newest_server import FORCED_TOOLS, SCHEMA, TOOLS, TOOLS_LAST, TOOLS_ON_CHAT, newest_server


def ask(team: Path, *options: str) -> dict[str, Any]:
    ran = call_massmem("--config", str(team), "--json", "--strict", *options, "Why?")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


REFUSALS = {
    "nothing": (),
    "forced tools": (FORCED_TOOLS,),
    "tools": (TOOLS,),
    "tools on chat completions": (TOOLS_ON_CHAT,),
    "tools and structured output": (TOOLS, SCHEMA),
    "every form but text": (FORCED_TOOLS, TOOLS, SCHEMA),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("type_", ["openai", "responses", "anthropic"])
def test_no_ballot_is_lost_to_a_wire_format_and_no_refusal_comes_twice(type_: str, name: str, tmp_path: Path):
    if type_ != "openai" and TOOLS_ON_CHAT in REFUSALS[name]:
        pytest.skip("only chat completions say this")
    with newest_server(*REFUSALS[name]) as server:
        team = tmp_path / "team.yaml"
        team.write_text(server.config(type_) if type_ != "responses" else server.config(api="responses"))
        result = ask(team)
        assert (result["decided_by"], sum(result["votes"].values())) == ("consensus", 3)
        never_sent = {FORCED_TOOLS} if type_ == "anthropic" else set[str]()
        assert set(server.refused) == set(REFUSALS[name]) - never_sent
        server.refused.clear()
        assert ask(team)["decided_by"] == "consensus"
        assert server.refused == [], "what one process has learnt the next one knows"


@pytest.mark.parametrize("refuses", [(FORCED_TOOLS,), (FORCED_TOOLS, SCHEMA)])
def test_model_that_answers_in_prose_instead_of_a_tool_call_is_asked_for_json(refuses: tuple[str, ...], tmp_path: Path):
    with newest_server(*refuses, writes_prose=True) as server:
        team = tmp_path / "team.yaml"
        team.write_text(server.config("anthropic"))
        assert ask(team)["decided_by"] == "consensus"


@pytest.mark.parametrize("written", [False, True])
def test_answer_that_comes_as_a_call_counts_and_a_vote_on_nothing_is_repaired(written: bool, tmp_path: Path):
    with newest_server() as server:
        server.writes_calls = written
        server.early = (("new_answer", '{"content": "It scatters."}'), ("vote", '{"reason": "x", "choice": "A"}'))
        team = tmp_path / "team.yaml"
        team.write_text(server.config("anthropic"))
        result = ask(team)
    assert (result["decided_by"], sum(result["votes"].values())) == ("consensus", 3)
    answers = [answer["content"] for agent in result["agents"] for answer in agent["answers"]]
    assert len(answers) == 3 and "It scatters." in answers
    assert any("nothing to vote yet" in json.dumps(body) for body in server.accepted)


def test_winner_whose_last_request_is_refused_for_its_tools_still_writes_the_final_answer(tmp_path: Path):
    with newest_server(TOOLS_LAST) as server:
        team = tmp_path / "team.yaml"
        team.write_text(server.config("anthropic"))
        result = ask(team)
    assert server.refused == [TOOLS_LAST]
    assert result["notices"] == []
    assert result["answer"] not in [answer["content"] for agent in result["agents"] for answer in agent["answers"]]


def test_refusals_are_shown_with_their_day_by_doctor_and_the_list_of_models(tmp_path: Path):
    with newest_server(FORCED_TOOLS) as server:
        team = tmp_path / "team.yaml"
        team.write_text(server.config())
        ask(team)
        stored = json.loads(Path.home().joinpath(".massmem", FILE).read_text())
        (day,) = (entry["refuses"]["forced_tools"] for entry in stored.values())
        doctor = call_massmem("doctor", "--config", str(team))
        assert f"takes no forced tool calls (refused {day})".encode() in doctor.stdout
        listed = call_massmem("models", "list", "--config", str(team))
        assert f"takes no forced tool calls (refused {day})".encode() in listed.stdout
