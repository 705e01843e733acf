import json

from massmem.render.board import Board
from massmem.render.result import turn_object
from tests.support.sample_turn import begin, other_ends, whole_turn


def test_a_completed_turn():
    board = Board()
    for e in whole_turn():
        board.feed(e)
    result = turn_object(board)
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


def test_how_sure_the_council_is():
    board = Board()
    for e in whole_turn():
        board.feed(e)
    assert (turn_object(board)["confidence"], turn_object(board)["escalated"]) == (None, False)
    board.feed(whole_turn()[-1].model_copy(update={"confidence": 0.5, "escalated": True}))
    assert (turn_object(board)["confidence"], turn_object(board)["escalated"]) == (0.5, True)


def test_a_failed_turn_says_why():
    board = Board()
    board.feed(begin("ann"))
    board.feed(other_ends()[1])
    result = turn_object(board)
    assert (result["status"], result["answer"], result["winner"]) == ("failed", None, None)
    assert result["errors"] == [
        {"agent": None, "type": "TurnError", "error": "no agent could answer", "fix": "try later"}
    ]


def test_nothing_happened_yet():
    assert turn_object(Board())["status"] == "running"
