import io
import json

from massmem.core.events import EVENT, AnswerSubmitted, Event, TurnCompleted
from massmem.render.json_output import JsonlRenderer, turn_to_dict
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import begin, give_names, other_ends, whole_turn


def fold(events: list[Event]) -> TurnView:
    view = TurnView()
    for e in events:
        view.feed(e)
    return view


def test_jsonl_lines_are_the_stored_events():
    events, stream = whole_turn() + other_ends(), io.StringIO()
    renderer = JsonlRenderer(stream.write)
    for e in events:
        renderer.feed(e)
    lines = stream.getvalue().splitlines()
    assert [EVENT.validate_json(line) for line in lines] == events
    assert json.loads(lines[0])["type"] == "turn_started"


def test_completed_turn():
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
    assert bob["ballots"][-1] == {"round": 3, "choice": "ann", "reason": "names the cause"}
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
