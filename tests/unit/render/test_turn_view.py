import io
import json
from datetime import timedelta

from massmem.core.events import EVENT, AnswerSubmitted, Event, TurnCompleted
from massmem.core.messages import Usage
from massmem.render.text import JsonlRenderer
from massmem.render.turn_view import TurnView, turn_to_dict
from tests.support.sample_turn import START, answer, ballot, begin, event, give_names, other_ends, whole_turn


def fold(events: list[Event]) -> TurnView:
    view = TurnView()
    for e in events:
        view.feed(e)
    return view


def test_completed_turn():
    view = fold(whole_turn())
    assert (view.outcome.status, view.outcome.session_id, view.outcome.turn, view.round) == (
        "completed",
        "session_a",
        1,
        3,
    )
    assert view.outcome.answer == "The sky is blue because of Rayleigh scattering."
    assert view.votes == {"ann": 2}
    assert view.notices == ["the store is slow"]
    assert [a.phase for a in view.agents.values()] == ["answered", "voted", "failed"]
    assert [f.agent_id for f in view.agent_failures] == ["eve"]
    assert view.seconds(START + timedelta(hours=1)) == 5.0


def test_usage_of_agents_sums_to_usage_of_turn():
    view = fold(whole_turn())
    assert sum((a.usage for a in view.agents.values()), Usage()) == view.usage == Usage(700, 150, 60, 8)


def test_tokens_are_estimated_until_reported():
    start = [begin("ann"), event(0, "agent_started", agent_id="ann", round=1, step="answer")]
    deltas = [event(1, "agent_delta", agent_id="ann", round=1, channel="text", text="x" * 40) for _ in range(3)]
    assert fold(start + deltas).agents["ann"].tokens == 30
    assert fold([*start, *deltas, answer(2, "ann", "done")]).agents["ann"].tokens == 20
    retry = event(2, "agent_retrying", agent_id="ann", round=1, error="e", delay=1, attempt=1)
    agent = fold([*start, *deltas, retry]).agents["ann"]
    assert (agent.tokens, agent.tail, agent.phase) == (0, "", "retrying")


def test_seconds_count_only_while_agent_works():
    events = [
        begin("ann"),
        event(1, "agent_started", agent_id="ann", round=1, step="answer"),
        answer(3, "ann", "x"),
        event(10, "agent_started", agent_id="ann", round=2, step="vote"),
    ]
    agent = fold(events).agents["ann"]
    assert agent.seconds(START + timedelta(seconds=11.5)) == 3.5


def test_voided_ballots_are_not_counted():
    events = [begin("ann", "bob"), ballot(1, "ann", "bob"), ballot(1, "bob", "bob")]
    assert fold(events).votes == {"bob": 2}
    events.append(event(2, "ballots_voided", round=2, agents=("ann",)))
    assert fold(events).votes == {"bob": 1}


def test_agent_that_was_not_asked_to_vote_waits_no_longer():
    events = [begin("ann", "bob"), event(1, "round_started", round=2, agents=("ann", "bob"), final=True)]
    events.append(event(2, "winner_decided", agent_id="ann", votes={"ann": 1}, by="early_stop", not_asked=("bob",)))
    assert {agent.id: agent.phase for agent in fold(events).agents.values()} == {"ann": "waiting", "bob": "answered"}


def test_new_turn_resets_all_but_notices():
    view = fold([*whole_turn(), begin("zoe", at=9)])
    assert (list(view.agents), view.outcome.status, view.outcome.winner, view.round) == (["zoe"], "running", None, 0)
    assert view.notices == ["the store is slow"]


def test_unannounced_agent_is_added():
    assert list(fold([begin("ann"), answer(1, "ghost", "boo")]).agents) == ["ann", "ghost"]


def test_jsonl_lines_are_the_stored_events():
    events, stream = whole_turn() + other_ends(), io.StringIO()
    renderer = JsonlRenderer(stream.write)
    for e in events:
        renderer.feed(e)
    lines = stream.getvalue().splitlines()
    assert [EVENT.validate_json(line) for line in lines] == events
    assert json.loads(lines[0])["type"] == "turn_started"


def test_completed_turn_as_json():
    result = turn_to_dict(fold(whole_turn()))
    assert json.loads(json.dumps(result)) == result
    assert {k: result[k] for k in ("schema_version", "status", "winner", "votes", "rounds", "seconds", "turn")} == {
        "schema_version": 1,
        "status": "completed",
        "winner": "ann",
        "votes": {"ann": 2},
        "rounds": 3,
        "seconds": 5.0,
        "turn": 1,
    }
    ann, bob, eve = result["agents"]
    assert [a["number"] for a in ann["answers"]] == [1, 3]
    assert bob["ballots"][-1] == {"round": 3, "choice": "ann", "reason": "names the cause", "fallback": None}
    assert (ann["error"], eve["error"]["type"], eve["error"]["fix"]) == (
        None,
        "AuthenticationError",
        "check OPENAI_API_KEY",
    )
    assert bob["seconds"] == 3.4
    assert result["usage"]["requests"] == sum(a["usage"]["requests"] for a in result["agents"]) == 8
    assert [e["agent"] for e in result["errors"]] == ["eve"]


def test_agents_have_their_id_and_their_name():
    result = turn_to_dict(fold(give_names(whole_turn(), {"ann": "Technical Specialist"})))
    assert result["winner"] == "ann"
    assert [(agent["id"], agent["name"]) for agent in result["agents"]] == [
        ("ann", "Technical Specialist"),
        ("bob", "bob"),
        ("eve", "eve"),
    ]


def test_confidence_and_escalation():
    view = fold(whole_turn())
    assert (turn_to_dict(view)["confidence"], turn_to_dict(view)["escalated"]) == (None, False)
    view.feed(whole_turn()[-1].model_copy(update={"confidence": 0.5, "escalated": True}))
    assert (turn_to_dict(view)["confidence"], turn_to_dict(view)["escalated"]) == (0.5, True)


def test_work_that_was_cut_short_is_named_for_the_turn_and_for_the_answer():
    cut = {"work_cut": "standstill"}
    events = [e.model_copy(update=cut) if isinstance(e, AnswerSubmitted | TurnCompleted) else e for e in whole_turn()]
    result = turn_to_dict(fold(events))
    assert (result["status"], result["limit"], result["work_cut"]) == ("limit", None, "standstill")
    assert {answer["work_cut"] for agent in result["agents"] for answer in agent["answers"]} == {"standstill"}
    assert turn_to_dict(fold(whole_turn()))["work_cut"] is None


def test_failed_turn_names_its_error():
    result = turn_to_dict(fold([begin("ann"), other_ends()[1]]))
    assert (result["status"], result["answer"], result["winner"]) == ("failed", None, None)
    assert result["errors"] == [
        {"agent": None, "type": "TurnError", "error": "no agent could answer", "fix": "try later"}
    ]


def test_turn_without_events_is_running():
    assert turn_to_dict(TurnView())["status"] == "running"
